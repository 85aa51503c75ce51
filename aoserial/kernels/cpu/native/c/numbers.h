/* Products with codes that are decoded in registers and multiplied in float32. */

#ifndef AOSERIAL_NUMBERS_H
#define AOSERIAL_NUMBERS_H

#include "decoders.h"
#include "threads.h"
#include "weight.h"

/* How a vector of words is decoded. */
struct decoding {
    decoder decode;
    int bits;      /* of a code */
    int by_halves; /* whether each half of a word is decoded by itself */
    float factor;  /* by which values are larger than what comes */
};

/* Of a vector's columns the one in a lane of the values that come i-th. */
INLINE int64_t column(int64_t lane, int64_t i, int64_t codes, const int by_halves) {
    return by_halves ? i % 2 * 2 * LANES + 2 * lane + i / 2 : lane * codes + i;
}

/* Writes x[count, columns] times the decoder's unit, in the order that `one_row` takes. */
INLINE void place(const struct weight *weight, const void *x, const int is_bfloat16, int64_t count,
                  const int by_halves, float *placed) {
    const int64_t columns = weight->columns, codes = 32 / weight->bits;
    for (int64_t first = 0; first < columns; first += codes * LANES)
        for (int64_t m = 0; m < count; m++)
            for (int64_t i = 0; i < codes; i++)
                for (int64_t lane = 0; lane < LANES; lane++) {
                    const int64_t at = m * columns + first + column(lane, i, codes, by_halves);
                    const float value =
                        is_bfloat16 ? widened(((const uint16_t *)x)[at]) : ((const float *)x)[at];
                    *placed++ = value * weight->unit;
                }
}

/* One row of the weight. x: by vectors of words, then by its rows, then by the place in a word. */
INLINE void one_row(const struct product *of, int64_t row, const struct decoding by,
                    const enum mode mode) {
    const struct weight *weight = &of->layer->weight;
    const floats *x = of->x;
    const int codes = 32 / by.bits; /* in a word */
    const int64_t lanes = weight->group / codes, groups = weight->columns / weight->group;
    const int64_t vectors = lanes >= LANES ? lanes / LANES : 1; /* that share their numbers */
    const int64_t numbers = lanes >= LANES ? 1 : LANES / lanes; /* that share a vector */
    const int64_t first = row / weight->block_rows * groups;
    const ints *words = (const ints *)(weight->codes + row * (weight->columns * by.bits / 8));
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
                w[i] = by.decode(*words, i * by.bits);
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
    for (int64_t m = 0; m < of->count; m++) put(of, m, row, added_up(sums[m]) * by.factor);
}

INLINE void by_words(struct product *of, const struct decoding by) {
    const struct weight *weight = &of->layer->weight;
    for (int64_t row, stop; take_rows(of, &row, &stop);)
        for (; row < stop; row++)
            if (weight->added)
                one_row(of, row, by, TAKEN_SCALED_AND_ADDED);
            else if (weight->taken)
                one_row(of, row, by, TAKEN_AND_SCALED);
            else
                one_row(of, row, by, SCALED);
}

FOR_EACH_CPU static void share_numbers(void *argument) {
    struct product *of = argument;
    switch (of->layer->weight.format) {
    case BYTES: by_words(of, (struct decoding){int8, 8, 0, 1}); break;
    case NIBBLES: by_words(of, (struct decoding){int4, 4, 0, 1}); break;
    case FLOAT8_E5M2: by_words(of, (struct decoding){e5m2, 8, 0, 1}); break;
    case FLOAT8_E4M3: by_words(of, (struct decoding){e4m3, 8, 0, 1}); break;
    case FLOAT6_E3M2: by_words(of, (struct decoding){e3m2, 8, 0, 1}); break;
    case FLOAT6_E2M3: by_words(of, (struct decoding){e2m3, 8, 0, 1}); break;
    case FLOAT4_E2M1: by_words(of, (struct decoding){e2m1, 4, 0, 1}); break;
    }
}

#if HAS_TARGETS
F16C static void share_halves(void *argument) {
    struct product *of = argument;
    if (of->layer->weight.format == FLOAT8_E5M2)
        by_words(of, (struct decoding){e5m2_by_half, 8, 1, 1});
    else
        by_words(of, (struct decoding){e4m3_by_half, 8, 1, 256});
}

/* Whether a weight is multiplied so: its groups are whole vectors. */
static int are_halves(const struct weight *weight) {
    const int is_float8 = weight->format == FLOAT8_E5M2 || weight->format == FLOAT8_E4M3;
    return is_float8 && weight->group % (4 * LANES) == 0 && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#else
static void (*const share_halves)(void *) = share_numbers;
static int are_halves(const struct weight *weight) { return (void)weight, 0; }
#endif

/* Rows of x, from `start` on. room: 4 bytes for each number of MOST_ROWS of them, or of all. */
static void multiply_numbers(const struct layer *layer, int64_t start, int64_t stop, void *room) {
    const struct weight *weight = &layer->weight;
    const int by_halves = are_halves(weight);
    const int64_t bytes = weight->columns * (layer->x_is_bfloat16 ? 2 : 4);
    for (int64_t some; start < stop; start += some) {
        some = least(stop - start, MOST_ROWS);
        const char *x = (const char *)layer->x + start * bytes;
        if (layer->x_is_bfloat16)
            place(weight, x, 1, some, by_halves, room);
        else
            place(weight, x, 0, some, by_halves, room);
        run(by_halves ? share_halves : share_numbers,
            &(struct product){layer, room, start, some, 0}, layer->threads);
    }
}

#endif
