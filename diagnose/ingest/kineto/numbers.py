"""Numbers of arguments as writers give them (integers, digits, whole floats) to what fits a column."""

from __future__ import annotations

_INT64 = (1 << 63) - 1
_INT32 = (1 << 31) - 1


def whole(value: object, *, limit: int = _INT64) -> int | None:
    """The integer a value stands for, None when it is none or beyond the limit."""
    if type(value) is int:
        return value if -limit <= value <= limit else None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        digits = value.strip()
        if len(digits) > 20 or not digits.removeprefix("-").isdecimal():
            return None
        value = int(digits)
    elif isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    return value if isinstance(value, int) and abs(value) <= limit else None


def small(value: object) -> int | None:
    """As ``whole``, for ranks and sizes of groups."""
    return whole(value, limit=_INT32)


def identifier(value: object) -> int | None:
    """An id that only equality matters for: 64-bit unsigned ones lose their highest bit to fit; negative is none."""
    found = whole(value, limit=1 << 64)
    return None if found is None or found < 0 else found & _INT64
