/* A quantized weight, and how its words lie in vectors.
 *
 * Eight lanes hold eight 32-bit words of a row, and in each lane lie the codes of neighbouring
 * columns: of four where a code is a byte, of eight where it is a nibble. Words are as they are in
 * memory, little-endian. Vectors are GCC's and Clang's; each is one register of AVX2, or two of
 * SSE2 or NEON.
 */

#ifndef AOSERIAL_WEIGHT_H
#define AOSERIAL_WEIGHT_H

#include <stdint.h>

enum { LANES = 8, MOST_ROWS = 16 };

typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

#if defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

/* The compiler makes vectors of the innermost loop, if it may take its time; Clang does anyhow. */
#ifdef __clang__
#define UNHURRIED
#else
#define UNHURRIED __attribute__((optimize("O3")))
#endif

/* Functions for processors that have more. Clang lets none of these give a vector to one that is for
 * all, though it becomes a part of the other. */
#if defined(__x86_64__) && !defined(__clang__)
#define HAS_TARGETS 1
#endif

#define INLINE static inline __attribute__((always_inline))

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

enum format { BYTES, NIBBLES, FLOAT8_E5M2, FLOAT8_E4M3, FLOAT6_E3M2, FLOAT6_E2M3, FLOAT4_E2M1 };

/* Scales are float32 [rows / block_rows, columns / group]. */
struct weight {
    const uint8_t *codes;
    const float *scale;
    const float *taken; /* from each code, in the decoder's unit; or NULL */
    const float *added; /* to each scaled code, in the same units; or NULL, as `taken` then is not */
    int64_t rows, columns, group, block_rows;
    int32_t format, bits; /* of a code; formats in the order of library.py */
    float unit;           /* of what the decoder gives */
    int32_t in_integers;  /* up to so many rows may be multiplied */
};

/* A number for each lane: of one group, or of two or four that share the vector. */
INLINE floats spread(const float *numbers, const int64_t lanes) {
    const float *n = numbers;
    if (lanes >= LANES) return (floats){} + n[0];
    if (lanes == 4) return (floats){n[0], n[0], n[0], n[0], n[1], n[1], n[1], n[1]};
    return (floats){n[0], n[0], n[1], n[1], n[2], n[2], n[3], n[3]};
}

/* Codes are read once, in the order of memory; what a processor fetches by itself is not enough. */
INLINE void fetch(const void *codes) { __builtin_prefetch((const char *)codes + 4096, 0, 3); }

INLINE float added_up(const floats v) {
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

union float32 {
    uint32_t bits;
    float value;
};

INLINE float widened(uint16_t bfloat16) {
    return ((union float32){(uint32_t)bfloat16 << 16}).value;
}

/* To the nearest bfloat16, and of two to the even one. */
INLINE uint16_t rounded(float value) {
    const uint32_t bits = ((union float32){.value = value}).bits;
    if (value != value) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

enum mode { SCALED, TAKEN_AND_SCALED, TAKEN_SCALED_AND_ADDED };

#endif
