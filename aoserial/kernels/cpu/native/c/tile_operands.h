/* What tiles are made of: an activation in pieces of bfloat16, and codes as bfloat16, which holds
 * whatever a code of eight bits or fewer stands for. */

#ifndef AOSERIAL_TILE_OPERANDS_H
#define AOSERIAL_TILE_OPERANDS_H

#include "decoders.h"
#include "tile.h"

#if HAS_TILES

/* Numbers less their upper halves, whose lowest bit is the highest that bfloat16 lacks. Infinities
 * and NaN are wholly in the upper half: NaN has a bit there. */
VECTORS_INLINE __m512 rest_of(__m512 numbers, __m512 *upper) {
    enum { NAN_CLASSES = 0x81, INFINITIES = 0x18, QUIET = 1 << 22, UPPER = (int32_t)0xffff0000 };
    const __mmask16 nan = _mm512_fpclass_ps_mask(numbers, NAN_CLASSES);
    const __mmask16 special = _mm512_fpclass_ps_mask(numbers, NAN_CLASSES | INFINITIES);
    const __m512i bits = _mm512_castps_si512(numbers);
    const __m512i marked = _mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(QUIET));
    *upper = _mm512_castsi512_ps(_mm512_and_si512(marked, _mm512_set1_epi32(UPPER)));
    return _mm512_maskz_sub_ps((__mmask16)~special, numbers, *upper);
}

/* The first of a step's 32 columns, the second, and so on, as words of a vector have them. */
VECTORS_INLINE __m512i order_of(const int bits) {
    int16_t order[STEP];
    for (int i = 0; i < STEP; i++)
        order[i] = (int16_t)(bits == 8 ? i : i / 16 * 16 + i % 4 * 4 + i % 16 / 4);
    return _mm512_loadu_si512(order);
}

/* A step of a row, in pieces. */
VECTORS_INLINE void cut_step(const struct tiles *of, const char *x, const __m512i order,
                             __m512i pieces[MOST_PIECES]) {
    if (of->layer->x_is_bfloat16) {
        pieces[0] = _mm512_permutexvar_epi16(order, _mm512_loadu_si512(x));
        return;
    }
    const __m512i uppers = _mm512_or_si512(_mm512_add_epi16(order, order), _mm512_set1_epi16(1));
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + sizeof low);
    for (int64_t piece = 0; piece < of->pieces; piece++) {
        __m512 low_upper, high_upper;
        low = rest_of(low, &low_upper);
        high = rest_of(high, &high_upper);
        pieces[piece] = _mm512_permutex2var_epi16(_mm512_castps_si512(low_upper), uppers,
                                                  _mm512_castps_si512(high_upper));
    }
}

/* Writes a side of x; rows that there are not are 0. */
VECTORS_INLINE void place_side(const struct tiles *of, int64_t side) {
    enum { PAIRS = STEP / PAIR };
    const struct weight *weight = &of->layer->weight;
    const int64_t columns = weight->columns, size = of->layer->x_is_bfloat16 ? 2 : 4;
    const int64_t there = least(of->count - side * SIDE, SIDE);
    const char *x = (const char *)of->layer->x + (of->first + side * SIDE) * columns * size;
    uint32_t *placed = (uint32_t *)(of->x + side * SIDE * columns * of->pieces);
    const __m512i order = order_of(weight->bits);
    for (int64_t column = 0; column < columns; column += STEP) {
        __m512i pieces[SIDE][MOST_PIECES];
        for (int64_t m = 0; m < there; m++)
            cut_step(of, x + (m * columns + column) * size, order, pieces[m]);
        for (int64_t piece = 0; piece < of->pieces; piece++) {
            uint32_t *to = placed + (piece * columns + column) / PAIR * SIDE;
            for (int64_t i = 0; i < PAIRS; i++)
                for (int64_t m = 0; m < SIDE; m++)
                    *to++ = m < there ? ((const uint32_t *)&pieces[m][piece])[i] : 0;
        }
    }
}

/* Adds up the parts of the rows of a side. Whether all sums are numbers. */
VECTORS_INLINE int add_up_side(const struct tiles *of, int64_t side) {
    const int64_t columns = of->layer->weight.columns, all = of->sides * SIDE;
    const int64_t first = side * SIDE, last = least(first + SIDE, of->count);
    int are_numbers = 1;
    for (int64_t m = first; m < last; m++) {
        const int64_t row = (of->first + m) * columns;
        float *to = of->sums + m;
        for (int64_t column = 0, end; column < columns; column = end, to += all) {
            floats sums = {};
            end = column + part_at(of, column);
            for (int64_t i = row + column; i < row + end; i += LANES)
                if (of->layer->x_is_bfloat16) {
                    const __m128i *narrow = (const __m128i *)((const uint16_t *)of->layer->x + i);
                    const ints wide = (ints)_mm256_cvtepu16_epi32(_mm_loadu_si128(narrow));
                    sums += (floats)(wide << 16);
                } else {
                    sums += *(const floats *)((const float *)of->layer->x + i);
                }
            *to = added_up(sums);
            are_numbers &= *to - *to == 0;
        }
    }
    return are_numbers;
}

static void list_values(struct tiles *of) {
    static const decoder BY_FORMAT[] = {int8, int4, e5m2, e4m3, e3m2, e2m3, e2m1};
    const struct weight *weight = &of->layer->weight;
    for (int32_t code = 0; code < 256; code++) {
        const ints word = {code & ((1 << weight->bits) - 1)};
        const floats value = BY_FORMAT[weight->format](word, 0) * weight->unit;
        of->values[code] = (uint16_t)(((union float32){.value = value[0]}).bits >> 16);
        of->bytes[0][code] = (uint8_t)of->values[code];
        of->bytes[1][code] = (uint8_t)(of->values[code] >> 8);
    }
}

enum { REGISTER = 64, ALL_CODES = 256 / REGISTER };

/* A byte of the value of each code. Where half of a table is enough the other has the same with a
 * sign, which is the code's. */
VECTORS_INLINE __m512i look_up(const __m512i table[ALL_CODES], const __m512i codes,
                               const int have_sign, const int is_upper) {
    const __m512i found = _mm512_permutex2var_epi8(table[0], codes, table[1]);
    if (have_sign && !is_upper) return found;
    if (have_sign) { /* found | codes & 0x80 */
        enum { OR_AND = 0xf8 };
        return _mm512_ternarylogic_epi32(found, codes, _mm512_set1_epi8(INT8_MIN), OR_AND);
    }
    const __m512i others = _mm512_permutex2var_epi8(table[2], codes, table[3]);
    return _mm512_mask_mov_epi8(found, _mm512_movepi8_mask(codes), others);
}

/* Decodes columns of some rows into tiles, whose next rows lie `stretch` columns further on. */
VECTORS_INLINE void decode_bytes(const struct tiles *of, int64_t row, int64_t rows, int64_t column,
                                 int64_t columns, const int have_sign, uint16_t *decoded) {
    const struct weight *weight = &of->layer->weight;
    __m512i lower[ALL_CODES], upper[ALL_CODES];
    for (int i = 0; i < ALL_CODES; i++) {
        lower[i] = _mm512_loadu_si512(of->bytes[0] + i * REGISTER);
        upper[i] = _mm512_loadu_si512(of->bytes[1] + i * REGISTER);
    }
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); /* as they are unpacked */
    for (int64_t n = 0; n < rows; n++) {
        const uint8_t *codes = weight->codes + (row + n) * weight->columns + column;
        uint16_t *to = decoded + n / SIDE * SIDE * of->stretch + n % SIDE * STEP;
        for (int64_t i = 0; i < columns; i += 2 * STEP, to += 2 * TILE) {
            _mm_prefetch((const char *)codes + i + of->stretch, _MM_HINT_T1);
            const int are_two = columns - i > STEP;
            const __m512i some = are_two ? _mm512_loadu_si512(codes + i)
                                         : _mm512_maskz_loadu_epi8(UINT32_MAX, codes + i);
            const __m512i placed = _mm512_permutexvar_epi64(order, some);
            const __m512i low = look_up(lower, placed, have_sign, 0);
            const __m512i high = look_up(upper, placed, have_sign, 1);
            _mm512_store_si512(to, _mm512_unpacklo_epi8(low, high));
            if (are_two) _mm512_store_si512(to + TILE, _mm512_unpackhi_epi8(low, high));
        }
    }
}

VECTORS_INLINE void decode_nibbles(const struct tiles *of, int64_t row, int64_t rows,
                                   int64_t column, int64_t columns, uint16_t *decoded) {
    const struct weight *weight = &of->layer->weight;
    const __m512i table = _mm512_loadu_si512(of->values);
    const __m512i halves = _mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1);
    const int64_t fours = 0x0004000400040004;
    const __m512i shifts =
        _mm512_broadcast_i64x4(_mm256_setr_epi64x(0, fours, 2 * fours, 3 * fours));
    for (int64_t n = 0; n < rows; n++) {
        const uint8_t *codes = weight->codes + ((row + n) * weight->columns + column) / 2;
        uint16_t *to = decoded + n / SIDE * SIDE * of->stretch + n % SIDE * STEP;
        for (int64_t i = 0; i < columns; i += STEP, to += TILE) {
            if (i % (2 * REGISTER) == 0)
                _mm_prefetch((const char *)codes + (i + of->stretch) / 2, _MM_HINT_T1);
            const __m128i some = _mm_loadu_si128((const __m128i *)(codes + i / 2));
            const __m512i words = _mm512_permutexvar_epi64(halves, _mm512_castsi128_si512(some));
            const __m512i nibbles = _mm512_srlv_epi16(words, shifts);
            _mm512_store_si512(to, _mm512_permutexvar_epi16(nibbles, table));
        }
    }
}

VECTORS_INLINE void decode(const struct tiles *of, int64_t row, int64_t rows, int64_t column,
                           int64_t columns, uint16_t *decoded) {
    const struct weight *weight = &of->layer->weight;
    if (weight->bits == 4)
        decode_nibbles(of, row, rows, column, columns, decoded);
    else if (weight->format == FLOAT8_E5M2 || weight->format == FLOAT8_E4M3)
        decode_bytes(of, row, rows, column, columns, 1, decoded);
    else
        decode_bytes(of, row, rows, column, columns, 0, decoded);
}
#endif

#endif
