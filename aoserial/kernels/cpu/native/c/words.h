/* A row of activations in integers, for products that are exact.
 *
 * A row is cut into blocks of one or two vectors of nibbles. A lane of a block has a unit, a power of
 * two of which its numbers are 15 bits and a sign: a word. A number that is no multiple of the unit
 * is a stray, kept as it is: of bfloat16 it may be one that is 2^7 times smaller than the largest of
 * its lane. Where too many are, as beside outliers or in wider dtypes, a number is two words: 30 bits
 * and a sign.
 */

#ifndef AOSERIAL_WORDS_H
#define AOSERIAL_WORDS_H

#include "weight.h"

#if HAS_TARGETS
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2,fma")))

enum {
    LANE = 8,              /* numbers of a lane of a vector */
    VECTOR = LANES * LANE, /* numbers of a vector */
    MOST_VECTORS = 2,      /* of a block */
    WORD_BITS = 15,        /* of the lower word of two, which is not negative */
    MOST_WORDS = 2         /* of a number */
};

/* How exactly a row is cut. */
struct cut {
    int words;         /* of a number */
    int units;         /* the largest of a lane is 2^units to twice that; less where it is tiny */
    int stray_columns; /* for each of which a row may have a stray, and one more */
};

static const struct cut CUTS[] = {{1, WORD_BITS - 1, 32}, {2, 2 * WORD_BITS - 1, 16}};

/* Of a block, by lanes. */
struct block {
    floats unit;
    floats sums[MOST_WORDS]; /* of words, in units */
};

struct stray {
    int64_t byte;  /* of a row of nibbles */
    int32_t shift; /* of the nibble in it */
    int32_t group; /* of the row */
    float number;
};

struct row {
    const struct weight *weight;
    float values[16]; /* of the weight's nibbles, by which strays are multiplied */
    int64_t vectors;  /* of a block */
    int words_each;   /* of a number */
    struct block *blocks;
    __m256i *words; /* by blocks; then the first numbers of each half of a lane, and so on; then the
                       words of a number, of which the first is the lower; then by vectors */
    struct stray *strays, *end; /* and after an odd one another, which is 0 */
    const struct stray *room;   /* where they have to end */
};

/* What words are together, in units. It is rounded once. */
AVX2_INLINE floats together(const floats sums[MOST_WORDS], const int words) {
    return words == 1 ? sums[0] : sums[0] + sums[1] * (float)(1 << WORD_BITS);
}

AVX2_INLINE int any(const ints lanes) { return !_mm256_testz_si256((__m256i)lanes, (__m256i)lanes); }

/* The numbers of a vector: the first ones of its lanes, the second ones, and so on. */
AVX2_INLINE void read_vector(const void *x, int64_t at, const int is_bfloat16, floats numbers[LANE]) {
    if (!is_bfloat16) {
        const float *wide = (const float *)x + at;
        for (int i = 0; i < VECTOR; i++) ((float *)(numbers + i % LANE))[i / LANE] = wide[i];
        return;
    }
    enum { PAIRS = LANE / 2 };
    const __m128i *lanes = (const __m128i *)((const uint16_t *)x + at);
    __m256i two[PAIRS]; /* lanes */
    for (int i = 0; i < PAIRS; i++)
        two[i] = _mm256_setr_m128i(_mm_loadu_si128(lanes + i), _mm_loadu_si128(lanes + PAIRS + i));
    const __m256i front = _mm256_unpacklo_epi32(two[0], two[1]);
    const __m256i front_end = _mm256_unpackhi_epi32(two[0], two[1]);
    const __m256i back = _mm256_unpacklo_epi32(two[2], two[3]);
    const __m256i back_end = _mm256_unpackhi_epi32(two[2], two[3]);
    const __m256i pairs[PAIRS] = {
        _mm256_unpacklo_epi64(front, back), _mm256_unpackhi_epi64(front, back),
        _mm256_unpacklo_epi64(front_end, back_end), _mm256_unpackhi_epi64(front_end, back_end)};
    for (int i = 0; i < PAIRS; i++) {
        numbers[2 * i] = (floats)((ints)pairs[i] << 16);
        numbers[2 * i + 1] = (floats)((ints)pairs[i] & (int32_t)0xffff0000);
    }
}

/* Puts the numbers of a block aside that are no multiples of its unit. Whether there was room. */
AVX2 static int take_strays(struct row *row, int64_t column, const floats *numbers,
                            const floats *unit, ints *multiples) {
    for (int64_t i = 0; i < row->vectors * LANE; i++) {
        const ints are_strays = __builtin_convertvector(multiples[i], floats) * *unit != numbers[i];
        unsigned left = (unsigned)_mm256_movemask_ps((__m256)are_strays);
        multiples[i] &= ~are_strays;
        for (; left; left &= left - 1) {
            if (row->end == row->room) return 0;
            const int lane = __builtin_ctz(left);
            const int64_t at = column + i / LANE * VECTOR + lane * LANE + i % LANE;
            *row->end++ = (struct stray){at / 2, (int32_t)(at % 2 * 4),
                                         (int32_t)(at / row->weight->group), numbers[i][lane]};
        }
    }
    return 1;
}

AVX2_INLINE ints word_of(const ints multiples, const int word, const int words) {
    if (word) return multiples >> WORD_BITS;
    if (words == 1) return multiples;
    return multiples & ((1 << WORD_BITS) - 1);
}

/* Cuts the numbers of a block. 0 where that cannot be. */
AVX2_INLINE int cut_block(const struct cut cut, struct row *row, int64_t block,
                          const floats *numbers) {
    /* Of the exponents of float32. Codes are not scaled before they are added up, so that sums of
     * larger numbers would overflow sooner than elsewhere. */
    enum { LEAST = 40, MOST = 230, BIAS = 127, EXPONENT = 23 };
    const int64_t vectors = row->vectors, column = block * vectors * VECTOR;
    ints multiples[MOST_VECTORS * LANE], largest = {}, are_strays = {};
    for (int64_t i = 0; i < vectors * LANE; i++) {
        const __m256i magnitudes = (__m256i)((ints)numbers[i] & INT32_MAX);
        largest = (ints)_mm256_max_epi32((__m256i)largest, magnitudes);
    }
    const ints found = largest >> EXPONENT;
    if (any(found > MOST)) return 0;
    const ints exponent = (ints)_mm256_max_epi32((__m256i)found, _mm256_set1_epi32(LEAST));
    const floats unit = (floats)((exponent - cut.units) << EXPONENT);
    const floats per_unit = (floats)((2 * BIAS + cut.units - exponent) << EXPONENT);
    for (int64_t i = 0; i < vectors * LANE; i++) {
        multiples[i] = (ints)_mm256_cvttps_epi32((__m256)(numbers[i] * per_unit));
        are_strays |= __builtin_convertvector(multiples[i], floats) * unit != numbers[i];
    }
    if (any(are_strays) && !take_strays(row, column, numbers, &unit, multiples)) return 0;

    row->blocks[block].unit = unit;
    __m256i *words = row->words + column / VECTOR * LANE / 2 * cut.words;
    for (int word = 0; word < cut.words; word++) {
        ints sum = {};
        for (int64_t i = 0; i < vectors * LANE / 2; i++) {
            const int64_t vector = i % vectors, number = i / vectors;
            const ints *first = multiples + vector * LANE + number;
            const ints low = word_of(first[0], word, cut.words);
            const ints high = word_of(first[LANE / 2], word, cut.words);
            words[(number * cut.words + word) * vectors + vector] =
                (__m256i)((low & 0xffff) | high << 16);
            sum += low + high;
        }
        row->blocks[block].sums[word] = __builtin_convertvector(sum, floats);
    }
    return 1;
}

/* Whether a row could be cut so. */
AVX2_INLINE int cut_so(const struct cut cut, struct row *row, const void *x, const int is_bfloat16,
                       void *room) {
    const int64_t columns = row->weight->columns, blocks = columns / (row->vectors * VECTOR);
    row->words_each = cut.words;
    row->blocks = room;
    row->words = (__m256i *)(row->blocks + blocks);
    row->strays = row->end = (struct stray *)(row->words + columns / VECTOR * LANE / 2 * cut.words);
    row->room = row->strays + columns / cut.stray_columns + 1;
    for (int64_t block = 0; block < blocks; block++) {
        floats numbers[MOST_VECTORS * LANE];
        for (int64_t i = 0; i < row->vectors; i++)
            read_vector(x, (block * row->vectors + i) * VECTOR, is_bfloat16, numbers + i * LANE);
        if (!cut_block(cut, row, block, numbers)) return 0;
    }
    *row->end = (struct stray){0};
    return 1;
}

/* Whether x[columns] could be cut: into as few words as can be.
 *
 * room: 8 bytes for each number, aligned as vectors are. Words take 4 at most, blocks 1.5, which
 * leaves 160 bytes of the shortest row, of 64 numbers; its strays are six at most, of 24 bytes. */
AVX2 static int cut(struct row *row, const void *x, const int is_bfloat16, void *room) {
    for (unsigned i = 0; i < sizeof CUTS / sizeof *CUTS; i++)
        if (cut_so(CUTS[i], row, x, is_bfloat16, room)) return 1;
    return 0;
}
#endif

#endif
