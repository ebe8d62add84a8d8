"""The oldest glibc that an environment runs on: what its packages say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from .platforms import OLDEST_GLIBC, Platform

# Names from before a tag said the version itself.
_OLD_TAGS = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
_TAG = re.compile(r"(manylinux1|manylinux2010|manylinux2014|manylinux_2_(\d+))_(.+)")


def needed_glibc(lock: Mapping[str, Any], aim: Platform) -> str | None:
    """Of all packages of a lock; ``aim`` is what counts for those that do not say. Images with it or newer will do."""
    if aim.libc == "musl" or not aim.linux:
        return aim.libc
    unsaid = aim.libc or OLDEST_GLIBC
    # Pythons of uv run on it. One of the machine's own says nothing, and runs nowhere else.
    found = [unsaid if lock["python"]["source"] == "host" else OLDEST_GLIBC]
    found += [_conda(one) or unsaid for one in lock["conda"] if one.get("subdir") != "noarch"]
    found += [_wheel(str(one.get("file") or one.get("url") or ""), aim.machine) or unsaid for one in lock["pip"]]
    return max(found, key=_minor)


def has_sources(lock: Mapping[str, Any]) -> bool:
    """Whether a package of pip's has to be built there: no wheel fitted."""
    return any(not _name(str(one.get("file") or one.get("url") or "")).endswith(".whl") for one in lock["pip"])


def _conda(package: Mapping[str, Any]) -> str | None:
    limits = [re.match(r"__glibc\s*>=\s*(\d+\.\d+)", str(one)) for one in package.get("depends", ())]
    return max((one[1] for one in limits if one), key=_minor, default=None)


def _wheel(place: str, machine: str) -> str | None:
    """The oldest that one of its tags names; None if it is built there, or if its tag is only ``linux``."""
    name = _name(place)
    if not name.endswith(".whl"):
        return None
    tags = name.removesuffix(".whl").split("-")[-1].split(".")
    if "any" in tags:
        return OLDEST_GLIBC
    minors = list(_minors(tags, machine))
    return f"2.{max(min(minors), _minor(OLDEST_GLIBC))}" if minors else None


def _minors(tags: Iterable[str], machine: str) -> Iterator[int]:
    for tag in tags:
        found = _TAG.fullmatch(tag)
        if found and found[3] == machine:
            yield int(found[2] or _OLD_TAGS[found[1]])


def _name(place: str) -> str:
    return unquote(place.split("?")[0].split("#")[0].rsplit("/", 1)[-1])


def _minor(glibc: str) -> int:
    return int(glibc.split(".")[1])
