/* Where results of tiles go. */

#ifndef AOSERIAL_TILE_RESULTS_H
#define AOSERIAL_TILE_RESULTS_H

#include "tile.h"

#if HAS_TILES

VECTORS_INLINE __m512i lanes_apart(int64_t apart) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int32_t)apart));
}

/* To the nearest bfloat16, and of two to the even one, as `rounded` does. */
VECTORS_INLINE __m256i narrowed(const __m512 sums) {
    enum { NARROW = 16, HALF = 0x7fff, NAN_BITS = 0x7fc0 };
    const __m512i bits = _mm512_castps_si512(sums);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, NARROW), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(HALF));
    const __mmask16 nan = _mm512_cmp_ps_mask(sums, sums, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32(_mm512_srli_epi32(up, NARROW), nan, _mm512_set1_epi32(NAN_BITS)));
}

/* Sums of row m of x with as many rows of the weight, from `row` on, and the bias. */
VECTORS_INLINE void put_side(const struct layer *layer, int64_t m, int64_t row, int64_t rows,
                             __m512 sums) {
    const __mmask16 there = (__mmask16)((1u << rows) - 1);
    const int64_t at = m * layer->weight.rows + row;
    if (layer->bias && layer->bias_is_bfloat16) {
        const __m256i bias = _mm256_maskz_loadu_epi16(there, (const uint16_t *)layer->bias + row);
        const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bias), 16);
        sums = _mm512_add_ps(sums, _mm512_castsi512_ps(wide));
    } else if (layer->bias) {
        sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(there, (const float *)layer->bias + row));
    }
    if (layer->y_is_bfloat16)
        _mm256_mask_storeu_epi16((uint16_t *)layer->y + at, there, narrowed(sums));
    else
        _mm512_mask_storeu_ps((float *)layer->y + at, there, sums);
}
#endif

#endif
