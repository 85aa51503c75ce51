/* Products of one row with nibbles in integers, which are exact, of many more at a time than floats.
 *
 * Nibbles are widened to words, and multiplied by those of a number. Sums of a lane of a block are
 * less than 2^24, so that float32 holds them, and what is to be taken from them; they are rounded
 * when they are scaled, and strays are multiplied in float32 by themselves.
 */

#ifndef AOSERIAL_NIBBLES_H
#define AOSERIAL_NIBBLES_H

#include "threads.h"
#include "weight.h"
#include "words.h"

#if HAS_TARGETS

/* What nibbles stand for: (byte - zero) / steps. */
struct nibble {
    uint8_t bytes[16];
    int zero, steps;
};

static const struct nibble INT4 = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 8, 1};
static const struct nibble E2M1 = {
    {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}, 12, 2};

enum { NIBBLES_EACH = 4 }; /* of a word of codes */

/* The bytes of a vector of codes in words: of the first nibbles of its words, and so on. */
AVX2_INLINE void widen(const __m256i codes, const struct nibble *code,
                       __m256i words[NIBBLES_EACH]) {
    if (code == &INT4) {
        const __m256i nibble = _mm256_set1_epi16(15);
        words[0] = _mm256_and_si256(codes, nibble);
        words[1] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
        words[2] = _mm256_and_si256(_mm256_srli_epi16(codes, 8), nibble);
        words[3] = _mm256_srli_epi16(codes, 12);
        return;
    }
    const __m256i nibble = _mm256_set1_epi8(15), byte = _mm256_set1_epi16(0xff);
    const __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)code->bytes));
    const __m256i even = _mm256_shuffle_epi8(bytes, _mm256_and_si256(codes, nibble));
    const __m256i shifted = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
    const __m256i odd = _mm256_shuffle_epi8(bytes, shifted);
    words[0] = _mm256_and_si256(even, byte);
    words[1] = _mm256_and_si256(odd, byte);
    words[2] = _mm256_srli_epi16(even, 8);
    words[3] = _mm256_srli_epi16(odd, 8);
}

/* Products of a block's codes with its words, by words of a number. */
typedef void (*block_product)(const __m256i *codes, const __m256i *words, int64_t vectors,
                              int words_each, const struct nibble *code,
                              ints products[MOST_WORDS]);

AVX2_INLINE void block_by_avx2(const __m256i *codes, const __m256i *words, const int64_t vectors,
                               const int words_each, const struct nibble *code,
                               ints products[MOST_WORDS]) {
#pragma GCC unroll 2
    for (int i = 0; i < vectors; i++) {
        __m256i nibbles[NIBBLES_EACH];
        widen(_mm256_loadu_si256(codes + i), code, nibbles);
#pragma GCC unroll 4
        for (int j = 0; j < NIBBLES_EACH; j++)
            for (int word = 0; word < words_each; word++)
                products[word] += (ints)_mm256_madd_epi16(
                    nibbles[j], words[(j * words_each + word) * vectors + i]);
    }
}

#define VNNI __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
/* A block of two vectors of int4 is one of AVX512, whose VNNI multiplies and adds at once. */
VNNI INLINE void block_by_vnni(const __m256i *codes, const __m256i *words, const int64_t vectors,
                               const int words_each, const struct nibble *code,
                               ints products[MOST_WORDS]) {
    if (vectors == 1 || code != &INT4) {
        block_by_avx2(codes, words, vectors, words_each, code, products);
        return;
    }
    const __m512i all = _mm512_loadu_si512(codes), nibble = _mm512_set1_epi16(15);
    const __m512i nibbles[NIBBLES_EACH] = {
        _mm512_and_si512(all, nibble), _mm512_and_si512(_mm512_srli_epi16(all, 4), nibble),
        _mm512_and_si512(_mm512_srli_epi16(all, 8), nibble), _mm512_srli_epi16(all, 12)};
    __m512i sums[MOST_WORDS] = {};
#pragma GCC unroll 4
    for (int j = 0; j < NIBBLES_EACH; j++)
        for (int word = 0; word < words_each; word++) {
            const __m512i pair = _mm512_loadu_si512(words + (j * words_each + word) * 2);
            sums[word] = _mm512_dpwssd_epi32(sums[word], nibbles[j], pair);
        }
    for (int word = 0; word < words_each; word++)
        products[word] = (ints)_mm512_castsi512_si256(sums[word]) +
                         (ints)_mm512_extracti64x4_epi64(sums[word], 1);
}

/* What strays are to add to a product with a row of the weight: in two sums, as each waits for what
 * was added to it last. */
AVX2_INLINE float of_strays(const struct row *x, int64_t row, const enum mode mode) {
    const struct weight *weight = x->weight;
    const int64_t first = row / weight->block_rows * (weight->columns / weight->group);
    const uint8_t *codes = weight->codes + row * (weight->columns / 2);
    float sums[2] = {};
    for (const struct stray *pair = x->strays; pair < x->end; pair += 2)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int64_t group = first + pair[i].group;
            float w = x->values[codes[pair[i].byte] >> pair[i].shift & 15];
            if (mode >= TAKEN_AND_SCALED) w -= weight->taken[group] * weight->unit;
            if (mode == TAKEN_SCALED_AND_ADDED) {
                w = w * weight->scale[group] + weight->added[group] * weight->unit;
                sums[i] += w * pair[i].number;
            } else {
                sums[i] += w * pair[i].number * weight->scale[group]; /* w by a large one overflows */
            }
        }
    return sums[0] + sums[1];
}

AVX2_INLINE float by_one_row(const struct row *x, int64_t row, const int64_t vectors,
                             const int words_each, const struct nibble *code,
                             const enum mode mode, const block_product multiply) {
    const struct weight *weight = x->weight;
    const int64_t lanes = weight->group / LANE, groups = weight->columns / weight->group;
    const int64_t blocks = lanes >= LANES ? lanes / (LANES * vectors) : 1; /* of a group */
    const int64_t numbers = lanes >= LANES ? 1 : LANES / lanes; /* that share a vector */
    const int64_t first = row / weight->block_rows * groups;
    const __m256i *codes = (const __m256i *)(weight->codes + row * (weight->columns / 2));
    const __m256i *words = x->words;
    const struct block *block = x->blocks;
    floats sum = {};

    for (int64_t group = first; group < first + groups; group += numbers) {
        const floats scale = spread(weight->scale + group, lanes);
        floats less = (floats){} - (float)code->zero, added = {};
        if (mode >= TAKEN_AND_SCALED) less -= spread(weight->taken + group, lanes) * weight->unit;
        if (mode == TAKEN_SCALED_AND_ADDED)
            added = spread(weight->added + group, lanes) * weight->unit;
        for (const struct block *end = block + blocks; block < end; block++) {
            ints products[MOST_WORDS] = {};
            for (int i = 0; i < vectors; i++) fetch(codes + i);
            multiply(codes, words, vectors, words_each, code, products);
            codes += vectors, words += vectors * NIBBLES_EACH * words_each;
            floats sums[MOST_WORDS];
            for (int word = 0; word < words_each; word++)
                sums[word] =
                    __builtin_convertvector(products[word], floats) + block->sums[word] * less;
            sum += together(sums, words_each) * (block->unit / (float)code->steps) * scale;
            if (mode == TAKEN_SCALED_AND_ADDED)
                sum += together(block->sums, words_each) * block->unit * added;
        }
    }
    return of_strays(x, row, mode) + added_up(sum);
}

AVX2_INLINE void by_rows(struct product *of, const int64_t vectors, const int words_each,
                         const struct nibble *code, const enum mode mode,
                         const block_product multiply) {
    for (int64_t row, stop; take_rows(of, &row, &stop);)
        for (; row < stop; row++)
            put(of, 0, row,
                by_one_row(of->x, row, vectors, words_each, code, mode, multiply));
}

AVX2_INLINE void by_mode(struct product *of, const int64_t vectors, const int words_each,
                         const block_product multiply) {
    const struct weight *weight = &of->layer->weight;
    if (weight->format != NIBBLES)
        by_rows(of, vectors, words_each, &E2M1, SCALED, multiply);
    else if (weight->added)
        by_rows(of, vectors, words_each, &INT4, TAKEN_SCALED_AND_ADDED, multiply);
    else if (weight->taken)
        by_rows(of, vectors, words_each, &INT4, TAKEN_AND_SCALED, multiply);
    else
        by_rows(of, vectors, words_each, &INT4, SCALED, multiply);
}

AVX2_INLINE void by_vectors(struct product *of, const int words_each,
                            const block_product multiply) {
    if (((const struct row *)of->x)->vectors == 2)
        by_mode(of, 2, words_each, multiply);
    else
        by_mode(of, 1, words_each, multiply);
}

AVX2_INLINE void by_words_each(struct product *of, const block_product multiply) {
    if (((const struct row *)of->x)->words_each == 1)
        by_vectors(of, 1, multiply);
    else
        by_vectors(of, 2, multiply);
}

AVX2 static void share_nibbles(void *argument) { by_words_each(argument, block_by_avx2); }
VNNI static void share_nibbles_vnni(void *argument) { by_words_each(argument, block_by_vnni); }

/* Whether row m of x could be multiplied. room: as for `cut`. */
static int multiply_nibbles(const struct layer *layer, int64_t m, void *room) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    const struct weight *weight = &layer->weight;
    const void *x = (const char *)layer->x + m * weight->columns * (layer->x_is_bfloat16 ? 2 : 4);
    const int64_t vectors = weight->group % (MOST_VECTORS * VECTOR) == 0 ? MOST_VECTORS : 1;
    struct row row = {.weight = weight, .vectors = vectors};
    const struct nibble *code = weight->format == NIBBLES ? &INT4 : &E2M1;
    for (int i = 0; i < 16; i++)
        row.values[i] = (float)(code->bytes[i] - code->zero) / (float)code->steps;
    if (!cut(&row, x, layer->x_is_bfloat16, room)) return 0;
    const int has_vnni = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    run(has_vnni ? share_nibbles_vnni : share_nibbles,
        &(struct product){layer, &row, m, 1, 0}, layer->threads);
    return 1;
}

#else
static int multiply_nibbles(const struct layer *layer, int64_t m, void *room) {
    (void)layer, (void)m, (void)room;
    return 0;
}
#endif

#endif
