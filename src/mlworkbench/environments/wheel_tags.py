"""Wheel tags: for which Pythons and platforms a wheel is, read from its file name."""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

from .platforms import OLDEST_GLIBC, Platform

_OLD_TAGS = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12", "manylinux2014": "manylinux_2_17"}


class Tag(NamedTuple):
    """``cp310-abi3-manylinux_2_17_x86_64``."""

    python: str
    abi: str
    platform: str

    def __str__(self) -> str:
        return "-".join(self)


def tags_of(file: str) -> list[Tag]:
    """All tags of a wheel."""
    *_, python, abi, platform = file.removesuffix(".whl").split("-")
    return [Tag(*one) for one in product(python.split("."), abi.split("."), platform.split("."))]


def fits(tag: Tag, machine: Platform, python: str) -> bool:
    """Whether a wheel with this tag runs there. ``python`` is the version of the Python that would import it."""
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
    if machine.linux and machine.libc != "musl":
        return parts[1] == "manylinux" and (2, int(parts[3])) <= _numbers(machine.libc or OLDEST_GLIBC)
    return parts[1] == ("musllinux" if machine.linux else "macosx")


def _numbers(version: str) -> tuple[int, int]:
    first, second = (version + ".0").split(".")[:2]
    return int(first), int(second)
