"""Wheel tags in file names: the Python versions and platforms that a wheel supports."""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

from .platforms import OLDEST_GLIBC, Platform

_OLD_TAGS = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12", "manylinux2014": "manylinux_2_17"}


class Tag(NamedTuple):
    """A wheel tag such as ``cp310-abi3-manylinux_2_17_x86_64``."""

    python: str
    abi: str
    platform: str

    def __str__(self) -> str:
        return "-".join(self)


def parse_tags(file: str) -> list[Tag]:
    """Return all tags in a wheel's file name."""
    *_, python, abi, platform = file.removesuffix(".whl").split("-")
    return [Tag(*parts) for parts in product(python.split("."), abi.split("."), platform.split("."))]


def is_compatible(tag: Tag, machine: Platform, python: str) -> bool:
    """Return whether a wheel with this tag runs on a machine with the given ``python`` version.

    CPython wheels without ``abi3`` are rejected, even if they are for this version. Tags such as ``py3`` match every
    version. Of the platform, the glibc version is compared, but not the versions of musl and macOS.
    """
    oldest = re.fullmatch(r"cp(\d)(\d+)", tag.python)
    if oldest and (tag.abi != "abi3" or _numbers(python) < (int(oldest[1]), int(oldest[2]))):
        return False
    platform = tag.platform
    if platform == "any":
        return True
    for old, new in _OLD_TAGS.items():
        platform = re.sub(rf"\A{old}_", f"{new}_", platform)
    parts = re.fullmatch(r"(manylinux|musllinux|macosx)_(\d+)_(\d+)_(\w+)", platform)
    if not parts or parts[4] != machine.machine:
        return False
    if machine.is_linux and machine.libc != "musl":
        return parts[1] == "manylinux" and (2, int(parts[3])) <= _numbers(machine.libc or OLDEST_GLIBC)
    return parts[1] == ("musllinux" if machine.is_linux else "macosx")


def _numbers(version: str) -> tuple[int, int]:
    first, second = (version + ".0").split(".")[:2]
    return int(first), int(second)
