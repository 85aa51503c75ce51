/* Products of few rows of activations with the rows of a quantized weight: of numbers with codes
 * that are decoded, in float32, and of int8 codes with int8 codes, in int32.
 *
 * Where codes are decoded, eight lanes hold eight 32-bit words of a row, and in each lane lie the
 * codes of neighbouring columns: of four where a code is a byte, of eight where it is a nibble. So
 * decoding is shifts and masks of whole words, and no code changes its lane. Words are as they are
 * in memory, little-endian.
 *
 * Vectors are GCC's and Clang's; each is one register of AVX2, or two of SSE2 or NEON.
 */

#include <stdint.h>

enum { LANES = 8, MOST_ROWS = 16 };

typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

/* As library.py declares it. Scales are float32 [rows / block_rows, columns / group]. */
struct weight {
    const uint8_t *codes;
    const float *scale;
    const float *taken; /* from each code, in the decoder's unit; or NULL */
    const float *added; /* to each scaled code, in the same units; or NULL, as `taken` then is not */
    int64_t rows, columns, group, block_rows;
    int32_t format, bits; /* of a code */
    float unit;           /* of what the decoder gives */
};

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

/* A number for each lane: of one group, or of two or four that share the vector. */
INLINE floats spread(const float *numbers, const int64_t lanes) {
    const float *n = numbers;
    if (lanes >= LANES) return (floats){} + n[0];
    if (lanes == 4) return (floats){n[0], n[0], n[0], n[0], n[1], n[1], n[1], n[1]};
    return (floats){n[0], n[0], n[1], n[1], n[2], n[2], n[3], n[3]};
}

enum mode { SCALED, TAKEN_AND_SCALED, TAKEN_SCALED_AND_ADDED };

/* One row of the weight. x: by vectors of words, then by its rows, then by the place in a word. */
INLINE void one_row(const struct weight *weight, int64_t row, const floats *x, int64_t count,
                    float *y, decoder decode, const int bits, const enum mode mode) {
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
#pragma GCC unroll 8
            for (int i = 0; i < codes; i++) {
                w[i] = decode(*words, i * bits);
                if (mode >= TAKEN_AND_SCALED) w[i] -= taken;
                if (mode == TAKEN_SCALED_AND_ADDED) w[i] = w[i] * scale + added;
            }
#pragma GCC unroll 1
            for (int64_t m = 0; m < count; m++, x += codes) {
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
    for (int64_t m = 0; m < count; m++) {
        float sum = 0;
        for (int lane = 0; lane < LANES; lane++) sum += sums[m][lane];
        y[m * weight->rows + row] = sum;
    }
}

INLINE void some_rows(const struct weight *weight, int64_t start, int64_t stop, const float *x,
                      int64_t count, float *y, decoder decode, const int bits) {
    const floats *v = (const floats *)x;
    for (int64_t row = start; row < stop; row++)
        if (weight->added)
            one_row(weight, row, v, count, y, decode, bits, TAKEN_SCALED_AND_ADDED);
        else if (weight->taken)
            one_row(weight, row, v, count, y, decode, bits, TAKEN_AND_SCALED);
        else
            one_row(weight, row, v, count, y, decode, bits, SCALED);
}

/* What threads share: the rows of a product, some at a time, by who comes first. */
struct product {
    const struct weight *weight;
    const void *x;
    float *y;
    int64_t count;
    int64_t next; /* the first row that nobody has taken */
};

static int take_rows(struct product *of, int64_t *start, int64_t *stop) {
    enum { STEP = 32 };
    *start = __atomic_fetch_add(&of->next, STEP, __ATOMIC_RELAXED);
    *stop = *start + STEP < of->weight->rows ? *start + STEP : of->weight->rows;
    return *start < *stop;
}

FOR_EACH_CPU static void share_numbers(void *argument) {
    struct product *of = argument;
    const struct weight *weight = of->weight;
    for (int64_t start, stop; take_rows(of, &start, &stop);) {
        switch (weight->format) { /* in the order of library.py's FORMATS */
        case 0: some_rows(weight, start, stop, of->x, of->count, of->y, int8, 8); break;
        case 1: some_rows(weight, start, stop, of->x, of->count, of->y, int4, 4); break;
        case 2: some_rows(weight, start, stop, of->x, of->count, of->y, e5m2, 8); break;
        case 3: some_rows(weight, start, stop, of->x, of->count, of->y, e4m3, 8); break;
        case 4: some_rows(weight, start, stop, of->x, of->count, of->y, e3m2, 8); break;
        case 5: some_rows(weight, start, stop, of->x, of->count, of->y, e2m3, 8); break;
        case 6: some_rows(weight, start, stop, of->x, of->count, of->y, e2m1, 4); break;
        }
    }
}

/* The compiler makes vectors of the innermost loop, if it may take its time. */
FOR_EACH_CPU __attribute__((optimize("O3"))) static void share_codes(void *argument) {
    struct product *of = argument;
    const int64_t rows = of->weight->rows, columns = of->weight->columns;
    for (int64_t start, stop; take_rows(of, &start, &stop);)
        for (int64_t row = start; row < stop; row++)
            for (int64_t m = 0; m < of->count; m++) {
                const int8_t *codes = (const int8_t *)of->weight->codes + row * columns;
                const int16_t *x = (const int16_t *)of->x + m * columns;
                int32_t sum = 0;
                for (int64_t k = 0; k < columns; k++) sum += (int16_t)codes[k] * x[k];
                of->y[m * rows + row] = (float)sum;
            }
}

/* OpenMP's threads are those of torch's own operators: they wait for work by spinning, so others
 * would get their cores late. NULL where the process has loaded no such library. */
#ifdef __linux__
__attribute__((weak)) void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
#else
static void (*const GOMP_parallel)(void (*)(void *), void *, unsigned, unsigned) = 0;
#endif

static void run(void (*work)(void *), struct product of, int32_t threads) {
    if (threads > 1 && GOMP_parallel)
        GOMP_parallel(work, &of, (unsigned)threads, 0);
    else
        work(&of);
}

static float widened(uint16_t bfloat16) {
    union { uint32_t bits; float value; } wide = {(uint32_t)bfloat16 << 16};
    return wide.value;
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

/* y[count, rows] = x[count, columns] times the weight.
 *
 * x: bfloat16 or float32.
 * placed: room for as many rows of x as there are, or 16, in float32.
 * threads: of OpenMP, where the process has it.
 */
void aoserial_multiply(const struct weight *weight, const void *x, int32_t is_bfloat16,
                       int64_t count, float *placed, float *y, int32_t threads) {
    const int64_t bytes = weight->columns * (is_bfloat16 ? 2 : 4);
    for (int64_t start = 0; start < count; start += MOST_ROWS) {
        const int64_t some = count - start < MOST_ROWS ? count - start : MOST_ROWS;
        const char *first = (const char *)x + start * bytes;
        if (is_bfloat16)
            place(weight, first, 1, some, placed);
        else
            place(weight, first, 0, some, placed);
        struct product of = {weight, placed, y + start * weight->rows, some, 0};
        run(share_numbers, of, threads);
    }
}

/* The same of int8 codes, by what stands for the activation: x[count, columns]. Of magnitudes up to
 * 255, 65536 columns at most: sums in int32 are exact, and rounded once. */
void aoserial_multiply_codes(const struct weight *weight, const int16_t *x, int64_t count, float *y,
                             int32_t threads) {
    struct product of = {weight, x, y, count, 0};
    run(share_codes, of, threads);
}
