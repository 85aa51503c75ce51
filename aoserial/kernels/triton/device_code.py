"""The kernels themselves. Only this module imports Triton.

Codes are decoded by integer operations, so that float8 runs on devices that have none. Sums are
float32; a product of float32 operands is a float32 product, not TF32.

Under TRITON_INTERPRET=1 bfloat16 cannot be multiplied or rounded to: callers give float32 there.
"""

import triton
import triton.language as tl

INT4, INT8, E4M3, E5M2, E4M3FNUZ = (tl.constexpr(number) for number in range(5))


@triton.jit
def values_of(codes, CODES: tl.constexpr):
    """float32 of codes [BN, BK], or of bytes [BN, BK/2] with even k in the low nibble.

    A byte of e4m3 moved to the right place of a float16 is the value over 2^8, or, in its form
    without a negative zero, over 2^7; e5m2 is the upper byte of a float16. So every finite code
    comes out exactly.
    """
    if CODES == INT4:
        values = tl.interleave(codes & 15, codes >> 4).to(tl.float32)
    elif CODES == INT8:
        values = codes.to(tl.int8, bitcast=True).to(tl.float32)
    elif CODES == E5M2:
        values = (codes.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        bits = codes.to(tl.uint16)
        moved = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        over: tl.constexpr = 256.0 if CODES == E4M3 else 128.0
        values = moved.to(tl.float16, bitcast=True).to(tl.float32) * over
    return values


@triton.jit
def spread(of_span, SPAN: tl.constexpr):
    """[BN, BK] of values [BN, BK/SPAN], each of SPAN neighbours."""
    BN: tl.constexpr = of_span.shape[0]
    SPANS: tl.constexpr = of_span.shape[1]
    wide = tl.broadcast_to(of_span[:, :, None], (BN, SPANS, SPAN))
    return tl.reshape(wide, (BN, SPANS * SPAN))


@triton.jit(do_not_specialize=["M"])  # one kernel for any number of rows
def weight_only(
    x,  # [M, K]
    codes,  # bytes [N, K], or [N, K/2] of INT4
    scale,  # float32 [ceil(N/ROWS), ceil(K/GROUP)]
    shift,  # the same shape: what is taken from the codes
    added,  # the same shape: what is added to the scaled codes
    bias,  # [N]
    y,  # [M, N]
    M,
    N,
    K,
    ROWS,
    GROUP,
    GROUPS,  # ceil(K/GROUP)
    CODES: tl.constexpr,
    MID: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
    HAS_ADDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SCALE_LAST: tl.constexpr,  # the scale, one for all k, multiplies the sum
    NARROW: tl.constexpr,  # each operation on the weight is rounded to ROUND
    ROUND: tl.constexpr,  # dtype of the weight
    SPAN: tl.constexpr,  # a power of two that divides BK: so many neighbouring k share a scale
    DOT: tl.constexpr,  # dtype in which the operands meet
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """y = x wᵀ + bias, w = (codes - MID - shift) scale + added."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    to_x = x + m.to(tl.int64)[:, None] * K
    per_byte: tl.constexpr = 2 if CODES == INT4 else 1
    row_bytes = K // per_byte
    to_codes = codes + n.to(tl.int64)[:, None] * row_bytes
    of_row = (n // ROWS)[:, None] * GROUPS
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        at = start // per_byte + tl.arange(0, BK // per_byte)
        here = (m[:, None] < M) & (k[None, :] < K)
        a = tl.load(to_x + k[None, :], here, other=0.0).to(DOT)
        there = (n[:, None] < N) & (at[None, :] < row_bytes)
        q = values_of(tl.load(to_codes + at[None, :], there, other=0), CODES) - MID
        first = start + tl.arange(0, BK // SPAN) * SPAN
        block = of_row + (first // GROUP)[None, :]
        inside = (n[:, None] < N) & (first[None, :] < K)
        if HAS_SHIFT:
            q -= spread(tl.load(shift + block, inside, other=0.0), SPAN)
            if NARROW:
                q = q.to(ROUND).to(tl.float32)
        if SCALE_LAST:
            w = q.to(DOT)
        else:
            w = q * spread(tl.load(scale + block, inside, other=0.0), SPAN)
            if HAS_ADDED:
                if NARROW:
                    w = w.to(ROUND).to(tl.float32)
                w += spread(tl.load(added + block, inside, other=0.0), SPAN)
            w = w.to(ROUND).to(DOT)
        sums = tl.dot(a, tl.trans(w), sums, input_precision="ieee")
    if SCALE_LAST:
        sums *= tl.load(scale + n // ROWS, n < N, other=0.0)[None, :]
    finish(sums, bias, y, m, n, M, N, HAS_BIAS)


@triton.jit(do_not_specialize=["M"])  # one kernel for any number of rows
def float8_by_float8(
    a,  # bytes or float8 [M, K]
    codes,  # bytes or float8 [N, K]
    a_scale,  # float32 [M], or [M, ceil(K/BK)] of blocks
    scale,  # float32 [N], or [ceil(N/ROWS), ceil(K/BK)] of blocks
    bias,  # [N]
    y,  # [M, N]
    M,
    N,
    K,
    ROWS,
    A_CODES: tl.constexpr,
    CODES: tl.constexpr,
    NATIVE: tl.constexpr,  # the operands are float8, and meet so
    IN_BLOCKS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,  # and the length of a block
):
    """y = (a a_scale) (codes scale)ᵀ + bias; scales enter after each block's sum, or after all."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    to_a = a + m.to(tl.int64)[:, None] * K
    to_codes = codes + n.to(tl.int64)[:, None] * K
    blocks = tl.cdiv(K, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        here = (m[:, None] < M) & (k[None, :] < K)
        there = (n[:, None] < N) & (k[None, :] < K)
        if NATIVE:
            left = tl.load(to_a + k[None, :], here, other=0.0)
            right = tl.load(to_codes + k[None, :], there, other=0.0)
            # at most BK products are summed in what the tensor cores keep; then in float32
            part = tl.dot(left, tl.trans(right), max_num_imprecise_acc=BK)
        else:
            left = values_of(tl.load(to_a + k[None, :], here, other=0), A_CODES)
            right = values_of(tl.load(to_codes + k[None, :], there, other=0), CODES)
            part = tl.dot(left.to(tl.float16), tl.trans(right.to(tl.float16)))
        if IN_BLOCKS:
            part *= tl.load(a_scale + m * blocks + start // BK, m < M, other=0.0)[:, None]
            part *= tl.load(scale + n // ROWS * blocks + start // BK, n < N, other=0.0)[None, :]
        sums += part
    if not IN_BLOCKS:
        sums *= tl.load(a_scale + m, m < M, other=0.0)[:, None]
        sums *= tl.load(scale + n, n < N, other=0.0)[None, :]
    finish(sums, bias, y, m, n, M, N, HAS_BIAS)


@triton.jit
def finish(sums, bias, y, m, n, M, N, HAS_BIAS: tl.constexpr):
    """Adds the bias and stores, rounded once to the dtype of y."""
    if HAS_BIAS:
        sums += tl.load(bias + n, n < N, other=0.0).to(tl.float32)[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    to_y = y + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(to_y, sums.to(y.dtype.element_ty), inside)
