/* A product that threads share. */

#ifndef AOSERIAL_THREADS_H
#define AOSERIAL_THREADS_H

#include "weight.h"

/* y[count, rows] = x[count, columns] times the weight, and a bias; as library.py packs it.
 *
 * `x`, `y` and `bias` are bfloat16 or float32 each. */
struct layer {
    struct weight weight;
    const void *x;
    const float *scale; /* of products of codes: of each row of x, [count]; else NULL */
    const void *bias;   /* [rows]; or NULL */
    void *y;
    int64_t count;
    int32_t x_is_bfloat16, bias_is_bfloat16, y_is_bfloat16;
    int32_t threads; /* of OpenMP, where the process has it */
};

/* Some rows of x, in a form of their own. Those of the weight are taken by who comes first. */
struct product {
    const struct layer *layer;
    const void *x;
    int64_t first, count; /* rows of x */
    int64_t next;         /* the first row of the weight that nobody has taken */
};

static int take_rows(struct product *of, int64_t *start, int64_t *stop) {
    enum { STEP = 32 };
    *start = __atomic_fetch_add(&of->next, STEP, __ATOMIC_RELAXED);
    const int64_t rows = of->layer->weight.rows;
    *stop = *start + STEP < rows ? *start + STEP : rows;
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

static void run(void (*work)(void *), struct product of) {
    if (of.layer->threads > 1 && GOMP_parallel)
        GOMP_parallel(work, &of, (unsigned)of.layer->threads, 0);
    else
        work(&of);
}

#endif
