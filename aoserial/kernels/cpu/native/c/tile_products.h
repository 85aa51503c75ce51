/* Products of tiles: by AMX, which has registers of them, or by dot products of AVX512. */

#ifndef AOSERIAL_TILE_PRODUCTS_H
#define AOSERIAL_TILE_PRODUCTS_H

#include "tile.h"

#if HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>

#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8,avx512f")))
#define AMX_INLINE AMX INLINE

/* Where the columns of a tile are that begins at some column of a part. */
INLINE int64_t in_w(int64_t column) { return column / STEP * TILE + column % STEP; }

/* What of x one side takes in one piece. */
INLINE int64_t piece_of(const struct tiles *of) { return of->layer->weight.columns * SIDE; }

/* Registers: products are 0 to 3, tiles of the weight 4 and 5, of x 6 and 7. */
enum { REGISTERS = 8, FIRST_W = 4, FIRST_X = 6, LINE = 64 };

struct registers { /* as the processor reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t line_bytes[16];
    uint8_t lines[16];
};

/* A compiler is not told what memory the instructions on tiles read: all that comes before them is to
 * be written. */
INLINE void settle(const void *memory) { __asm__ volatile("" : : "r"(memory) : "memory"); }

/* depth: columns of bfloat16, half as many as of bytes. */
AMX static void begin_amx(int64_t depth) {
    struct registers registers = {.palette = 1};
    for (int i = 0; i < REGISTERS; i++) {
        const int is_w = i >= FIRST_W && i < FIRST_X;
        registers.lines[i] = (uint8_t)(i < FIRST_X ? SIDE : depth / PAIR);
        registers.line_bytes[i] = (uint16_t)(is_w ? depth * 2 : LINE);
    }
    settle(&registers);
    _tile_loadconfig(&registers);
}

AMX static void end_amx(void) { _tile_release(); }

AMX_INLINE void multiply_by_amx(const struct tiles *of, int64_t columns, const uint16_t *w,
                                const int two_w, const uint16_t *x, const int two_x,
                                float *products) {
    const int64_t next_w = of->stretch * SIDE;
    const int64_t piece = piece_of(of), next_x = piece * of->pieces;
    settle(w), settle(x);
    _tile_zero(0);
    if (two_x) _tile_zero(1);
    if (two_w) _tile_zero(2);
    if (two_x && two_w) _tile_zero(3);
    for (int64_t column = 0; column < columns; column += of->depth) {
        const uint16_t *codes = w + in_w(column), *numbers = x + column * SIDE;
        _tile_loadd(4, codes, LINE);
        if (two_w) _tile_loadd(5, codes + next_w, LINE);
        for (int64_t i = 0; i < of->pieces; i++, numbers += piece) {
            _tile_loadd(6, numbers, LINE);
            _tile_dpbf16ps(0, 4, 6);
            if (two_w) _tile_dpbf16ps(2, 5, 6);
            if (!two_x) continue;
            _tile_loadd(7, numbers + next_x, LINE);
            _tile_dpbf16ps(1, 4, 7);
            if (two_w) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, products, LINE);
    if (two_x) _tile_stored(1, products + PRODUCTS, LINE);
    if (two_w) _tile_stored(2, products + 2 * PRODUCTS, LINE);
    if (two_x && two_w) _tile_stored(3, products + 3 * PRODUCTS, LINE);
    settle(products);
}

AMX static void multiply_amx(const struct tiles *of, int64_t columns, const uint16_t *w, int two_w,
                             const uint16_t *x, int two_x, float *products) {
    if (two_w && two_x)
        multiply_by_amx(of, columns, w, 1, x, 1, products);
    else if (two_w)
        multiply_by_amx(of, columns, w, 1, x, 0, products);
    else if (two_x)
        multiply_by_amx(of, columns, w, 0, x, 1, products);
    else
        multiply_by_amx(of, columns, w, 0, x, 0, products);
}

static void begin_vectors(int64_t depth) { (void)depth; }
static void end_vectors(void) {}

/* One tile by one: a sum for each row of the weight, of which every lane has one row of x. */
VECTORS_INLINE void multiply_by_vectors(const struct tiles *of, int64_t columns, const uint16_t *w,
                                        const uint16_t *x, float *products) {
    __m512 sums[SIDE];
#pragma GCC unroll 16
    for (int n = 0; n < SIDE; n++) sums[n] = _mm512_setzero_ps();
    for (int64_t piece = 0; piece < of->pieces; piece++, x += piece_of(of))
        for (int64_t column = 0; column < columns; column += PAIR) {
            const __m512i numbers = _mm512_load_si512(x + column * SIDE);
            const uint32_t *pairs = (const uint32_t *)(w + in_w(column));
#pragma GCC unroll 16
            for (int n = 0; n < SIDE; n++) {
                const __m512i codes = _mm512_set1_epi32((int32_t)pairs[n * STEP / PAIR]);
                sums[n] = _mm512_dpbf16_ps(sums[n], (__m512bh)codes, (__m512bh)numbers);
            }
        }
#pragma GCC unroll 16
    for (int n = 0; n < SIDE; n++)
        _mm512_store_ps(products + n * SIDE, sums[n]);
}

VECTORS static void multiply_vectors(const struct tiles *of, int64_t columns, const uint16_t *w,
                                     int two_w, const uint16_t *x, int two_x, float *products) {
    for (int i = 0; i <= two_w; i++)
        for (int j = 0; j <= two_x; j++)
            multiply_by_vectors(of, columns, w + i * of->stretch * SIDE,
                                x + j * piece_of(of) * of->pieces,
                                products + (2 * i + j) * PRODUCTS);
}

static const struct instructions BY_AMX = {begin_amx, multiply_amx, end_amx};
static const struct instructions BY_VECTORS = {begin_vectors, multiply_vectors, end_vectors};

/* What this processor has; Linux wants to be asked for AMX. */
static int has_vectors(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
}

static int has_amx(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return has_vectors() && __builtin_cpu_supports("amx-tile") &&
           __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-int8") &&
           !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA);
}
#endif

#endif
