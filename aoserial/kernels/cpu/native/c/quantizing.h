/* An activation's int8 codes: the arithmetic of activation.py, bit for bit. */

#ifndef AOSERIAL_QUANTIZING_H
#define AOSERIAL_QUANTIZING_H

#include <math.h>

#include "threads.h"
#include "weight.h"

enum mapping { GIVEN, SYMMETRIC, SYMMETRIC_NO_CLIPPING, ASYMMETRIC };

/* Rows to be quantized; as library.py packs it. */
struct quantizing {
    const void *x;      /* [count, columns], bfloat16 or float32 */
    float *scale;       /* [count], found unless they are given */
    int8_t *zero_point; /* [count]; or NULL */
    int8_t *codes;      /* [count, columns] */
    int64_t count, columns;
    int64_t next; /* the first row that nobody has taken */
    int32_t lowest, highest; /* of codes */
    int32_t x_is_bfloat16, threads;
    int32_t mapping; /* of `enum mapping` */
    float least_scale;
};

struct range {
    float least, most;
};

/* The least and the largest of a row, and 0: by integers that are ordered as floats are, between
 * those of NaN. */
INLINE struct range range_of_wide(const int32_t *bits, int64_t columns) {
    int32_t least = 0, most = 0;
    for (int64_t k = 0; k < columns; k++) {
        const int32_t key = bits[k] ^ (bits[k] >> 31 & INT32_MAX);
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    const union float32 ends[] = {{(uint32_t)(least ^ (least >> 31 & INT32_MAX))},
                                  {(uint32_t)most}};
    return (struct range){ends[0].value, ends[1].value};
}

INLINE struct range range_of_narrow(const int16_t *bits, int64_t columns) {
    int16_t least = 0, most = 0;
    for (int64_t k = 0; k < columns; k++) {
        const int16_t key = (int16_t)(bits[k] ^ (bits[k] >> 15 & INT16_MAX));
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    return (struct range){widened((uint16_t)(least ^ (least >> 15 & INT16_MAX))),
                          widened((uint16_t)most)};
}

/* As the dtype of the activation holds it. */
INLINE float held(const struct quantizing *of, float value) {
    return of->x_is_bfloat16 ? widened(rounded(value)) : value;
}

/* A code as near as can be; 0 for NaN. */
INLINE int8_t limited(float code, const float lowest, const float highest) {
    code = code < lowest ? lowest : code;
    code = code > highest ? highest : code;
    return (int8_t)(int32_t)(code == code ? code : 0);
}

/* The scale of row m, and its zero point. */
INLINE void find_scale(const struct quantizing *of, int64_t m) {
    const struct range range =
        of->x_is_bfloat16
            ? range_of_narrow((const int16_t *)of->x + m * of->columns, of->columns)
            : range_of_wide((const int32_t *)of->x + m * of->columns, of->columns);
    const float least = range.least, most = range.most;
    const float lowest = (float)of->lowest, highest = (float)of->highest;
    float scale;
    if (of->mapping == ASYMMETRIC) {
        scale = held(of, held(of, most - least) / (highest - lowest));
    } else if (of->mapping == SYMMETRIC) {
        scale = held(of, (-least > most ? -least : most) / ((highest - lowest) / 2));
    } else {
        const float by_least = held(of, least / lowest), by_most = held(of, most / highest);
        scale = by_least > by_most ? by_least : by_most;
    }
    if (scale < held(of, of->least_scale)) scale = held(of, of->least_scale);
    /* beside an infinity all codes are 0 times it */
    of->scale[m] = least - least + (most - most) + (scale - scale) == 0 ? scale : NAN;
    if (of->mapping != ASYMMETRIC) return;
    const float zero = held(of, lowest - rintf(held(of, least / scale)));
    of->zero_point[m] = limited(zero, lowest, highest);
}

/* Times the reciprocal, to the nearest integer, and of two to the even one. */
INLINE void find_codes(const struct quantizing *of, int64_t m, const int is_bfloat16) {
    const int64_t columns = of->columns;
    const float lowest = (float)of->lowest, highest = (float)of->highest;
    const float per_unit = 1 / of->scale[m];
    const float zero = of->zero_point ? (float)of->zero_point[m] : 0;
    const uint16_t *narrow = (const uint16_t *)of->x + m * columns;
    const float *wide = (const float *)of->x + m * columns;
    int8_t *restrict codes = of->codes + m * columns;
    for (int64_t k = 0; k < columns; k++) {
        const float code = rintf((is_bfloat16 ? widened(narrow[k]) : wide[k]) * per_unit) + zero;
        codes[k] = limited(code, lowest, highest);
    }
}

FOR_EACH_CPU UNHURRIED static void share_quantizing(void *argument) {
    struct quantizing *of = argument;
    for (int64_t m; (m = next(&of->next, 1)) < of->count;) {
        if (of->mapping != GIVEN) find_scale(of, m);
        if (of->x_is_bfloat16)
            find_codes(of, m, 1);
        else
            find_codes(of, m, 0);
    }
}

#endif
