/* What codes stand for, in float32: by shifts and masks of whole words, or by way of float16. */

#ifndef AOSERIAL_DECODERS_H
#define AOSERIAL_DECODERS_H

#include "weight.h"

INLINE ints shifted(ints words, const int left) {
    return left >= 0 ? words << left : words >> -left;
}

/* A decoder gives the values of the codes whose lowest bit is bit `at` of each word. */
typedef floats (*decoder)(ints words, int at);

/* Floats without infinities and NaN: bits of float32 with the same exponent and mantissa. Where the
 * exponent's field is 0 the mantissa's implied one is put in and taken away again: no subnormal
 * number is ever an operand, as a CPU may be set to take those for zeros. */
INLINE floats small(ints words, const int at, const int exponent, const int mantissa) {
    const int width = exponent + mantissa, low = 23 - mantissa;
    const int32_t bias = (128 - (1 << (exponent - 1))) << 23, field = ((1 << width) - 1) << low;
    ints magnitude = shifted(words, low - at) & field;
    ints implied = (magnitude < (1 << 23)) & (bias + (1 << 23));
    floats value = (floats)((magnitude + bias) | implied) - (floats)implied;
    return (floats)((ints)value | (shifted(words, 31 - at - width) & INT32_MIN));
}

INLINE floats e5m2(ints words, int at) { return small(words, at, 5, 2); }
INLINE floats e4m3(ints words, int at) { return small(words, at, 4, 3); }
INLINE floats e3m2(ints words, int at) { return small(words, at, 3, 2); }
INLINE floats e2m3(ints words, int at) { return small(words, at, 2, 3); }
INLINE floats e2m1(ints words, int at) { return small(words, at, 2, 1); }

/* In units of 2^-24: the byte stays where an int32 has its highest. */
INLINE floats int8(ints words, int at) {
    return __builtin_convertvector((words << (24 - at)) & (int32_t)0xff000000, floats);
}

/* A nibble less 8, in units of 2^-28: flipping its highest bit makes it a signed one. */
INLINE floats int4(ints words, int at) {
    ints top = (words ^ (int32_t)0x88888888) << (28 - at);
    return __builtin_convertvector(top & (int32_t)0xf0000000, floats);
}

#if HAS_TARGETS
#include <immintrin.h>

#define F16C __attribute__((target("avx2,fma,f16c")))

/* A float16 with nothing in its lower byte has a float8 in the upper one, if its exponent has five
 * bits. Where it has four a 0 is put before them, and what comes is 2^-8 of the value. Subnormal
 * numbers are converted whatever the CPU is set to.
 *
 * Codes do change their lanes: those of the even columns are the first two vectors, those of the odd
 * ones the others; see `column` of numbers.h. */
F16C INLINE floats by_half(ints words, const int at, const int is_e4m3) {
    __m256i halves = (__m256i)words;
    if (at < 16) halves = _mm256_slli_epi16(halves, 8);
    if (is_e4m3) halves = _mm256_srai_epi16(halves, 1);
    halves = _mm256_and_si256(halves, _mm256_set1_epi16((int16_t)(is_e4m3 ? 0xbf80 : 0xff00)));
    return (floats)_mm256_cvtph_ps(at / 8 % 2 ? _mm256_extracti128_si256(halves, 1)
                                              : _mm256_castsi256_si128(halves));
}

F16C INLINE floats e5m2_by_half(ints words, int at) { return by_half(words, at, 0); }
F16C INLINE floats e4m3_by_half(ints words, int at) { return by_half(words, at, 1); }
#endif

#endif
