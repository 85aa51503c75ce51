/* Products with codes that are decoded in registers and multiplied in float32.
 *
 * Decoding is shifts and masks of whole words, and no code changes its lane.
 */

#ifndef AOSERIAL_NUMBERS_H
#define AOSERIAL_NUMBERS_H

#include "threads.h"
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

/* Writes x[count, columns] times the decoder's unit, in the order that `one_row` takes. */
INLINE void place(const struct weight *weight, const void *x, const int is_bfloat16, int64_t count,
                  float *placed) {
    const int64_t columns = weight->columns, codes = 32 / weight->bits;
    for (int64_t first = 0; first < columns; first += codes * LANES)
        for (int64_t m = 0; m < count; m++)
            for (int64_t i = 0; i < codes; i++)
                for (int64_t lane = 0; lane < LANES; lane++) {
                    const int64_t at = m * columns + first + lane * codes + i;
                    const float value =
                        is_bfloat16 ? widened(((const uint16_t *)x)[at]) : ((const float *)x)[at];
                    *placed++ = value * weight->unit;
                }
}

/* One row of the weight. x: by vectors of words, then by its rows, then by the place in a word. */
INLINE void one_row(const struct product *of, int64_t row, decoder decode, const int bits,
                    const enum mode mode) {
    const struct weight *weight = &of->layer->weight;
    const floats *x = of->x;
    const int codes = 32 / bits; /* in a word */
    const int64_t lanes = weight->group / codes, groups = weight->columns / weight->group;
    const int64_t vectors = lanes >= LANES ? lanes / LANES : 1; /* that share their numbers */
    const int64_t numbers = lanes >= LANES ? 1 : LANES / lanes; /* that share a vector */
    const int64_t first = row / weight->block_rows * groups;
    const ints *words = (const ints *)(weight->codes + row * (weight->columns * bits / 8));
    floats sums[MOST_ROWS] = {};

    for (int64_t group = first; group < first + groups; group += numbers) {
        const floats scale = spread(weight->scale + group, lanes);
        const floats taken = mode >= TAKEN_AND_SCALED ? spread(weight->taken + group, lanes) : scale;
        const floats added =
            mode == TAKEN_SCALED_AND_ADDED ? spread(weight->added + group, lanes) : scale;
        for (const ints *end = words + vectors; words < end; words++) {
            floats w[8];
            fetch(words);
#pragma GCC unroll 8
            for (int i = 0; i < codes; i++) {
                w[i] = decode(*words, i * bits);
                if (mode >= TAKEN_AND_SCALED) w[i] -= taken;
                if (mode == TAKEN_SCALED_AND_ADDED) w[i] = w[i] * scale + added;
            }
#pragma GCC unroll 1
            for (int64_t m = 0; m < of->count; m++, x += codes) {
                floats even = w[0] * x[0], odd = w[1] * x[1];
#pragma GCC unroll 8
                for (int i = 2; i < codes; i += 2) {
                    even += w[i] * x[i];
                    odd += w[i + 1] * x[i + 1];
                }
                even += odd;
                sums[m] += mode == TAKEN_SCALED_AND_ADDED ? even : even * scale;
            }
        }
    }
#pragma GCC unroll 1
    for (int64_t m = 0; m < of->count; m++) put(of, m, row, added_up(sums[m]));
}

INLINE void by_words(struct product *of, decoder decode, const int bits) {
    const struct weight *weight = &of->layer->weight;
    for (int64_t row, stop; take_rows(of, &row, &stop);)
        for (; row < stop; row++)
            if (weight->added)
                one_row(of, row, decode, bits, TAKEN_SCALED_AND_ADDED);
            else if (weight->taken)
                one_row(of, row, decode, bits, TAKEN_AND_SCALED);
            else
                one_row(of, row, decode, bits, SCALED);
}

FOR_EACH_CPU static void share_numbers(void *argument) {
    struct product *of = argument;
    switch (of->layer->weight.format) {
    case BYTES: by_words(of, int8, 8); break;
    case NIBBLES: by_words(of, int4, 4); break;
    case FLOAT8_E5M2: by_words(of, e5m2, 8); break;
    case FLOAT8_E4M3: by_words(of, e4m3, 8); break;
    case FLOAT6_E3M2: by_words(of, e3m2, 8); break;
    case FLOAT6_E2M3: by_words(of, e2m3, 8); break;
    case FLOAT4_E2M1: by_words(of, e2m1, 4); break;
    }
}

/* Rows of x, from `start` on. room: 4 bytes for each number of MOST_ROWS of them, or of all. */
static void multiply_numbers(const struct layer *layer, int64_t start, int64_t stop, void *room) {
    const struct weight *weight = &layer->weight;
    const int64_t bytes = weight->columns * (layer->x_is_bfloat16 ? 2 : 4);
    for (int64_t some; start < stop; start += some) {
        some = stop - start < MOST_ROWS ? stop - start : MOST_ROWS;
        const char *x = (const char *)layer->x + start * bytes;
        if (layer->x_is_bfloat16)
            place(weight, x, 1, some, room);
        else
            place(weight, x, 0, some, room);
        run(share_numbers, (struct product){layer, room, start, some, 0});
    }
}

#endif
