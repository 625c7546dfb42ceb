/* Work on the columns of a table: orders, places of ids, distributions. One thread each: tasks are the parallelism. */
#include <stdint.h>
#include <string.h>

enum { MOST_BITS = 11, MOST_PASSES = 6, AHEAD = 32, TILE = 512 };

/* The rows of `before` (NULL: 0 .. count - 1) in ascending order of their values, equal ones in their given order: a
   radix sort from the lowest digit of integers that hold a value and a place.

   values: from 0 to below 2^value_bits; place_bits: count <= 2^place_bits; together at most 64. order, spare [count].
   ascending [count]: the values in that order; NULL where nobody asks. */
void gnnflow_order(int64_t count, const int64_t *values, const int64_t *before, int64_t value_bits, int64_t place_bits,
                   int64_t *order, uint64_t *spare, uint64_t *ascending) {
    static _Thread_local int64_t begins[MOST_PASSES][1 << MOST_BITS];
    int passes = (int)((value_bits + MOST_BITS - 1) / MOST_BITS), bits = passes ? (int)((value_bits + passes - 1) / passes) : 0;
    uint64_t *from = (uint64_t *)order, *to = spare, mask = ((uint64_t)1 << bits) - 1;
    memset(begins, 0, sizeof begins);
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = (uint64_t)values[before ? before[i] : i];
        for (int pass = 0; pass < passes; pass++) begins[pass][value >> (pass * bits) & mask]++;
        from[i] = value << place_bits | (uint64_t)i;
    }
    for (int pass = 0; pass < passes; pass++) {
        int64_t sum = 0, *begin = begins[pass];
        int shift = (int)place_bits + pass * bits;
        for (int64_t digit = 0; digit <= (int64_t)mask; digit++) {
            int64_t held = begin[digit];
            begin[digit] = sum;
            sum += held;
        }
        for (int64_t i = 0; i < count; i++) to[begin[from[i] >> shift & mask]++] = from[i];
        uint64_t *last = from;
        from = to, to = last;
    }
    uint64_t place = place_bits < 64 ? ((uint64_t)1 << place_bits) - 1 : ~(uint64_t)0;
    if (from != spare) memcpy(spare, from, (size_t)count * sizeof *spare);
    for (int64_t i = 0; i < count; i++) order[i] = before ? before[spare[i] & place] : (int64_t)(spare[i] & place);
    for (int64_t i = 0; ascending && i < count; i++) ascending[i] = place_bits < 64 ? spare[i] >> place_bits : 0;
}

static inline uint64_t slot_of(int64_t id, int64_t bits) {
    return (uint64_t)id * 0x9E3779B97F4A7C15ull >> (64 - bits);
}

/* The place of each wanted id among distinct ids, -1 for one that is not there.

   slots [2^bits]: -1 each, more than there are ids; bits: 1 to 31. found [wanted_count]. */
void gnnflow_find(int64_t count, const int64_t *ids, int64_t bits, int32_t *slots, int64_t wanted_count,
                  const int64_t *wanted, int64_t *found) {
    uint64_t mask = ((uint64_t)1 << bits) - 1, slot[AHEAD];
    for (int64_t i = 0; i < count; i++) {
        uint64_t s = slot_of(ids[i], bits);
        while (slots[s] >= 0) s = (s + 1) & mask;
        slots[s] = (int32_t)i;
    }
    /* memory answers a few requests at once, and one at a time where each waits for the last */
    for (int64_t first = 0; first < wanted_count; first += AHEAD) {
        int64_t some = wanted_count - first < AHEAD ? wanted_count - first : AHEAD;
        for (int64_t i = 0; i < some; i++) {
            slot[i] = slot_of(wanted[first + i], bits);
            __builtin_prefetch(&slots[slot[i]]);
        }
        for (int64_t i = 0; i < some; i++)
            if (slots[slot[i]] >= 0) __builtin_prefetch(&ids[slots[slot[i]]]);
        for (int64_t i = 0; i < some; i++) {
            uint64_t s = slot[i];
            while (slots[s] >= 0 && ids[slots[s]] != wanted[first + i]) s = (s + 1) & mask;
            found[first + i] = slots[s];
        }
    }
}

/* Add the rows of each code to counts [columns][2^16]: the upper half of a float32 in the order of the numbers.

   matrix [rows][width]; positions [columns]: of the columns counted. Column after column in some rows at a time: those
   rows and one column's commonest codes stay in the nearest cache. No branch asks for the sign: of random numbers it
   would be guessed wrong every other time. */
void gnnflow_count_codes(int64_t rows, int64_t width, const float *matrix, int64_t columns, const int64_t *positions,
                         int32_t *counts) {
    uint16_t codes[TILE];
    for (int64_t first = 0; first < rows; first += TILE) {
        int64_t some = rows - first < TILE ? rows - first : TILE;
        for (int64_t column = 0; column < columns; column++) {
            const float *values = matrix + first * width + positions[column];
            int32_t *own = counts + (column << 16);
            for (int64_t row = 0; row < some; row++) {
                float value = values[row * width] + 0.0f; /* -0.0 and 0.0 are one number */
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                codes[row] = (uint16_t)((bits ^ (-(bits >> 31) | (uint32_t)1 << 31)) >> 16);
            }
            for (int64_t row = 0; row < some; row++) own[codes[row]]++;
        }
    }
}
