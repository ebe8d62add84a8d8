"""What a target is to a resolver: conda's name of its platform, its C library, the newest CUDA that its driver runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import ConfigError
from ..hosts.facts import Facts

_SUBDIRS = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("linux", "ppc64le"): "linux-ppc64le",
    ("darwin", "x86_64"): "osx-64",
    ("darwin", "arm64"): "osx-arm64",
}
# Drivers of NVIDIA from which on a CUDA runs, as in its release notes; the newest that fits counts.
_CUDA = (
    ((590, 44), "13.1"),
    ((580, 65), "13.0"),
    ((575, 51), "12.9"),
    ((570, 26), "12.8"),
    ((565, 57), "12.7"),
    ((560, 28), "12.6"),
    ((555, 42), "12.5"),
    ((550, 54), "12.4"),
    ((545, 23), "12.3"),
    ((535, 54), "12.2"),
    ((530, 30), "12.1"),
    ((525, 60), "12.0"),
    ((520, 61), "11.8"),
    ((515, 43), "11.7"),
    ((510, 39), "11.6"),
    ((495, 29), "11.5"),
    ((470, 42), "11.4"),
    ((465, 19), "11.3"),
    ((460, 27), "11.2"),
    ((455, 23), "11.1"),
    ((450, 36), "11.0"),
    ((440, 33), "10.2"),
    ((418, 39), "10.1"),
    ((410, 48), "10.0"),
    ((396, 26), "9.2"),
    ((390, 46), "9.1"),
    ((384, 81), "9.0"),
    ((375, 26), "8.0"),
)
# The glibc that uv has a name for, oldest first: a wheel's tag names the oldest that it runs on.
_MANYLINUX = (17, 28, *range(31, 41))
_OLDEST_GLIBC = "2.17"  # if nobody could tell: what every build of the last ten years runs on


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
        minor = _numbers(self.libc or _OLDEST_GLIBC)[1]
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
                found.append(("__glibc", self.libc or _OLDEST_GLIBC, "0"))
        else:
            found.append(("__osx", "11.0", "0"))
        if self.cuda:
            found.append(("__cuda", self.cuda, "0"))
        return found


def platform_of(facts: Facts, glibc: str | None = None, cuda: bool = True) -> Platform:
    """The platform of a machine, or of an image on it with another ``glibc``; ``cuda``: whether GPUs are handed in."""
    system, arch = (facts.os.system or "").lower(), (facts.os.arch or "").lower()
    subdir = _SUBDIRS.get((system, {"amd64": "x86_64"}.get(arch, arch)))
    if subdir is None:
        known = ", ".join(sorted(set(_SUBDIRS.values())))
        raise ConfigError(
            f"no environment can be made for {facts.os.system or 'an unknown system'} on {facts.os.arch or 'it'}",
            f"prepare a Python there and set userManagedEnvironment and pythonLocation; known are {known}",
        )
    return Platform(
        subdir=subdir,
        libc=glibc or _libc(facts.os.libc) if system == "linux" else None,
        cuda=cuda_of(facts.nvidia.driver) if cuda else None,
        kernel=facts.os.kernel,
    )


def cuda_of(driver: str | None) -> str | None:
    """The newest CUDA that a driver runs ("550.54.14" → "12.4")."""
    if not driver or not re.match(r"\d+\.\d+", driver):
        return None
    version = _numbers(driver)
    return next((cuda for oldest, cuda in _CUDA if version >= oldest), None)


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
