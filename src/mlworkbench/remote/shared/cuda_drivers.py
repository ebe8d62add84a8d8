"""Which CUDA a driver of NVIDIA runs: the one table of it, as the release notes of CUDA have it; checked in 2026."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Optional, Tuple

    Version = Tuple[int, ...]

# The oldest Linux driver of each CUDA, newest first. 12.7 was never a CUDA of its own, only what its drivers say.
RELEASES: Tuple[Tuple[Version, str], ...] = (
    ((13, 4), "616.00"),
    ((13, 3), "610.43.02"),
    ((13, 2), "595.45.04"),
    ((13, 1), "590.44.01"),
    ((13, 0), "580.65.06"),
    ((12, 9), "575.51.03"),
    ((12, 8), "570.26"),
    ((12, 7), "565.57.01"),
    ((12, 6), "560.28.03"),
    ((12, 5), "555.42.02"),
    ((12, 4), "550.54.14"),
    ((12, 3), "545.23.06"),
    ((12, 2), "535.54.03"),
    ((12, 1), "530.30.02"),
    ((12, 0), "525.60.13"),
    ((11, 8), "520.61.05"),
    ((11, 7), "515.43.04"),
    ((11, 6), "510.39.01"),
    ((11, 5), "495.29.05"),
    ((11, 4), "470.42.01"),
    ((11, 3), "465.19.01"),
    ((11, 2), "460.27.03"),
    ((11, 1), "455.23"),
    ((11, 0), "450.36.06"),
    ((10, 2), "440.33"),
    ((10, 1), "418.39"),
    ((10, 0), "410.48"),
    ((9, 2), "396.26"),
    ((9, 1), "390.46"),
    ((9, 0), "384.81"),
    ((8, 0), "375.26"),
)
# From 11 on a driver runs every minor version of its CUDA, so that of the first one counts; for 11 that came later.
_WHOLE_FROM, _FIRST = 11, {11: "450.80.02"}


def cuda_of(driver: Optional[str]) -> Optional[str]:
    """The newest CUDA that came with a driver or before it ("550.54.14" → "12.4")."""
    if not driver or not re.match(r"\d+\.\d+", driver):
        return None
    # The first two numbers: packages of some systems leave the third one out.
    version = _numbers(driver)[:2]
    return next((".".join(map(str, cuda)) for cuda, oldest in RELEASES if version >= _numbers(oldest)[:2]), None)


def oldest_driver(cuda: Version) -> Optional[str]:
    """The oldest driver that runs programs built with a CUDA; None for one that nobody knows yet."""
    whole = cuda[0] >= _WHOLE_FROM
    wanted = (cuda[0], 0) if whole or len(cuda) == 1 else cuda[:2]
    return (_FIRST.get(cuda[0]) if whole else None) or dict(RELEASES).get(wanted)


def runs(driver: str, cuda: Version) -> bool:
    """Whether a driver runs what was built with a CUDA. Unknown ones are not judged."""
    oldest = oldest_driver(cuda)
    return oldest is None or _numbers(driver) >= _numbers(oldest)


def _numbers(driver: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", driver))
