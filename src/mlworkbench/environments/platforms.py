"""Target platforms for resolvers: conda name, C library, and newest CUDA that the driver supports."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..remote.shared.cuda_drivers import newest_cuda
from .facts_access import fact

if TYPE_CHECKING:
    from .facts_access import FactSource

_SUBDIRS = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("linux", "ppc64le"): "linux-ppc64le",
    ("darwin", "x86_64"): "osx-64",
    ("darwin", "arm64"): "osx-arm64",
}
# Minor glibc versions known to uv, oldest first. A wheel tag names the oldest supported version.
_MANYLINUX = (17, 28, *range(31, 41))
OLDEST_GLIBC = "2.17"  # default: supported by all builds of the last ten years
# Environments for containers target this version, so that they run in all recent images (Debian 10, RHEL 8).
CONTAINER_GLIBC = "2.28"


@dataclass(frozen=True)
class Platform:
    """Everything that determines which builds run on a machine."""

    subdir: str
    libc: str | None = None  # "2.36" for glibc, "musl", or None if neither
    cuda: str | None = None
    kernel: str | None = None

    @property
    def is_linux(self) -> bool:
        return self.subdir.startswith("linux-")

    @property
    def machine(self) -> str:
        return {"64": "x86_64", "arm64": "arm64"}.get(self.subdir.split("-")[1], self.subdir.split("-")[1])

    @property
    def uv_name(self) -> str:
        """Return uv's name for the platform."""
        if self.subdir.startswith("osx-"):
            return {"osx-64": "x86_64-apple-darwin"}.get(self.subdir, "aarch64-apple-darwin")
        if self.libc == "musl":
            return f"{self.machine}-unknown-linux-musl"
        minor = _numbers(self.libc or OLDEST_GLIBC)[1]
        compatible = [version for version in _MANYLINUX if version <= minor] or [_MANYLINUX[0]]
        return f"{self.machine}-manylinux_2_{compatible[-1]}"

    def virtual_packages(self) -> list[tuple[str, str, str]]:
        """Return conda's virtual packages for the machine as name, version, and build."""
        packages = [("__unix", "0", "0")]
        # Use the generic microarchitecture: the facts contain no details, and generic builds run everywhere.
        packages.append(("__archspec", "1", self.machine.replace("arm64", "m1")))
        if self.is_linux:
            packages.append(("__linux", _kernel(self.kernel), "0"))
            if self.libc != "musl":
                packages.append(("__glibc", self.libc or OLDEST_GLIBC, "0"))
        else:
            packages.append(("__osx", "11.0", "0"))
        if self.cuda:
            packages.append(("__cuda", self.cuda, "0"))
        return packages


def platform_of(facts: FactSource, glibc: str | None = None, cuda: bool = True) -> Platform:
    """Return the platform of a machine, or of an image with another ``glibc``.

    ``cuda`` is true if the run has GPUs.
    """
    os_facts = {name: fact(facts, "os", name) for name in ("system", "arch", "libc", "kernel")}
    system, arch = (os_facts["system"] or "").lower(), (os_facts["arch"] or "").lower()
    subdir = _SUBDIRS.get((system, {"amd64": "x86_64"}.get(arch, arch)))
    if subdir is None:
        supported = ", ".join(sorted(set(_SUBDIRS.values())))
        raise ConfigError(
            f"environments are not supported for {os_facts['system'] or 'unknown'} on {os_facts['arch'] or 'unknown'};"
            f" supported: {supported}",
            "install Python on the target, and set userManagedEnvironment: true and pythonLocation",
        )
    return Platform(
        subdir=subdir,
        libc=glibc or _libc(os_facts["libc"]) if system == "linux" else None,
        cuda=newest_cuda(fact(facts, "nvidia", "driver")) if cuda else None,
        kernel=os_facts["kernel"],
    )


def _libc(text: str | None) -> str | None:
    if text and text.startswith("musl"):
        return "musl"
    match = re.fullmatch(r"glibc (\d+\.\d+)(?:\.\d+)?", text or "")
    return match[1] if match else None


def _kernel(release: str | None) -> str:
    match = re.match(r"\d+(?:\.\d+)*", release or "")
    return match[0] if match else "0"


def _numbers(version: str) -> tuple[int, int]:
    first, second = version.split(".")[:2]
    return int(first), int(second)


def with_older_libc(platform: Platform, glibc: str) -> Platform:
    """Return the platform with another C library if that library is older."""
    if platform.libc in (None, "musl") or (glibc != "musl" and _numbers(glibc) >= _numbers(str(platform.libc))):
        return platform
    return replace(platform, libc=glibc)
