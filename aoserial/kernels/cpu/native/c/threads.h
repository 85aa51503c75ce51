/* A product that threads share. */

#ifndef AOSERIAL_THREADS_H
#define AOSERIAL_THREADS_H

#include "weight.h"

enum tiles_by { NO_TILES, VECTOR_TILES, AMX_TILES }; /* what multiplies tiles */

/* y[count, rows] = x[count, columns] times the weight, and a bias; as library.py packs it.
 *
 * `x`, `y` and `bias` are bfloat16 or float32 each; of codes `x` is int8. */
struct layer {
    struct weight weight;
    const void *x;
    const float *scale;       /* of products of codes: of each row of x, [count]; else NULL */
    const int8_t *zero_point; /* of each row of codes, [count]; or NULL */
    const void *bias;         /* [rows]; or NULL */
    void *y;
    int64_t count;
    int32_t x_is_bfloat16, bias_is_bfloat16, y_is_bfloat16;
    int32_t threads; /* of OpenMP, where the process has it */
    int32_t tiles;   /* of `enum tiles_by`: what the processor has, or less */
};

/* Some rows of x, in a form of their own. Those of the weight are taken by who comes first. */
struct product {
    const struct layer *layer;
    const void *x;
    int64_t first, count; /* rows of x */
    int64_t next;         /* the first row of the weight that nobody has taken */
};

/* What nobody has taken yet, of which so much is taken. */
static inline int64_t next(int64_t *taken, int64_t more) {
    return __atomic_fetch_add(taken, more, __ATOMIC_RELAXED);
}

/* Neighbouring rows, so many that each thread has some turns, but few beginnings, at which codes have
 * not been fetched before. */
static int take_rows(struct product *of, int64_t *start, int64_t *stop) {
    enum { LEAST = 32, MOST = 128, TURNS = 8 };
    const int64_t rows = of->layer->weight.rows, share = rows / (of->layer->threads * TURNS);
    const int64_t some = share < LEAST ? LEAST : least(share, MOST);
    *start = next(&of->next, some);
    *stop = least(*start + some, rows);
    return *start < *stop;
}

/* Row m of x times a row of the weight goes where it belongs. */
INLINE void put(const struct product *of, int64_t m, int64_t row, float sum) {
    const struct layer *layer = of->layer;
    const int64_t at = (of->first + m) * layer->weight.rows + row;
    if (layer->scale) sum = sum * layer->scale[of->first + m] * layer->weight.scale[row];
    if (layer->bias)
        sum += layer->bias_is_bfloat16 ? widened(((const uint16_t *)layer->bias)[row])
                                       : ((const float *)layer->bias)[row];
    if (layer->y_is_bfloat16)
        ((uint16_t *)layer->y)[at] = rounded(sum);
    else
        ((float *)layer->y)[at] = sum;
}

/* OpenMP's threads are those of torch's own operators: they wait for work by spinning, so others
 * would get their cores late. NULL where the process has loaded no such library. */
#ifdef __linux__
__attribute__((weak)) void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
#else
static void (*const GOMP_parallel)(void (*)(void *), void *, unsigned, unsigned) = 0;
#endif

static void run(void (*work)(void *), void *of, int32_t threads) {
    if (threads > 1 && GOMP_parallel)
        GOMP_parallel(work, of, (unsigned)threads, 0);
    else
        work(of);
}

#endif
