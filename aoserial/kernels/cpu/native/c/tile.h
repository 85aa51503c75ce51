/* Products in tiles of bfloat16, which some processors multiply at once.
 *
 * A tile of the weight has sixteen rows, one of an activation the pairs of columns that these meet.
 * Columns are cut into steps of 32, within which those of nibbles come in an order of their own.
 */

#ifndef AOSERIAL_TILE_H
#define AOSERIAL_TILE_H

#include "threads.h"
#include "weight.h"

#if HAS_TARGETS && defined(__linux__) && __GNUC__ >= 11
#define HAS_TILES 1

#include <immintrin.h>

#define VECTORS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")))
#define VECTORS_INLINE VECTORS INLINE

enum {
    SIDE = 16, /* rows of a tile */
    STEP = 32, /* columns of one, at most */
    TILE = SIDE * STEP,
    PAIR = 2,
    PRODUCTS = SIDE * SIDE,
    MOST_PIECES = 3, /* of which a number of an activation is the sum */
    MOST_PARTS = 4   /* that are multiplied before they are scaled */
};

/* Some rows of an activation by the weight, which threads share. */
struct tiles {
    const struct layer *layer;
    const struct instructions *by;
    int64_t first, count; /* rows of x */
    int64_t sides;        /* of x: tiles of sixteen rows, of which the last may lack some */
    int64_t pieces;       /* of a number of x */
    int64_t depth;        /* columns of a tile: those of a group, or a step */
    int64_t part;         /* columns of a group that are added up before they are scaled, at most */
    int64_t stretch;      /* columns that are decoded at once */
    int64_t rows;         /* of the weight, which a thread takes at once */
    uint16_t *x;          /* by sides, pieces, pairs of columns, rows, and columns of a pair */
    float *sums;          /* of the numbers of a part, by parts and rows; or NULL */
    char *room;           /* of the threads, `room_each` bytes each */
    int64_t room_each;
    int64_t threads, next_side, next_row; /* taken by now */
    int32_t overflows;                    /* whether a sum is no number */
    uint16_t values[256];                 /* of codes, those of nibbles again and again */
    uint8_t bytes[PAIR][256];             /* the lower ones of these, and the upper ones */
};

/* How tiles are multiplied. */
struct instructions {
    void (*begin)(int64_t depth);
    /* A part, of so many columns: one or two sides of the weight by one or two of x, whose first
     * columns are given. Products are four tiles; of two by one the first and the third. */
    void (*multiply)(const struct tiles *of, int64_t columns, const uint16_t *w, int two_w,
                     const uint16_t *x, int two_x, float *products);
    void (*end)(void);
};

INLINE int64_t upto(int64_t number, int64_t multiple) {
    return (number + multiple - 1) / multiple * multiple;
}

/* How many parts end before a column that begins one. */
INLINE int64_t parts_before(const struct tiles *of, int64_t column) {
    const int64_t group = of->layer->weight.group;
    return column / group * (upto(group, of->part) / of->part) + column % group / of->part;
}

/* The columns of the part that begins at one. */
INLINE int64_t part_at(const struct tiles *of, int64_t column) {
    const int64_t group = of->layer->weight.group;
    return least(of->part, group - column % group);
}
#endif

#endif
