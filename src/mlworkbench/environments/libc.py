"""The oldest glibc version that an environment supports, determined from its packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from .platforms import OLDEST_GLIBC, Platform

# Minor glibc version of each legacy tag, which does not include the version.
_OLD_TAGS = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
_TAG = re.compile(r"(manylinux1|manylinux2010|manylinux2014|manylinux_2_(\d+))_(.+)")


def required_glibc(lock: Mapping[str, Any], platform: Platform) -> str | None:
    """Return the oldest glibc that all packages of a lock support. Images need this version or newer.

    The C library of ``platform`` is assumed for packages that do not specify one.
    """
    if platform.libc == "musl" or not platform.is_linux:
        return platform.libc
    default = platform.libc or OLDEST_GLIBC
    # Python builds from uv support OLDEST_GLIBC. For the machine's own Python, assume the default.
    versions = [default if lock["python"]["source"] == "host" else OLDEST_GLIBC]
    versions += [_conda_glibc(entry) or default for entry in lock["conda"] if entry.get("subdir") != "noarch"]
    versions += [
        _wheel_glibc(str(entry.get("file") or entry.get("url") or ""), platform.machine) or default
        for entry in lock["pip"]
    ]
    return max(versions, key=_minor)


def has_sources(lock: Mapping[str, Any]) -> bool:
    """Return whether a pip package has to be built on the target because no wheel matches."""
    return any(
        not _file_name(str(entry.get("file") or entry.get("url") or "")).endswith(".whl") for entry in lock["pip"]
    )


def _conda_glibc(package: Mapping[str, Any]) -> str | None:
    limits = [re.match(r"__glibc\s*>=\s*(\d+\.\d+)", str(item)) for item in package.get("depends", ())]
    return max((item[1] for item in limits if item), key=_minor, default=None)


def _wheel_glibc(location: str, machine: str) -> str | None:
    """Return the oldest version in a wheel's tags, or None for source packages and ``linux`` tags."""
    name = _file_name(location)
    if not name.endswith(".whl"):
        return None
    tags = name.removesuffix(".whl").split("-")[-1].split(".")
    if "any" in tags:
        return OLDEST_GLIBC
    minors = list(_minors(tags, machine))
    return f"2.{max(min(minors), _minor(OLDEST_GLIBC))}" if minors else None


def _minors(tags: Iterable[str], machine: str) -> Iterator[int]:
    for tag in tags:
        match = _TAG.fullmatch(tag)
        if match and match[3] == machine:
            yield int(match[2] or _OLD_TAGS[match[1]])


def _file_name(location: str) -> str:
    return unquote(location.split("?")[0].split("#")[0].rsplit("/", 1)[-1])


def _minor(glibc: str) -> int:
    return int(glibc.split(".")[1])
