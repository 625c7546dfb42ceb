/* Work on the columns of a table: orders, places of ids, distributions. One thread each: tasks are the parallelism. */
#include <stdint.h>
#include <string.h>

enum { MOST_BITS = 11, MOST_PASSES = 6, WORD_BITS = 64, AHEAD = 32, TILE = 512 };

/* The rows 0 .. count - 1 in ascending order of their values, equal ones in their given order: a radix sort from the
   lowest digit of words that hold a row and the digits of its value that are still to come.

   Where both need more than 64 bits, the lowest digits are read at the row: a word holds the others after them.

   values: from 0 to below 2^value_bits; row_bits: count <= 2^row_bits. order, spare [count]. ascending [count]: the values
   in that order; NULL where nobody asks. */
void gnnflow_order(int64_t count, const uint64_t *values, int64_t value_bits, int64_t row_bits, int64_t *order,
                   uint64_t *spare, uint64_t *ascending) {
    static _Thread_local int64_t begins[MOST_PASSES][1 << MOST_BITS];
    int passes = (int)((value_bits + MOST_BITS - 1) / MOST_BITS), bits = passes ? (int)((value_bits + passes - 1) / passes) : 0;
    int held = WORD_BITS - (int)row_bits, read = value_bits > held ? ((int)value_bits - held + bits - 1) / bits : 0;
    uint64_t *from = (uint64_t *)order, *to = spare, mask = ((uint64_t)1 << bits) - 1, rows = ((uint64_t)1 << row_bits) - 1;
    memset(begins, 0, sizeof begins);
    for (int64_t i = 0; i < count; i++)
        for (int pass = 0; pass < passes; pass++) begins[pass][values[i] >> (pass * bits) & mask]++;
    for (int pass = 0; pass < passes; pass++) {
        int64_t sum = 0, *begin = begins[pass];
        for (int64_t digit = 0; digit <= (int64_t)mask; digit++) {
            int64_t here = begin[digit];
            begin[digit] = sum;
            sum += here;
        }
        if (!pass || pass < read) {
            int last = pass + 1 >= read, drop = read * bits;
            for (int64_t i = 0; i < count; i++) {
                if (pass && i + AHEAD < count) __builtin_prefetch(&values[from[i + AHEAD]]);
                uint64_t row = pass ? from[i] : (uint64_t)i, value = values[row];
                uint64_t rest = last && drop < WORD_BITS ? value >> drop : 0;
                to[begin[value >> (pass * bits) & mask]++] = rest << row_bits | row;
            }
        } else {
            int shift = (int)row_bits + (pass - read) * bits;
            for (int64_t i = 0; i < count; i++) to[begin[from[i] >> shift & mask]++] = from[i];
        }
        uint64_t *other = from;
        from = to, to = other;
    }
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = passes ? from[i] : (uint64_t)i, row = word & rows;
        if (ascending) {
            if (read && i + AHEAD < count) __builtin_prefetch(&values[from[i + AHEAD] & rows]);
            ascending[i] = read || !passes ? values[row] : word >> row_bits;
        }
        order[i] = (int64_t)row;
    }
}

/* The rows of a column, those of one group together and in their given order.

   group [count]; begins [groups]: where each group's rows begin, moved to where they end. width: bytes of a row. One
   pass, which writes to every group at once: rows gathered group by group read each cache line once for each group. */
void gnnflow_group(int64_t count, int64_t width, const char *rows, const int32_t *group, int64_t *begins, char *grouped) {
    if (width == 8)
        for (int64_t i = 0; i < count; i++) memcpy(grouped + 8 * begins[group[i]]++, rows + 8 * i, 8);
    else if (width == 4)
        for (int64_t i = 0; i < count; i++) memcpy(grouped + 4 * begins[group[i]]++, rows + 4 * i, 4);
    else
        for (int64_t i = 0; i < count; i++) memcpy(grouped + width * begins[group[i]]++, rows + width * i, (size_t)width);
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
