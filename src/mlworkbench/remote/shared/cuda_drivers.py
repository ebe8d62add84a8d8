"""CUDA versions that an NVIDIA driver supports, from the CUDA release notes as of 2026."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional, Tuple

    Version = Tuple[int, ...]

# Oldest Linux driver for each CUDA version, newest first. CUDA 12.7 was never released, but drivers report it.
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
# Since CUDA 11, the driver for x.0 runs all minor versions x.y. CUDA 11 needs a later driver than 11.0 required.
_MINOR_COMPATIBLE_FROM, _FIRST_DRIVERS = 11, {11: "450.80.02"}


def newest_cuda(driver: Optional[str]) -> Optional[str]:
    """Return the newest CUDA version that a driver supports ("550.54.14" → "12.4")."""
    if not driver or not re.match(r"\d+\.\d+", driver):
        return None
    # Only the first two numbers: some Linux distributions omit the third one.
    version = _parse_version(driver)[:2]
    return next((".".join(map(str, cuda)) for cuda, oldest in RELEASES if version >= _parse_version(oldest)[:2]), None)


def oldest_driver(cuda: Version) -> Optional[str]:
    """Return the oldest driver for programs built with a CUDA version, or None if it is not listed."""
    minor_compatible = cuda[0] >= _MINOR_COMPATIBLE_FROM
    release = (cuda[0], 0) if minor_compatible or len(cuda) == 1 else cuda[:2]
    return (_FIRST_DRIVERS.get(cuda[0]) if minor_compatible else None) or dict(RELEASES).get(release)


def driver_supports(driver: str, cuda: Version) -> bool:
    """Return whether a driver runs programs built with a CUDA version; True for unlisted versions."""
    oldest = oldest_driver(cuda)
    return oldest is None or _parse_version(driver) >= _parse_version(oldest)


def _parse_version(driver: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", driver))
