/* Products of an activation with codes in tiles: those of bfloat16 are exact, sums in float32. */

#ifndef AOSERIAL_TILES_H
#define AOSERIAL_TILES_H

#include <stdlib.h>
#include <string.h>

#include "tile.h"
#include "tile_operands.h"
#include "tile_products.h"
#include "tile_results.h"

#if HAS_TILES
enum { FOUR = 4 * PRODUCTS };

/* Adds scaled products to sums[SIDE, rows of x], of the parts from `column` on; those of the same
 * tiles lie `FOUR` apart. */
VECTORS_INLINE void add_parts(const struct tiles *of, int64_t row, int64_t column, int64_t parts,
                              int64_t side, const float *products, float *sums,
                              const enum mode mode) {
    const struct weight *weight = &of->layer->weight;
    const int64_t all = of->sides * SIDE, groups = weight->columns / weight->group;
    int64_t first_group[SIDE]; /* of each row; of rows that there are not, of the last one */
    for (int n = 0; n < SIDE; n++) first_group[n] = least(row + n, weight->rows - 1) * groups;
    if (weight->block_rows > 1) /* dividing takes longer than all the rest */
        for (int n = 0; n < SIDE; n++)
            first_group[n] = least(row + n, weight->rows - 1) / weight->block_rows * groups;
    __m512 added[SIDE];
    sums += side * SIDE;
#pragma GCC unroll 16
    for (int n = 0; n < SIDE; n++) added[n] = _mm512_load_ps(sums + n * all);
    for (int64_t part = 0; part < parts; part++, products += FOUR) {
        const int64_t group = column / weight->group;
        const float *scale = weight->scale + group, *taken = scale, *zero = scale;
        __m512 x = _mm512_setzero_ps();
        if (mode != SCALED) {
            taken = weight->taken + group;
            x = _mm512_load_ps(of->sums + parts_before(of, column) * all + side * SIDE);
            x = _mm512_mul_ps(x, _mm512_set1_ps(weight->unit));
        }
        if (mode == TAKEN_SCALED_AND_ADDED) zero = weight->added + group;
#pragma GCC unroll 16
        for (int n = 0; n < SIDE; n++) {
            const int64_t at = first_group[n];
            __m512 product = _mm512_load_ps(products + n * SIDE);
            if (mode != SCALED) product = _mm512_fnmadd_ps(_mm512_set1_ps(taken[at]), x, product);
            if (mode == TAKEN_SCALED_AND_ADDED)
                added[n] = _mm512_fmadd_ps(_mm512_set1_ps(zero[at]), x, added[n]);
            added[n] = _mm512_fmadd_ps(_mm512_set1_ps(scale[at]), product, added[n]);
        }
        column += part_at(of, column);
    }
#pragma GCC unroll 16
    for (int n = 0; n < SIDE; n++) _mm512_store_ps(sums + n * all, added[n]);
}

VECTORS_INLINE void add_stretch(const struct tiles *of, int64_t row, int64_t rows, int64_t column,
                                int64_t columns, const uint16_t *decoded, float *products,
                                float *sums, const enum mode mode) {
    const int64_t all = of->sides * SIDE, each = piece_of(of) * of->pieces;
    for (int64_t side = 0; side < of->sides; side += 2)
        for (int64_t n = 0; n < rows; n += 2 * SIDE) {
            const int two_x = side + 1 < of->sides, two_w = n + SIDE < rows;
            for (int64_t next = 0; next < columns;) {
                const int64_t first = next;
                int64_t parts = 0;
                for (; parts < MOST_PARTS && next < columns; parts++) {
                    const int64_t some = part_at(of, column + next);
                    of->by->multiply(of, some, decoded + n * of->stretch + in_w(next), two_w,
                                     of->x + side * each + (column + next) * SIDE, two_x,
                                     products + parts * FOUR);
                    next += some;
                }
                for (int i = 0; i <= two_w; i++)
                    for (int j = 0; j <= two_x; j++)
                        add_parts(of, row + n + i * SIDE, column + first, parts, side + j,
                                  products + (2 * i + j) * PRODUCTS, sums + (n + i * SIDE) * all,
                                  mode);
            }
        }
}

VECTORS static void share_placing(void *argument) {
    struct tiles *of = argument;
    for (int64_t side; (side = next(&of->next_side, 1)) < of->sides;) {
        place_side(of, side);
        if (of->sums && !add_up_side(of, side))
            __atomic_store_n(&of->overflows, 1, __ATOMIC_RELAXED);
    }
}

VECTORS static void share_tiles(void *argument) {
    struct tiles *of = argument;
    const struct weight *weight = &of->layer->weight;
    const int64_t all = of->sides * SIDE;
    char *room = of->room + of->room_each * next(&of->threads, 1);
    uint16_t *decoded = (uint16_t *)room;
    float *products = (float *)(decoded + of->rows * of->stretch);
    float *sums = products + MOST_PARTS * FOUR;
    const __m512i apart = lanes_apart(all);
    of->by->begin(of->depth);
    for (int64_t row; (row = next(&of->next_row, of->rows)) < weight->rows;) {
        const int64_t rows = least(of->rows, weight->rows - row);
        memset(sums, 0, (size_t)(of->rows * all) * sizeof *sums);
        for (int64_t column = 0, columns; column < weight->columns; column += columns) {
            columns = weight->group > of->stretch ? part_at(of, column)
                                                  : least(of->stretch, weight->columns - column);
            decode(of, row, rows, column, columns, decoded);
            if (weight->added)
                add_stretch(of, row, rows, column, columns, decoded, products, sums,
                            TAKEN_SCALED_AND_ADDED);
            else if (weight->taken)
                add_stretch(of, row, rows, column, columns, decoded, products, sums,
                            TAKEN_AND_SCALED);
            else
                add_stretch(of, row, rows, column, columns, decoded, products, sums, SCALED);
        }
        for (int64_t n = 0; n < rows; n += SIDE)
            for (int64_t m = 0; m < of->count; m++)
                put_side(of->layer, of->first + m, row + n, least(rows - n, SIDE),
                         _mm512_i32gather_ps(apart, sums + n * all + m, 4));
    }
    of->by->end();
}

/* Whether rows of x could be multiplied, from `first` on: not without memory, nor where infinities
 * or NaN would be added up beside the products they belong to. */
static int multiply_in_tiles(const struct layer *layer, int64_t first, int64_t count) {
    enum { ALIGNMENT = 64, STRETCH = 512, ROWS = 64 };
    const struct weight *weight = &layer->weight;
    struct tiles of = {.layer = layer, .first = first, .count = count, .rows = ROWS};
    of.by = layer->tiles == AMX_TILES ? &BY_AMX : &BY_VECTORS;
    of.sides = upto(count, SIDE) / SIDE;
    of.pieces = layer->x_is_bfloat16 ? 1 : MOST_PIECES;
    of.depth = least(weight->group, STEP);
    of.part = least(weight->group, STRETCH);
    of.stretch = least(STRETCH / of.part * of.part, weight->columns);
    list_values(&of);

    const int64_t all = of.sides * SIDE;
    const int64_t parts = weight->taken ? parts_before(&of, weight->columns) : 0;
    const int64_t x_bytes = all * weight->columns * of.pieces * 2, sums_bytes = all * parts * 4;
    of.room_each = of.rows * of.stretch * 2 + (MOST_PARTS * FOUR + of.rows * all) * 4;
    char *room = aligned_alloc(ALIGNMENT, x_bytes + sums_bytes + of.room_each * layer->threads);
    if (!room) return 0;
    of.x = (uint16_t *)room;
    of.sums = parts ? (float *)(room + x_bytes) : NULL;
    of.room = room + x_bytes + sums_bytes;
    run(share_placing, &of, of.sides > 1 ? layer->threads : 1);
    if (!of.overflows) run(share_tiles, &of, layer->threads);
    free(room);
    return !of.overflows;
}
#endif

#endif
