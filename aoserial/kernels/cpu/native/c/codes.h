/* Products of an activation's int8 codes with those of a weight. */

#ifndef AOSERIAL_CODES_H
#define AOSERIAL_CODES_H

#include "threads.h"
#include "weight.h"

/* Codes less their zero points, [count, columns]. */
FOR_EACH_CPU UNHURRIED static void take_zeros(const struct layer *layer, int16_t *taken) {
    const int64_t columns = layer->weight.columns;
    for (int64_t m = 0; m < layer->count; m++, taken += columns) {
        const int8_t *codes = (const int8_t *)layer->x + m * columns;
        const int16_t zero = layer->zero_point ? layer->zero_point[m] : 0;
        for (int64_t k = 0; k < columns; k++) taken[k] = (int16_t)(codes[k] - zero);
    }
}

/* Of magnitudes up to 255, and of 65536 columns at most, sums in int32 are exact, and rounded once
 * to float32. */
FOR_EACH_CPU UNHURRIED static void share_codes(void *argument) {
    enum { STRETCH = 256, LINE = 64 };
    struct product *of = argument;
    const int64_t columns = of->layer->weight.columns;
    for (int64_t row, stop; take_rows(of, &row, &stop);)
        for (; row < stop; row++)
            for (int64_t m = 0; m < of->count; m++) {
                const int8_t *codes = (const int8_t *)of->layer->weight.codes + row * columns;
                const int16_t *x = (const int16_t *)of->x + m * columns;
                int32_t sum = 0;
                for (int64_t first = 0; first < columns; first += STRETCH) {
                    const int64_t end = least(first + STRETCH, columns);
                    for (int64_t line = 0; line < STRETCH; line += LINE) fetch(codes + first + line);
                    for (int64_t k = first; k < end; k++) sum += (int16_t)codes[k] * x[k];
                }
                put(of, m, row, (float)sum);
            }
}

#endif
