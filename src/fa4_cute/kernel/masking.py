"""Masks on a row of scores held in registers.

Both the end of the keys and the causal diagonal hide a suffix of the row, so one number says it all: how many of
the tile's columns this row may see (<= 0: none, >= the tile: all).
"""

from cutlass import Float32

from . import ptx

WORD_COLUMNS = 32


def hide_suffix(scores: list, visible) -> list:
    """`scores` with -inf in every column from `visible` (Int32, may be negative) on.

    Visibility is a bit in a word of 32 columns: ptxas turns the bit tests of a word into predicate-register loads
    (R2P), one for seven columns, where a comparison for every column would double the instructions.
    """
    masked = []
    for first in range(0, len(scores), WORD_COLUMNS):
        word = ptx.low_bits(visible - first)
        for i in range(WORD_COLUMNS):
            seen = (word & (1 << i)) != 0
            masked.append(ptx.select(seen, scores[first + i], Float32(-float("inf"))))
    return masked
