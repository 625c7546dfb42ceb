/* Keys of ids and of edges: the hashes of gnnflow/graph/hashing.py and gnnflow/sampling/priority.py, bit for bit. */
#include <stdint.h>
#include <string.h>

enum { WORD = 8, AHEAD = 32 };

static inline uint64_t mix(uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

/* keys [count]: the key of each id. */
void gnnflow_hash(int64_t count, const uint64_t *ids, uint64_t *keys) {
    for (int64_t i = 0; i < count; i++) keys[i] = mix(ids[i]);
}

/* The next eight bytes of a text, zeros after its end; `inside` says that eight bytes may be read. */
static inline uint64_t word_at(const uint8_t *text, int64_t left, int inside) {
    uint64_t word = 0;
    if (left >= WORD || inside) memcpy(&word, text, WORD);
    else memcpy(&word, text, (size_t)left);
    return left >= WORD ? word : word & (((uint64_t)1 << (8 * left)) - 1);
}

/* keys [count]: the key of each text, which lies from offsets[i] to offsets[i + 1] in content. */
void gnnflow_hash_texts(int64_t count, const int64_t *offsets, const uint8_t *content, uint64_t *keys) {
    int64_t end = count ? offsets[count] : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = offsets[i], stop = offsets[i + 1];
        uint64_t key = mix((uint64_t)(stop - at));
        for (; at < stop; at += WORD) key = mix(key ^ word_at(content + at, stop - at, at + WORD <= end));
        keys[i] = key;
    }
}

/* numbers [count]: of each edge among those of the same pair, which lie together, in their order. */
void gnnflow_number_pairs(int64_t count, const int64_t *dst, const int64_t *src, int64_t *numbers) {
    for (int64_t i = 0; i < count; i++)
        numbers[i] = i && dst[i] == dst[i - 1] && src[i] == src[i - 1] ? numbers[i - 1] + 1 : 0;
}

/* keys [count]: the key of each edge, from the keys of its ends and its number. word: of the relation. */
void gnnflow_edge_keys(int64_t count, const uint64_t *dst_keys, const uint64_t *src_keys, const uint64_t *numbers,
                       uint64_t word, uint64_t *keys) {
    for (int64_t i = 0; i < count; i++)
        keys[i] = mix(mix(mix(mix(dst_keys[i]) ^ src_keys[i])) ^ (numbers[i] ^ word));
}

/* keys [count]: the key of each edge as gnnflow_edge_keys gives it, where edges of one pair lie together: pairs [count]
   in order. order [count]: the row of each edge, among which the keys of its ends lie. */
void gnnflow_pair_keys(int64_t count, const int64_t *pairs, const int64_t *order, const uint64_t *dst_keys,
                       const uint64_t *src_keys, uint64_t word, uint64_t *keys) {
    uint64_t number = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            __builtin_prefetch(&dst_keys[order[i + AHEAD]]);
            __builtin_prefetch(&src_keys[order[i + AHEAD]]);
        }
        number = i && pairs[i] == pairs[i - 1] ? number + 1 : 0;
        keys[i] = mix(mix(mix(mix(dst_keys[order[i]]) ^ src_keys[order[i]])) ^ (number ^ word));
    }
}

/* Fill the table of distinct ids that gnnflow_find_owned reads. slots [2^bits][2]: an id and its place, or -1 as a place
   in all at first; more than there are ids. */
void gnnflow_place_owned(int64_t count, const int64_t *ids, int64_t bits, int64_t *slots) {
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < count; i++) {
        uint64_t s = mix((uint64_t)ids[i]) >> (64 - bits);
        while (slots[2 * s + 1] >= 0) s = (s + 1) & mask;
        slots[2 * s] = ids[i], slots[2 * s + 1] = i;
    }
}

/* The dense id of each wanted id, -1 for one that is not there.

   An id's node is in the partition key % partitions, whose table has 2^bits slots; its nodes begin at the dense id begin.
   keys, found [count]: of the wanted ids. slots, bits, begins [partitions]. */
void gnnflow_find_owned(int64_t partitions, const int64_t *const *slots, const int64_t *bits, const int64_t *begins,
                        int64_t count, const int64_t *wanted, const uint64_t *keys, int64_t *found) {
    int64_t owner[AHEAD];
    uint64_t slot[AHEAD];
    /* as in gnnflow_find: requests of several places at once */
    for (int64_t first = 0; first < count; first += AHEAD) {
        int64_t some = count - first < AHEAD ? count - first : AHEAD;
        for (int64_t i = 0; i < some; i++) {
            owner[i] = (int64_t)(keys[first + i] % (uint64_t)partitions);
            slot[i] = keys[first + i] >> (64 - bits[owner[i]]);
            __builtin_prefetch(&slots[owner[i]][2 * slot[i]]);
        }
        for (int64_t i = 0; i < some; i++) {
            const int64_t *own = slots[owner[i]];
            uint64_t mask = ((uint64_t)1 << bits[owner[i]]) - 1, s = slot[i];
            while (own[2 * s + 1] >= 0 && own[2 * s] != wanted[first + i]) s = (s + 1) & mask;
            found[first + i] = own[2 * s + 1] < 0 ? -1 : begins[owner[i]] + own[2 * s + 1];
        }
    }
}

/* The place of each wanted text among distinct texts, -1 for one that is not there.

   keys, wanted_keys: of the texts. slots [2^bits]: -1 each, more than there are texts. found [wanted_count]. */
void gnnflow_find_texts(int64_t count, const int64_t *offsets, const uint8_t *content, const uint64_t *keys,
                        int64_t bits, int32_t *slots, int64_t wanted_count, const int64_t *wanted_offsets,
                        const uint8_t *wanted, const uint64_t *wanted_keys, int64_t *found) {
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < count; i++) {
        uint64_t s = keys[i] & mask;
        while (slots[s] >= 0) s = (s + 1) & mask;
        slots[s] = (int32_t)i;
    }
    /* as in gnnflow_find: requests of several places at once */
    for (int64_t first = 0; first < wanted_count; first += AHEAD) {
        int64_t last = wanted_count - first < AHEAD ? wanted_count : first + AHEAD;
        for (int64_t i = first; i < last; i++) __builtin_prefetch(&slots[wanted_keys[i] & mask]);
        for (int64_t i = first; i < last; i++)
            if (slots[wanted_keys[i] & mask] >= 0) __builtin_prefetch(&keys[slots[wanted_keys[i] & mask]]);
        for (int64_t i = first; i < last; i++) {
            int64_t begin = wanted_offsets[i], length = wanted_offsets[i + 1] - begin;
            uint64_t s = wanted_keys[i] & mask;
            for (; slots[s] >= 0; s = (s + 1) & mask) {
                int32_t at = slots[s];
                if (keys[at] == wanted_keys[i] && offsets[at + 1] - offsets[at] == length &&
                    !memcmp(content + offsets[at], wanted + begin, (size_t)length))
                    break;
            }
            found[i] = slots[s];
        }
    }
}
