/* Products of int8 codes by AMX, whose sums in int32 are exact. */

#ifndef AOSERIAL_CODE_TILES_H
#define AOSERIAL_CODE_TILES_H

#include <stdlib.h>
#include <string.h>

#include "tile_products.h"
#include "tile_results.h"

#if HAS_TILES

enum {
    CODE_STEP = 64, /* columns of a tile */
    CODE_TILE = SIDE * CODE_STEP,
    CODE_STRETCH = 512, /* columns that are multiplied at once */
    TWO = 2 * SIDE      /* rows of the weight, which a thread takes at once */
};

/* Codes as they lie in memory. */
typedef uint32_t fours_of __attribute__((aligned(1), may_alias));

/* Rows of an activation's codes by the weight's, which threads share. */
struct code_tiles {
    const struct layer *layer;
    int64_t first, count; /* rows of x */
    int64_t sides;        /* of x: tiles of sixteen rows, of which the last may lack some */
    int8_t *x;            /* by sides, fours of columns, rows, and columns of a four */
    char *room;           /* of the threads, `room_each` bytes each */
    int64_t room_each;
    int64_t threads, next_side, next_row; /* taken by now */
};

VECTORS static void share_placing_codes(void *argument) {
    struct code_tiles *of = argument;
    const int64_t columns = of->layer->weight.columns, fours = columns / 4;
    for (int64_t side; (side = next(&of->next_side, 1)) < of->sides;) {
        const int64_t there = least(of->count - side * SIDE, SIDE);
        const int8_t *codes = (const int8_t *)of->layer->x;
        const fours_of *x = (const fours_of *)(codes + (of->first + side * SIDE) * columns);
        uint32_t *to = (uint32_t *)(of->x + side * SIDE * columns);
        for (int64_t i = 0; i < fours; i++)
            for (int64_t m = 0; m < SIDE; m++) *to++ = m < there ? x[m * fours + i] : 0;
    }
}

/* Copies columns of two sides of the weight, of rows from `row` on, into tiles. Rows lie so far apart
 * in memory that sixteen of them would have to share a part of the cache. Of rows that there are not
 * it copies the last one. */
VECTORS_INLINE void copy_codes(const struct weight *weight, int64_t row, int64_t column,
                               int64_t columns, int8_t *tiles) {
    for (int64_t n = 0; n < TWO; n++) {
        const int64_t from = least(row + n, weight->rows - 1) * weight->columns + column;
        const uint8_t *codes = weight->codes + from;
        int8_t *to = tiles + n / SIDE * SIDE * CODE_STRETCH + n % SIDE * CODE_STEP;
        for (int64_t i = 0; i < columns; i += CODE_STEP, to += CODE_TILE) {
            _mm_prefetch((const char *)codes + i + CODE_STRETCH, _MM_HINT_T1);
            _mm512_store_si512(to, _mm512_loadu_si512(codes + i));
        }
    }
}

/* Adds products of two sides of the weight by one or two of x, `next_x` from each other, to sums: four
 * tiles; of one side of x the first and the third. */
AMX_INLINE void multiply_codes_by_amx(int64_t columns, const int8_t *w, const int8_t *x,
                                      int64_t next_x, const int two_x, int32_t *sums) {
    _tile_loadd(0, sums, LINE);
    _tile_loadd(2, sums + 2 * PRODUCTS, LINE);
    if (two_x) {
        _tile_loadd(1, sums + PRODUCTS, LINE);
        _tile_loadd(3, sums + 3 * PRODUCTS, LINE);
    }
    for (int64_t column = 0; column < columns; column += CODE_STEP) {
        _tile_loadd(4, w + column * SIDE, LINE);
        _tile_loadd(5, w + (CODE_STRETCH + column) * SIDE, LINE);
        _tile_loadd(6, x + column * SIDE, LINE);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(2, 5, 6);
        if (!two_x) continue;
        _tile_loadd(7, x + next_x + column * SIDE, LINE);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sums, LINE);
    _tile_stored(2, sums + 2 * PRODUCTS, LINE);
    if (!two_x) return;
    _tile_stored(1, sums + PRODUCTS, LINE);
    _tile_stored(3, sums + 3 * PRODUCTS, LINE);
}

AMX static void multiply_codes(int64_t columns, const int8_t *w, const int8_t *x, int64_t next_x,
                               int two_x, int32_t *sums) {
    settle(w);
    if (two_x)
        multiply_codes_by_amx(columns, w, x, next_x, 1, sums);
    else
        multiply_codes_by_amx(columns, w, x, next_x, 0, sums);
    settle(sums);
}

/* Products of row m of x with `rows` rows of the weight, less what its zero point adds to them. */
VECTORS_INLINE void put_codes(const struct layer *layer, int64_t m, int64_t row, int64_t rows,
                              const int32_t *products) {
    const __mmask16 there = (__mmask16)((1u << rows) - 1);
    const __m512i none = _mm512_setzero_si512();
    __m512i sums = _mm512_mask_i32gather_epi32(none, there, lanes_apart(SIDE), products, 4);
    if (layer->zero_point) {
        const __m512 of_rows = _mm512_maskz_loadu_ps(there, layer->weight.taken + row);
        const __m512i zero = _mm512_set1_epi32(layer->zero_point[m]);
        sums = _mm512_sub_epi32(sums, _mm512_mullo_epi32(zero, _mm512_cvtps_epi32(of_rows)));
    }
    const __m512 scale = _mm512_maskz_loadu_ps(there, layer->weight.scale + row);
    const __m512 by_x = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(layer->scale[m]));
    put_side(layer, m, row, rows, _mm512_mul_ps(by_x, scale));
}

VECTORS static void share_code_tiles(void *argument) {
    struct code_tiles *of = argument;
    const struct layer *layer = of->layer;
    const int64_t columns = layer->weight.columns, rows = layer->weight.rows;
    const int64_t pairs = upto(of->sides, 2) / 2;
    int8_t *codes = (int8_t *)of->room;
    codes += of->room_each * next(&of->threads, 1);
    int32_t *sums = (int32_t *)(codes + TWO * CODE_STRETCH);
    begin_amx(STEP);
    for (int64_t row; (row = next(&of->next_row, TWO)) < rows;) {
        memset(sums, 0, (size_t)(pairs * 4 * PRODUCTS) * sizeof *sums);
        for (int64_t column = 0; column < columns; column += CODE_STRETCH) {
            const int64_t some = least(CODE_STRETCH, columns - column);
            copy_codes(&layer->weight, row, column, some, codes);
            for (int64_t side = 0; side < of->sides; side += 2)
                multiply_codes(some, codes, of->x + (side * columns + column) * SIDE,
                               SIDE * columns, side + 1 < of->sides, sums + side * 2 * PRODUCTS);
        }
        for (int64_t n = 0; n < least(TWO, rows - row); n += SIDE)
            for (int64_t m = 0; m < of->count; m++) {
                const int64_t tile = m / TWO * 4 + n / SIDE * 2 + m / SIDE % 2;
                put_codes(layer, of->first + m, row + n, least(SIDE, rows - row - n),
                          sums + tile * PRODUCTS + m % SIDE);
            }
    }
    end_amx();
}

/* Rows of x, from `first` on. Whether there was memory for it. Columns are multiples of 64. */
static int multiply_code_tiles(const struct layer *layer, int64_t first, int64_t count) {
    enum { ALIGNMENT = 64 };
    struct code_tiles of = {.layer = layer, .first = first, .count = count};
    of.sides = upto(count, SIDE) / SIDE;
    const int64_t x_bytes = of.sides * SIDE * layer->weight.columns;
    of.room_each = TWO * CODE_STRETCH + upto(of.sides, 2) * 2 * PRODUCTS * 4;
    of.x = aligned_alloc(ALIGNMENT, x_bytes + of.room_each * layer->threads);
    if (!of.x) return 0;
    of.room = (char *)of.x + x_bytes;
    run(share_placing_codes, &of, of.sides > 1 ? layer->threads : 1);
    run(share_code_tiles, &of, layer->threads);
    free(of.x);
    return 1;
}
#endif

#endif
