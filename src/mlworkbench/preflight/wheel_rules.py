"""Find wheels whose file names show that they are for another machine or Python version."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..environments.dependencies import DEFAULT_PYTHON, REQUIREMENTS, PipLine
from .finding import ERROR, WARNING, CheckContext, Finding, make_finding
from .pip_entries import format_version, with_marker
from .rule_data import DEAD_HOSTS, PUBLIC_PACKAGES

_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl",
    re.IGNORECASE,
)
_MACHINES = ("x86_64", "aarch64", "i686", "ppc64le", "s390x", "armv7l")


def wheel_for_another_machine(context: CheckContext) -> Iterator[Finding]:
    for line, parts in _wheels(context):
        platforms = parts["platform"].lower().split(".")
        if not context.is_linux or any(_is_supported(platform, context) for platform in platforms):
            continue
        target = (
            "Linux" if any(name.startswith(("win", "macosx")) for name in platforms) else f"Linux on {context.machine}"
        )
        message = f"a wheel for {parts['platform']} cannot be installed on {target}"
        hint, new = _replacement(line, parts, f"use the wheel whose name ends in linux_{context.machine} or manylinux")
        yield make_finding("wheel", ERROR, line, message, hint, new)


def wheel_for_another_python(context: CheckContext) -> Iterator[Finding]:
    for line, parts in _wheels(context):
        wheel_pythons = [
            version for version in (_parse_python_tag(tag) for tag in parts["python"].lower().split(".")) if version
        ]
        python = context.python
        if python is None:
            yield from _check_unpinned(context, line, parts, wheel_pythons)
            continue
        if any(_is_compatible(version, python, parts["abi"].lower()) for version in wheel_pythons):
            continue
        message = f"a wheel for {parts['python']} cannot be installed for Python {format_version(python)}"
        hint, new = _replacement(line, parts, f"use the wheel for cp{python[0]}{python[1]}")
        yield make_finding("wheel-python", ERROR, line, message, hint, new)


def _check_unpinned(
    context: CheckContext, line: PipLine, parts: re.Match[str], wheel_pythons: list[tuple[int, int | None]]
) -> Iterator[Finding]:
    """Warn about a wheel for one Python version if the project pins none, unless it is the default version."""
    if (
        len(wheel_pythons) != 1
        or wheel_pythons[0][1] is None
        or parts["abi"] in ("none", "abi3")
        or context.dependencies is None
    ):
        return
    pin = f"{wheel_pythons[0][0]}.{wheel_pythons[0][1]}"
    if context.dependencies.python or (pin == DEFAULT_PYTHON and not context.dependencies.needs_conda):
        return  # the resolver checks ranges
    where = "use a conda_dependencies.yml with" if context.dependencies.kind == REQUIREMENTS else "add"
    message = f"a wheel for Python {pin}, but no Python is pinned"
    yield make_finding("wheel-python", WARNING, line, message, f"{where} `- python={pin}` under `dependencies:`")


def _wheels(context: CheckContext) -> Iterator[tuple[PipLine, re.Match[str]]]:
    for line in context.pip:
        parts = _WHEEL.fullmatch(line.wheel or "")
        if parts:
            yield line, parts


def _replacement(line: PipLine, parts: re.Match[str], hint: str) -> tuple[str, str | None | bool]:
    """Return a hint and a replacement.

    The replacement is the package name and version, and is offered only for known public packages.
    """
    dead = any(re.search(rf"//{row.host}[:/]", line.url or "") for row in DEAD_HOSTS)
    if line.name in PUBLIC_PACKAGES and not dead:
        new = f"{line.name}=={parts['version'].split('+')[0]}"
        return f"use {new} to let the resolver select the wheel, or {hint}", with_marker(line, new)
    return f"{hint}, or use the package name and version", False


def _is_supported(platform: str, context: CheckContext) -> bool:
    if platform == "any":
        return True
    machine = next((name for name in _MACHINES if platform.endswith(name)), None)
    return (
        platform.startswith(("linux", "musllinux" if context.is_musl else "manylinux")) and machine == context.machine
    )


def _parse_python_tag(tag: str) -> tuple[int, int | None] | None:
    match = re.fullmatch(r"(?:cp|py)(\d)(\d*)", tag)
    return (int(match[1]), int(match[2]) if match[2] else None) if match else None


def _is_compatible(wheel_python: tuple[int, int | None], python: tuple[int, int], abi: str) -> bool:
    major, minor = wheel_python
    if major != python[0]:
        return False
    if minor is None or minor == python[1]:
        return True
    return abi in ("abi3", "none") and minor < python[1]
