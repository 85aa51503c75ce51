/* Products of one row with nibbles in integers, which are exact, of many more at a time than floats.
 *
 * A row of activations is cut into blocks of one or two vectors of codes. Each block has a unit, a
 * power of two of which its numbers are 22 bits and a sign: three signed bytes, its limbs. Sums of
 * limbs times nibbles fit int16 for two vectors, and the three of a lane put together fit int32, so
 * they are rounded once. A number that is no multiple of the unit is a stray, and multiplied in
 * float32 by itself: of bfloat16 it is one that is 2^14 times smaller than the largest of its block.
 */

#ifndef AOSERIAL_NIBBLES_H
#define AOSERIAL_NIBBLES_H

#include "threads.h"
#include "weight.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2,fma")))

enum {
    LIMBS = 3,
    UNITS = 21,        /* the largest of a block is 2^21 units or more, and less than 2^22 */
    VECTOR = 64,       /* columns: the even ones are the low nibbles, the odd ones the high */
    HALF = 4,          /* vectors of floats, of the even columns or the odd */
    STRAY_COLUMNS = 128 /* for each of which, begun or whole, a row may have a stray */
};

/* What nibbles stand for: (byte - zero) / steps. */
struct nibble {
    uint8_t bytes[16];
    int zero, steps;
};

static const struct nibble INT4 = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 8, 1};
static const struct nibble E2M1 = {
    {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}, 12, 2};

/* Of a block, by lanes. */
struct block {
    __m256i sums[LIMBS]; /* of its limbs; times what bytes are to be less, where that is a constant */
    floats unit;         /* over the steps of nibbles */
    floats total;        /* of its numbers */
};

struct stray {
    int64_t column;
    float number;
};

/* A row of activations. */
struct cut_row {
    int64_t vectors; /* of a block */
    __m256i *limbs;  /* by vectors, then even columns and odd ones, then limbs */
    struct block *blocks;
    struct stray *strays, *end;
};

AVX2_INLINE ints put_together(const __m256i sums[LIMBS]) {
    const __m256i one = _mm256_set1_epi16(1), limb = _mm256_set1_epi16(256);
    const __m256i low = _mm256_madd_epi16(sums[0], one), middle = _mm256_madd_epi16(sums[1], one);
    const __m256i high = _mm256_madd_epi16(sums[2], limb);
    return (ints)_mm256_add_epi32(_mm256_slli_epi32(_mm256_add_epi32(high, middle), 8), low);
}

/* Numbers of a vector of codes: of its even columns, then of the odd ones. */
AVX2_INLINE void read_vector(const void *x, int64_t at, const int is_bfloat16, floats *numbers) {
    float *even = (float *)numbers, *odd = (float *)(numbers + HALF);
    const float *wide = (const float *)x + at;
    const ints *pairs = (const ints *)((const uint16_t *)x + at);
    for (int64_t i = 0; i < VECTOR / 2 && !is_bfloat16; i++) {
        even[i] = wide[2 * i];
        odd[i] = wide[2 * i + 1];
    }
    for (int64_t i = 0; i < HALF && is_bfloat16; i++) {
        numbers[i] = (floats)(pairs[i] << 16);
        numbers[HALF + i] = (floats)(pairs[i] & (int32_t)0xffff0000);
    }
}

/* The limbs of the even columns of a vector, or of the odd ones.
 *
 * The bytes of a number and 0x808080 are 128 more than its limbs: what a limb lacks that is below 0
 * has been taken from the next. */
AVX2_INLINE void write_limbs(const ints multiples[HALF], __m256i limbs[LIMBS]) {
    const __m256i by_byte = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i bytes[HALF];
    for (int i = 0; i < HALF; i++)
        bytes[i] = _mm256_shuffle_epi8((__m256i)(multiples[i] + 0x808080), by_byte);
    const __m256i front = _mm256_unpacklo_epi32(bytes[0], bytes[1]);
    const __m256i back = _mm256_unpacklo_epi32(bytes[2], bytes[3]);
    const __m256i highest = _mm256_unpacklo_epi64(_mm256_unpackhi_epi32(bytes[0], bytes[1]),
                                                  _mm256_unpackhi_epi32(bytes[2], bytes[3]));
    const __m256i found[LIMBS] = {_mm256_unpacklo_epi64(front, back),
                                  _mm256_unpackhi_epi64(front, back), highest};
    for (int limb = 0; limb < LIMBS; limb++)
        limbs[limb] = _mm256_xor_si256(_mm256_permutevar8x32_epi32(found[limb], in_order),
                                       _mm256_set1_epi8(INT8_MIN));
}

/* Puts the numbers that are no multiples of the unit aside. Whether there was room. */
AVX2 static int take_strays(const floats *numbers, const floats *unit, ints *multiples,
                            int64_t vectors, int64_t column, struct cut_row *row,
                            const struct stray *room) {
    for (int64_t i = 0; i < vectors * 2 * HALF; i++)
        for (int64_t lane = 0; lane < LANES; lane++) {
            if ((float)multiples[i][lane] * (*unit)[lane] == numbers[i][lane]) continue;
            if (row->end == room) return 0;
            const int64_t first = column + i / (2 * HALF) * VECTOR, odd = i / HALF % 2;
            const int64_t at = first + 2 * (i % HALF * LANES + lane) + odd;
            *row->end++ = (struct stray){at, numbers[i][lane]};
            multiples[i][lane] = 0;
        }
    return 1;
}

/* Cuts a block's numbers into limbs. 0 where that cannot be. */
AVX2_INLINE int cut_block(const floats *numbers, const int64_t vectors, const struct nibble *code,
                          const int is_constant, __m256i *limbs, struct block *block,
                          int64_t column, struct cut_row *row, const struct stray *room) {
    /* Of the exponents of float32. Codes are not scaled before they are added up, so that sums of
     * larger numbers would overflow sooner than elsewhere. */
    enum { LEAST = 40, MOST = 230, BIAS = 127 };
    const int64_t count = vectors * 2 * HALF;
    ints multiples[4 * HALF], largest = {}, are_strays = {};
    for (int64_t i = 0; i < count; i++) {
        const __m256i magnitudes = (__m256i)((ints)numbers[i] & INT32_MAX);
        largest = (ints)_mm256_max_epi32((__m256i)largest, magnitudes);
    }
    int32_t most = 0;
    for (int lane = 0; lane < LANES; lane++) most = largest[lane] > most ? largest[lane] : most;
    const int32_t exponent = most ? most >> 23 : LEAST;
    if (exponent > MOST || exponent < LEAST) return 0;
    const floats unit = (floats)((ints){} + ((exponent - UNITS) << 23));
    const floats per_unit = (floats)((ints){} + ((2 * BIAS + UNITS - exponent) << 23));
    for (int64_t i = 0; i < count; i++) {
        multiples[i] = (ints)_mm256_cvttps_epi32((__m256)(numbers[i] * per_unit));
        are_strays |= __builtin_convertvector(multiples[i], floats) * unit != numbers[i];
    }
    if (!_mm256_testz_si256((__m256i)are_strays, (__m256i)are_strays) &&
        !take_strays(numbers, &unit, multiples, vectors, column, row, room))
        return 0;
    for (int64_t i = 0; i < vectors * 2; i++)
        write_limbs(multiples + i * HALF, limbs + i * LIMBS);

    const __m256i less = _mm256_set1_epi16((int16_t)-code->zero), one = _mm256_set1_epi8(1);
    __m256i sums[LIMBS];
    for (int limb = 0; limb < LIMBS; limb++) {
        sums[limb] = _mm256_setzero_si256();
        for (int64_t i = 0; i < vectors * 2; i++)
            sums[limb] = _mm256_add_epi16(sums[limb],
                                          _mm256_maddubs_epi16(one, limbs[i * LIMBS + limb]));
        block->sums[limb] = is_constant ? _mm256_mullo_epi16(sums[limb], less) : sums[limb];
    }
    block->unit = unit / (float)code->steps;
    block->total = __builtin_convertvector(put_together(sums), floats) * unit;
    return 1;
}

/* Whether x[columns] could be cut into limbs. */
AVX2 static int cut(struct cut_row *row, const struct weight *weight, const void *x,
                    const int is_bfloat16) {
    const struct nibble *code = weight->format == NIBBLES ? &INT4 : &E2M1;
    const struct stray *room = row->strays + weight->columns / STRAY_COLUMNS + 1;
    const int64_t vectors = row->vectors, columns = vectors * VECTOR;
    for (int64_t i = 0, column = 0; column < weight->columns; i++, column += columns) {
        floats numbers[4 * HALF];
        for (int64_t v = 0; v < vectors; v++)
            read_vector(x, column + v * VECTOR, is_bfloat16, numbers + v * 2 * HALF);
        __m256i *limbs = row->limbs + i * vectors * 2 * LIMBS;
        if (!cut_block(numbers, vectors, code, !weight->taken, limbs, row->blocks + i, column, row,
                       room))
            return 0;
    }
    return 1;
}

/* What strays are to add to a product with a row of the weight. */
AVX2_INLINE float of_strays(const struct cut_row *x, const struct weight *weight, int64_t row,
                            const struct nibble *code) {
    const int64_t numbers = row / weight->block_rows * (weight->columns / weight->group);
    float sum = 0;
    for (const struct stray *stray = x->strays; stray < x->end; stray++) {
        const int64_t at = stray->column, group = numbers + at / weight->group;
        const uint8_t byte = weight->codes[(row * weight->columns + at) / 2];
        const int whole = code->bytes[at % 2 ? byte >> 4 : byte & 15] - code->zero;
        float w = (float)whole / (float)code->steps;
        if (weight->taken) w -= weight->taken[group] * weight->unit;
        w *= weight->scale[group];
        if (weight->added) w += weight->added[group] * weight->unit;
        sum += w * stray->number;
    }
    return sum;
}

AVX2_INLINE float by_one_row(const struct cut_row *x, const struct weight *weight, int64_t row,
                             const int64_t vectors, const struct nibble *code,
                             const enum mode mode) {
    const int64_t lanes = weight->group / 8, groups = weight->columns / weight->group;
    const int64_t blocks = lanes >= LANES ? lanes / (LANES * vectors) : 1; /* of a group */
    const int64_t numbers = lanes >= LANES ? 1 : LANES / lanes; /* that share a vector */
    const int64_t first = row / weight->block_rows * groups;
    const __m256i *codes = (const __m256i *)(weight->codes + row * (weight->columns / 2));
    const __m256i *limbs = x->limbs, low = _mm256_set1_epi8(15);
    const __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)code->bytes));
    const struct block *block = x->blocks;
    floats sum = {};

    for (int64_t group = first; group < first + groups; group += numbers) {
        const floats scale = spread(weight->scale + group, lanes);
        floats added = {};
        __m256i less = low;
        if (mode >= TAKEN_AND_SCALED) {
            const floats taken = spread(weight->taken + group, lanes) * weight->unit;
            const ints whole = -(code->zero + __builtin_convertvector(taken, ints));
            less = (__m256i)((whole << 16) | (whole & 0xffff));
        }
        if (mode == TAKEN_SCALED_AND_ADDED)
            added = spread(weight->added + group, lanes) * weight->unit;
        for (const struct block *end = block + blocks; block < end; block++) {
            __m256i sums[LIMBS];
            for (int limb = 0; limb < LIMBS; limb++) {
                sums[limb] = block->sums[limb];
                if (mode >= TAKEN_AND_SCALED) sums[limb] = _mm256_mullo_epi16(sums[limb], less);
            }
#pragma GCC unroll 2
            for (int i = 0; i < vectors; i++, codes++, limbs += 2 * LIMBS) {
                fetch(codes);
                const __m256i both = _mm256_loadu_si256(codes);
                __m256i even = _mm256_and_si256(both, low);
                __m256i odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
                if (code != &INT4) {
                    even = _mm256_shuffle_epi8(bytes, even);
                    odd = _mm256_shuffle_epi8(bytes, odd);
                }
#pragma GCC unroll 3
                for (int limb = 0; limb < LIMBS; limb++) {
                    const __m256i evens = _mm256_maddubs_epi16(even, limbs[limb]);
                    const __m256i odds = _mm256_maddubs_epi16(odd, limbs[LIMBS + limb]);
                    sums[limb] = _mm256_add_epi16(_mm256_add_epi16(sums[limb], evens), odds);
                }
            }
            sum += __builtin_convertvector(put_together(sums), floats) * block->unit * scale;
            if (mode == TAKEN_SCALED_AND_ADDED) sum += block->total * added;
        }
    }
    return of_strays(x, weight, row, code) + added_up(sum);
}

AVX2_INLINE void by_rows(struct product *of, const int64_t vectors, const struct nibble *code,
                         const enum mode mode) {
    for (int64_t row, stop; take_rows(of, &row, &stop);)
        for (; row < stop; row++)
            put(of, 0, row, by_one_row(of->x, &of->layer->weight, row, vectors, code, mode));
}

AVX2_INLINE void by_mode(struct product *of, const int64_t vectors) {
    const struct weight *weight = &of->layer->weight;
    if (weight->format != NIBBLES)
        by_rows(of, vectors, &E2M1, SCALED);
    else if (weight->added)
        by_rows(of, vectors, &INT4, TAKEN_SCALED_AND_ADDED);
    else if (weight->taken)
        by_rows(of, vectors, &INT4, TAKEN_AND_SCALED);
    else
        by_rows(of, vectors, &INT4, SCALED);
}

AVX2 static void share_nibbles(void *argument) {
    struct product *of = argument;
    if (((const struct cut_row *)of->x)->vectors == 2)
        by_mode(of, 2);
    else
        by_mode(of, 1);
}

/* Whether row m of x could be multiplied. room: 6 bytes for each number, aligned as vectors are. */
static int multiply_nibbles(const struct layer *layer, int64_t m, void *room) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    const struct weight *weight = &layer->weight;
    const void *x = (const char *)layer->x + m * weight->columns * (layer->x_is_bfloat16 ? 2 : 4);
    struct cut_row row = {.vectors = weight->group % (2 * VECTOR) == 0 ? 2 : 1, .blocks = room};
    row.limbs = (__m256i *)(row.blocks + weight->columns / (row.vectors * VECTOR));
    row.strays = row.end = (struct stray *)(row.limbs + weight->columns / VECTOR * 2 * LIMBS);
    if (!cut(&row, weight, x, layer->x_is_bfloat16)) return 0;
    run(share_nibbles, (struct product){layer, &row, m, 1, 0});
    return 1;
}

#else
static int multiply_nibbles(const struct layer *layer, int64_t m, void *room) {
    (void)layer, (void)m, (void)room;
    return 0;
}
#endif

#endif
