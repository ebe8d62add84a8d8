"""Format sizes, durations, and ages."""

from __future__ import annotations

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def size(count: float) -> str:
    """Return a size such as ``1.2 GB``. Units are powers of 1000, as is usual for disks and networks."""
    value = max(0.0, float(count))
    for unit in _SIZES:
        # 999.7 would be formatted as "1000".
        if value < 999.5 or unit == _SIZES[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"


def pluralize(count: int, singular: str, plural: str = "") -> str:
    """Return ``1 file`` or ``2 files``."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units (``3 min 12 s``); 0 if negative due to clock skew."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two_units(whole, _MINUTE, "min", 1, "s")
    if whole < _DAY:
        return _two_units(whole, _HOUR, "h", _MINUTE, "min")
    return _two_units(whole, _DAY, "d", _HOUR, "h")


def age(seconds: float) -> str:
    """Return an age in its largest unit, such as ``3 min ago``."""
    whole = int(max(0.0, seconds))
    for length, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s")):
        if whole >= length:
            return f"{whole // length} {unit} ago"
    return "just now"


def _two_units(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = whole % large // small
    return f"{whole // large} {large_unit}" + (f" {rest} {small_unit}" if rest else "")
