"""Times as written (microseconds: integers, floats, strings) to exact integer nanoseconds.

Floats relative to a base carry three decimals and stay below 8.7e12 us, where a double still tells every
nanosecond apart; floats of absolute unix time do not, and are read from their text instead.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import TYPE_CHECKING

import numpy as np

from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EXACT_LIMIT_US = 8.7e12
"""2**43 us: below it neighbouring doubles are less than 1 ns apart."""

_MAX_US = 9.2e15


class InexactTimeError(ValueError):
    """These floats cannot be told apart to the nanosecond: decode their text."""


def times_ns(values: Sequence[object]) -> NDArray[np.int64]:
    """Nanoseconds; UNKNOWN where a value is absent, no number or beyond what 64 bits hold.

    Raises:
        InexactTimeError: floats too large for a double to be exact.
    """
    if not values:
        return np.empty(0, np.int64)
    try:
        column = np.array(values)
    except (ValueError, OverflowError):
        column = np.array(values, dtype=object)
    if column.dtype.kind == "i":
        inside = (column < _MAX_US) & (column > -_MAX_US)
        result: NDArray[np.int64] = np.where(inside, np.where(inside, column, 0) * 1000, UNKNOWN)
        return result
    if column.dtype.kind == "f" and np.abs(column).max() < EXACT_LIMIT_US:
        whole = np.floor(column)  # exact, as is the difference: only it is rounded
        exact: NDArray[np.int64] = whole.astype(np.int64) * 1000 + np.rint((column - whole) * 1000).astype(np.int64)
        return exact
    if any(isinstance(value, float) and abs(value) >= EXACT_LIMIT_US for value in values):
        raise InexactTimeError
    return np.array([_one(value) for value in values], np.int64)


def text_ns(text: bytes | str) -> int:
    """One time from its text; UNKNOWN when it is no number."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    whole, _, fraction = text.strip().strip('"').partition(".")
    if len(fraction) <= 3 and whole.isdigit() and (fraction.isdigit() or not fraction):
        value = int(whole) * 1000 + int((fraction + "000")[:3])
        return value if whole and len(whole) < 17 else UNKNOWN
    try:
        value = int((Decimal(text.strip().strip('"')) * 1000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError, OverflowError):
        return UNKNOWN
    return value if abs(value) < _MAX_US * 1000 else UNKNOWN


def _one(value: object) -> int:
    if isinstance(value, bool) or value is None:
        return UNKNOWN
    if isinstance(value, int):
        return value * 1000 if abs(value) < _MAX_US else UNKNOWN
    if isinstance(value, float):
        if value != value or abs(value) >= _MAX_US:
            return UNKNOWN
        whole = int(value // 1)
        return whole * 1000 + round((value - whole) * 1000)
    return text_ns(str(value))
