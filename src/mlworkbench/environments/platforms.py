"""What a target is to a resolver: conda's name of its platform, its C library, the newest CUDA that its driver runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..remote.shared.cuda_drivers import cuda_of
from .known import fact

if TYPE_CHECKING:
    from .known import Known

_SUBDIRS = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("linux", "ppc64le"): "linux-ppc64le",
    ("darwin", "x86_64"): "osx-64",
    ("darwin", "arm64"): "osx-arm64",
}
# The glibc that uv has a name for, oldest first: a wheel's tag names the oldest that it runs on.
_MANYLINUX = (17, 28, *range(31, 41))
OLDEST_GLIBC = "2.17"  # if nobody could tell: what every build of the last ten years runs on
# What an environment for containers is made for, so that it serves every image of the last years (Debian 10, RHEL 8).
CONTAINER_GLIBC = "2.28"


@dataclass(frozen=True)
class Platform:
    """All that decides which builds run there."""

    subdir: str
    libc: str | None = None  # "2.36" of glibc, "musl", or None where there is none of these
    cuda: str | None = None
    kernel: str | None = None

    @property
    def linux(self) -> bool:
        return self.subdir.startswith("linux-")

    @property
    def machine(self) -> str:
        return {"64": "x86_64", "arm64": "arm64"}.get(self.subdir.split("-")[1], self.subdir.split("-")[1])

    @property
    def uv(self) -> str:
        """The name that uv has for it."""
        if self.subdir.startswith("osx-"):
            return {"osx-64": "x86_64-apple-darwin"}.get(self.subdir, "aarch64-apple-darwin")
        if self.libc == "musl":
            return f"{self.machine}-unknown-linux-musl"
        minor = _numbers(self.libc or OLDEST_GLIBC)[1]
        fitting = [one for one in _MANYLINUX if one <= minor] or [_MANYLINUX[0]]
        return f"{self.machine}-manylinux_2_{fitting[-1]}"

    def virtual_packages(self) -> list[tuple[str, str, str]]:
        """What conda's resolver takes as given on that machine: name, version, build."""
        found = [("__unix", "0", "0")]
        # The oldest machine of its kind: no fact tells more, and such builds run everywhere.
        found.append(("__archspec", "1", self.machine.replace("arm64", "m1")))
        if self.linux:
            found.append(("__linux", _kernel(self.kernel), "0"))
            if self.libc != "musl":
                found.append(("__glibc", self.libc or OLDEST_GLIBC, "0"))
        else:
            found.append(("__osx", "11.0", "0"))
        if self.cuda:
            found.append(("__cuda", self.cuda, "0"))
        return found


def platform_of(facts: Known, glibc: str | None = None, cuda: bool = True) -> Platform:
    """The platform of a machine, or of an image on it with another ``glibc``; ``cuda``: whether GPUs are handed in."""
    said = {name: fact(facts, "os", name) for name in ("system", "arch", "libc", "kernel")}
    system, arch = (said["system"] or "").lower(), (said["arch"] or "").lower()
    subdir = _SUBDIRS.get((system, {"amd64": "x86_64"}.get(arch, arch)))
    if subdir is None:
        known = ", ".join(sorted(set(_SUBDIRS.values())))
        raise ConfigError(
            f"environments are not supported for {said['system'] or 'unknown'} on {said['arch'] or 'unknown'};"
            f" supported: {known}",
            "install Python on the target, and set userManagedEnvironment: true and pythonLocation",
        )
    return Platform(
        subdir=subdir,
        libc=glibc or _libc(said["libc"]) if system == "linux" else None,
        cuda=cuda_of(fact(facts, "nvidia", "driver")) if cuda else None,
        kernel=said["kernel"],
    )


def _libc(said: str | None) -> str | None:
    if said and said.startswith("musl"):
        return "musl"
    found = re.fullmatch(r"glibc (\d+\.\d+)(?:\.\d+)?", said or "")
    return found[1] if found else None


def _kernel(release: str | None) -> str:
    found = re.match(r"\d+(?:\.\d+)*", release or "")
    return found[0] if found else "0"


def _numbers(version: str) -> tuple[int, int]:
    first, second = version.split(".")[:2]
    return int(first), int(second)


def older_libc(platform: Platform, glibc: str) -> Platform:
    """The same machine with another C library, if that is older."""
    if platform.libc in (None, "musl") or (glibc != "musl" and _numbers(glibc) >= _numbers(str(platform.libc))):
        return platform
    return replace(platform, libc=glibc)
