"""2**x for pairs of scores, on the special function unit or on the FMA pipes.

The SFU gives 16 results a clock and SM, which is what bounds attention with small heads; a share of the elements,
chosen by the configuration, is computed with a polynomial on the otherwise less loaded FMA pipes instead.
"""

from cutlass import Float32, cute

from . import ptx

# Degree-3 minimax fit of 2**f on [0, 1) with p(0) = 1, relative error 8.8e-5: below half a bf16 ulp of P.
_POLYNOMIAL = (1.0, 0.695146143436431884765625, 0.227564394474029541015625, 0.077119089663028717041015625)
_ROUND_TO_INT = float(2**23 + 2**22)  # x + this, rounded down, holds floor(x) in its low mantissa bits
_SMALLEST_EXPONENT = -127.0  # 2**-127 is flushed to zero; anything lower would wrap the exponent


def _scale_by_power(rounded: Float32, fraction: Float32) -> Float32:
    """fraction * 2**n where n sits in the low bits of `rounded`: adds n to the exponent field."""
    return ptx.bits_float((ptx.float_bits(rounded) << 23) + ptx.float_bits(fraction))


def exp2_pair_sfu(pair):
    """ex2.approx.ftz on both elements."""
    return tuple(cute.math.exp2(x, fastmath=True) for x in pair)


def exp2_pair_fma(pair):
    """Cody-Waite on both elements, packed: floor by a round-down add, polynomial in the fraction, exponent add.

    Needs x <= 127; a NaN becomes a tiny number, which is harmless because a row with a NaN score also has NaN in
    its sum (the row maximum propagates NaN and the SFU elements of the row see it).
    """
    clamped = tuple(cute.arch.fmax(x, _SMALLEST_EXPONENT) for x in pair)
    magic = (_ROUND_TO_INT, _ROUND_TO_INT)
    rounded = cute.arch.add_packed_f32x2(clamped, magic, rnd="rm", ftz=True)
    floor = cute.arch.sub_packed_f32x2(rounded, magic, ftz=True)
    fraction = cute.arch.sub_packed_f32x2(clamped, floor, ftz=True)
    value = (_POLYNOMIAL[-1],) * 2
    for coefficient in _POLYNOMIAL[-2::-1]:
        value = ptx.fma2(value, fraction, (coefficient, coefficient))
    return tuple(_scale_by_power(r, v) for r, v in zip(rounded, value, strict=True))


def polynomial_pairs(pairs: int, fraction: float, chunk: int) -> frozenset[int]:
    """Which of a row's `pairs` go to the FMA pipes: `fraction` of them, spread evenly over the middle chunks.

    None in the first chunk (its results are needed first to start storing P) and none in the last (the SFU has the
    tail to itself anyway). `chunk` is the number of pairs stored to TMEM at a time.
    """
    eligible = range(chunk, pairs - chunk)
    wanted = round(pairs * fraction)
    if wanted > len(eligible):
        raise ValueError(f"exp2_poly_fraction={fraction} wants {wanted} of {len(eligible)} eligible pairs")
    return frozenset(eligible[(2 * i + 1) * len(eligible) // (2 * wanted)] for i in range(wanted))
