/* The CRC-32 of zlib, sixteen bytes at a time where the processor multiplies without carry. */
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { STEP = 64, WORD = 16 };

static inline __attribute__((target("pclmul,sse4.1"))) __m128i folded(__m128i sum, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(sum, by, 0x00), high = _mm_clmulepi64_si128(sum, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009: constants of the
   reflected polynomial. count: a multiple of 16, at least 64. */
static __attribute__((target("pclmul,sse4.1"))) uint32_t fold(int64_t count, const uint8_t *content, uint32_t crc) {
    const __m128i by_step = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_word = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0),
                  by_half = _mm_set_epi64x(0, 0x0163cd6124), poly = _mm_set_epi64x(0x01f7011641, 0x01db710641),
                  lower = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i *words = (const __m128i *)content, *end = words + count / WORD;
    __m128i sums[STEP / WORD];
    for (int i = 0; i < STEP / WORD; i++) sums[i] = _mm_loadu_si128(words++);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)crc));
    for (; end - words >= STEP / WORD; words += STEP / WORD)
        for (int i = 0; i < STEP / WORD; i++) sums[i] = folded(sums[i], by_step, _mm_loadu_si128(words + i));
    __m128i sum = sums[0];
    for (int i = 1; i < STEP / WORD; i++) sum = folded(sum, by_word, sums[i]);
    for (; words < end; words++) sum = folded(sum, by_word, _mm_loadu_si128(words));
    /* to 64 bits, then Barrett's reduction to 32 */
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_word, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, lower), by_half, 0x00));
    __m128i part = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, lower), poly, 0x10), lower);
    sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(part, poly, 0x00));
    return (uint32_t)_mm_extract_epi32(sum, 1);
}

/* Return how many of the first bytes were taken into crc, a checksum as zlib gives it: none on other processors. */
int64_t gnnflow_crc32(int64_t count, const uint8_t *content, uint32_t *crc) {
    int64_t taken = count - count % WORD;
    if (taken < STEP || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) return 0;
    *crc = ~fold(taken, content, ~*crc);
    return taken;
}
#else
int64_t gnnflow_crc32(int64_t count, const uint8_t *content, uint32_t *crc) {
    return 0;
}
#endif
