"""Wheels that were made for another machine or another Python: their names say it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..environments.dependencies import DEFAULT_PYTHON, REQUIREMENTS, PipLine
from .finding import ERROR, WARNING, Case, Finding, found
from .tables import DEAD, PUBLIC
from .write import dotted, rewritten

_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl",
    re.IGNORECASE,
)
_MACHINES = ("x86_64", "aarch64", "i686", "ppc64le", "s390x", "armv7l")


def wheel_for_another_machine(case: Case) -> Iterator[Finding]:
    for line, parts in _wheels(case):
        platforms = parts["platform"].lower().split(".")
        if not case.linux or any(_runs(platform, case) for platform in platforms):
            continue
        target = "Linux" if any(one.startswith(("win", "macosx")) for one in platforms) else f"Linux on {case.machine}"
        message = f"a wheel for {parts['platform']} cannot be installed on {target}"
        hint, new = _other(line, parts, f"use the wheel whose name ends in linux_{case.machine} or manylinux")
        yield found("wheel", ERROR, line, message, hint, new)


def wheel_for_another_python(case: Case) -> Iterator[Finding]:
    for line, parts in _wheels(case):
        made = [one for one in (_python(tag) for tag in parts["python"].lower().split(".")) if one]
        wanted = case.python
        if wanted is None:
            yield from _unpinned(case, line, parts, made)
            continue
        if any(_fits(one, wanted, parts["abi"].lower()) for one in made):
            continue
        message = f"a wheel for {parts['python']} cannot be installed for Python {dotted(wanted)}"
        hint, new = _other(line, parts, f"use the wheel for cp{wanted[0]}{wanted[1]}")
        yield found("wheel-python", ERROR, line, message, hint, new)


def _unpinned(case: Case, line: PipLine, parts: re.Match[str], made: list[tuple[int, int | None]]) -> Iterator[Finding]:
    """Only what was built for exactly one Python is in doubt, and not if that is the one that is taken then."""
    if len(made) != 1 or made[0][1] is None or parts["abi"] in ("none", "abi3") or case.dependencies is None:
        return
    pin = f"{made[0][0]}.{made[0][1]}"
    if case.dependencies.python or (pin == DEFAULT_PYTHON and not case.dependencies.needs_conda):
        return  # a range is the solver's to judge
    where = "use a conda_dependencies.yml with" if case.dependencies.kind == REQUIREMENTS else "add"
    message = f"a wheel for Python {pin}, but no Python is pinned"
    yield found("wheel-python", WARNING, line, message, f"{where} `- python={pin}` under `dependencies:`")


def _wheels(case: Case) -> Iterator[tuple[PipLine, re.Match[str]]]:
    for line in case.pip:
        parts = _WHEEL.fullmatch(line.wheel or "")
        if parts:
            yield line, parts


def _other(line: PipLine, parts: re.Match[str], hint: str) -> tuple[str, str | None | bool]:
    """What to write instead: the package by its name, where that is certain to be the same one."""
    dead = any(re.search(rf"//{row.host}[:/]", line.url or "") for row in DEAD)
    if line.name in PUBLIC and not dead:
        new = f"{line.name}=={parts['version'].split('+')[0]}"
        return f"use {new} to let the resolver select the wheel, or {hint}", rewritten(line, new)
    return f"{hint}, or use the package name and version", False


def _runs(platform: str, case: Case) -> bool:
    if platform == "any":
        return True
    made_for = next((one for one in _MACHINES if platform.endswith(one)), None)
    return platform.startswith(("linux", "musllinux" if case.musl else "manylinux")) and made_for == case.machine


def _python(tag: str) -> tuple[int, int | None] | None:
    tagged = re.fullmatch(r"(?:cp|py)(\d)(\d*)", tag)
    return (int(tagged[1]), int(tagged[2]) if tagged[2] else None) if tagged else None


def _fits(made: tuple[int, int | None], wanted: tuple[int, int], abi: str) -> bool:
    major, minor = made
    if major != wanted[0]:
        return False
    if minor is None or minor == wanted[1]:
        return True
    return abi in ("abi3", "none") and minor < wanted[1]
