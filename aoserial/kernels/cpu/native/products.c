/* Products of few rows of activations with the rows of a quantized weight: with nibbles as they are,
 * in integers, or with codes that are decoded, in float32; and of int8 codes with int8 codes.
 */

#include <stdlib.h>

#include "nibbles.h"
#include "numbers.h"
#include "threads.h"
#include "weight.h"

/* For whoever packs the struct to compare. */
int64_t aoserial_layer_bytes(void) { return sizeof(struct layer); }

/* Whether there was memory for it. */
int32_t aoserial_multiply(const struct layer *layer) {
    /* Bytes, the last two of a number: of rows as floats, or of one that is cut. */
    enum { ALIGNMENT = 64, FLOAT = 4, CUT = 8 };
    const int64_t rows = layer->count < MOST_ROWS ? layer->count : MOST_ROWS;
    void *room = aligned_alloc(ALIGNMENT, layer->weight.columns * (rows > 1 ? rows * FLOAT : CUT));
    if (layer->count && !room) return 0;
    if (layer->count > layer->weight.in_integers)
        multiply_numbers(layer, 0, layer->count, room);
    else
        for (int64_t m = 0; m < layer->count; m++)
            if (!multiply_nibbles(layer, m, room)) multiply_numbers(layer, m, m + 1, room);
    free(room);
    return 1;
}

/* The compiler makes vectors of the innermost loop, if it may take its time. */
FOR_EACH_CPU __attribute__((optimize("O3"))) static void share_codes(void *argument) {
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
                    const int64_t end = first + STRETCH < columns ? first + STRETCH : columns;
                    for (int64_t line = 0; line < STRETCH; line += LINE) fetch(codes + first + line);
                    for (int64_t k = first; k < end; k++) sum += (int16_t)codes[k] * x[k];
                }
                put(of, m, row, (float)sum);
            }
}

/* The same of int8 codes, by what stands for the activation: `x` is int16. Of magnitudes up to 255,
 * and of 65536 columns at most, sums in int32 are exact, and rounded once to float32. */
void aoserial_multiply_codes(const struct layer *layer) {
    run(share_codes, (struct product){layer, layer->x, 0, layer->count, 0});
}
