#ifndef GNNFLOW_EXPONENTIAL_H
#define GNNFLOW_EXPONENTIAL_H

#include <stdint.h>
#include <string.h>

#include "csr.h"

/* exp(r) - 1 over [-ln 2 / 2, ln 2 / 2], to 2 units in the last place: a polynomial (Cephes, Moshier). */
INLINE float less_one_near_zero(float r) {
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}

/* exp(x) for x <= 0 to 2 units in the last place: 2^n times exp(r), r in [-ln 2 / 2, ln 2 / 2].
   Without branches, so that sixteen are computed at once, and with the same bits by every processor. */
INLINE float exponential(float x) {
    float clamped = x < -87.0f ? -87.0f : x;
    float n = clamped * 1.44269504f + 12582912.0f; /* adding 1.5 x 2^23 rounds to the nearest integer */
    int32_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= 12582912.0f;
    float r = clamped - n * 0.693359375f;
    r -= n * -2.12194440e-4f;
    float p = less_one_near_zero(r) + 1.0f;
    uint32_t power = ((uint32_t)bits + 127u) << 23; /* the low bits of n are the integer itself */
    float scale;
    memcpy(&scale, &power, sizeof scale);
    float result = x < -87.0f ? 0.0f : p * scale;
    return x != x ? x : result; /* what is not a number stays so */
}

/* exp(x) - 1 for x <= 0, relative to its own size also where that is small: there the polynomial is of exp(x) - 1 itself. */
INLINE float exponential_less_one(float x) {
    float p = less_one_near_zero(x);
    float e = exponential(x) - 1.0f;
    return x > -0.34657359f ? p : e;
}

#endif
