/* Products of rows of activations with the rows of a quantized weight: with codes that become tiles
 * of bfloat16, with nibbles as they are, in integers, or with codes that are decoded, in float32; and
 * of int8 codes with int8 codes.
 */

#include <stdlib.h>

#include "code_tiles.h"
#include "codes.h"
#include "nibbles.h"
#include "numbers.h"
#include "quantizing.h"
#include "threads.h"
#include "tiles.h"
#include "weight.h"

/* For whoever packs the structs to compare. */
int64_t aoserial_layer_bytes(void) { return sizeof(struct layer); }
int64_t aoserial_quantizing_bytes(void) { return sizeof(struct quantizing); }

/* What this processor has, of `enum tiles_by`. */
int32_t aoserial_tiles(void) {
#if HAS_TILES
    return has_amx() ? AMX_TILES : has_vectors() ? VECTOR_TILES : NO_TILES;
#else
    return NO_TILES;
#endif
}

#if HAS_TILES
/* The least rows of x that are faster in tiles, by `enum tiles_by`. */
static const int64_t FEWEST[] = {INT64_MAX, 10, 3};

/* Multiplies rows of x by `some` until that cannot; how many it could. More rows at once would not
 * stay in a core's cache. */
static int64_t multiply_tiles(const struct layer *layer,
                              int (*some)(const struct layer *, int64_t first, int64_t count)) {
    enum { MOST = 256 };
    int64_t done = 0;
    for (int64_t count; done < layer->count; done += count) {
        count = least(layer->count - done, MOST);
        if (!some(layer, done, count)) break;
    }
    return done;
}
#endif

/* Whether there was memory for it. */
int32_t aoserial_multiply(const struct layer *layer) {
    /* Bytes, the last two of a number: of rows as floats, or of one that is cut. */
    enum { ALIGNMENT = 64, FLOAT = 4, CUT = 8 };
    int64_t start = 0;
#if HAS_TILES
    if (layer->count >= FEWEST[layer->tiles]) start = multiply_tiles(layer, multiply_in_tiles);
#endif
    const int64_t count = layer->count - start;
    if (!count) return 1;
    const int64_t rows = least(count, MOST_ROWS);
    void *room = aligned_alloc(ALIGNMENT, layer->weight.columns * (rows > 1 ? rows * FLOAT : CUT));
    if (!room) return 0;
    if (count > layer->weight.in_integers)
        multiply_numbers(layer, start, layer->count, room);
    else
        for (int64_t m = start; m < layer->count; m++)
            if (!multiply_nibbles(layer, m, room)) multiply_numbers(layer, m, m + 1, room);
    free(room);
    return 1;
}

/* The same of int8 codes. `taken` are the sums of the weight's rows, where tiles are to be used. */
int32_t aoserial_multiply_codes(const struct layer *layer) {
    enum { ALIGNMENT = 64 };
#if HAS_TILES
    if (layer->tiles == AMX_TILES)
        return multiply_tiles(layer, multiply_code_tiles) == layer->count;
#endif
    if (!layer->count) return 1;
    int16_t *x = aligned_alloc(ALIGNMENT, layer->count * layer->weight.columns * 2 + ALIGNMENT);
    if (!x) return 0;
    take_zeros(layer, x);
    run(share_codes, &(struct product){layer, x, 0, layer->count, 0}, layer->threads);
    free(x);
    return 1;
}

/* An activation's codes. */
void aoserial_quantize(const struct quantizing *of) {
    struct quantizing shared = *of;
    run(share_quantizing, &shared, of->threads);
}
