"""A preflight finding, and the context that rules check."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..environments.dependencies import Dependencies, Line, Option, PipLine
from ..environments.facts_access import fact
from ..model import Compute, Problem
from ..targets.types import Feature, type_of
from .rule_data import RETIRED, WATCHED

if TYPE_CHECKING:
    from ..environments.facts_access import FactSource

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Replacement:
    """Replacement of text in a line of a file. If ``new`` is None, the entry is removed."""

    file: str
    line: int
    old: str
    new: str | None


@dataclass(frozen=True)
class Finding:
    """A problem that a run would have on the target, with its location in a file, a message, and a fix."""

    rule: str
    severity: str
    file: str
    line: int | None
    message: str
    hint: str
    fix: Replacement | None = None

    def problem(self) -> Problem:
        return Problem(self.file, self.line, self.severity, self.message, self.hint)

    def __str__(self) -> str:
        return str(self.problem())


@dataclass(frozen=True)
class Script:
    """The script that the run executes."""

    file: str
    text: str


@dataclass(frozen=True)
class CheckContext:
    """The planned run, which is the input for all rules."""

    compute: Compute
    dependencies: Dependencies | None = None  # None: mlw does not create the environment
    facts: FactSource | None = None  # None: unknown
    script: Script | None = None
    image_line: Line | None = None  # line that names the image

    @property
    def contained(self) -> bool:
        return type_of(self.compute).contained

    @property
    def has_gpu(self) -> bool:
        """Whether the script can use GPUs: in a container or job, if they were requested; else with a driver."""
        row = type_of(self.compute)
        is_requested = row.contained or row.has(Feature.SCHEDULER_GPUS)
        return self.compute.nvidia_docker if is_requested else self.driver is not None

    @property
    def driver(self) -> str | None:
        driver = fact(self.facts, "nvidia", "driver")
        return driver if re.match(r"\d+\.\d+", driver or "") else None

    @property
    def is_linux(self) -> bool:
        """Whether the run is on Linux, which is assumed for containers and unknown machines."""
        return self.contained or fact(self.facts, "os", "system") in (None, "Linux", "linux")

    @property
    def machine(self) -> str:
        """The processor architecture. A container engine's virtual machine may have a different one."""
        engine = fact(self.facts, "docker", "arch") if self.contained else None
        arch = (engine or fact(self.facts, "os", "arch") or "x86_64").lower()
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)

    @property
    def is_musl(self) -> bool:
        if self.contained:
            return "alpine" in (self.compute.base_docker_image or "")
        return (fact(self.facts, "os", "libc") or "").startswith("musl")

    @cached_property
    def python(self) -> tuple[int, int] | None:
        """The major and minor version of the pinned Python, or None if it is unpinned or a range."""
        match = re.fullmatch(
            r"={0,3}\s*(\d+)\.(\d+)(?:\.[\d*]+)*", (self.dependencies and self.dependencies.python) or ""
        )
        return (int(match[1]), int(match[2])) if match else None

    @cached_property
    def pip(self) -> tuple[PipLine, ...]:
        """The pip packages whose markers apply to the target."""
        lines = self.dependencies.pip if self.dependencies else ()
        return tuple(line for line in lines if self._applies(line))

    def _applies(self, line: PipLine) -> bool:
        if not line.marker or not self.is_linux or not _is_watched(line):
            return True
        if self.python is None and "python" in re.sub(r"platform_python\w*", "", line.marker):
            return True
        minor = ".".join(map(str, self.python or (3, 12)))
        machine = {
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "platform_machine": self.machine,
            "python_version": minor,
            "python_full_version": minor + ".0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }
        from packaging.markers import InvalidMarker, Marker  # noqa: PLC0415 - few projects need it

        try:
            return Marker(line.marker).evaluate(machine)
        except InvalidMarker:
            return True  # reported by the parser or the resolver


def _is_watched(line: PipLine) -> bool:
    """Return whether any rule applies to an entry. Other entries' markers need not be evaluated."""
    if line.url or line.path or line.name in [row.name for row in RETIRED]:
        return True
    text = line.text.lower()
    return any(part in text for part in WATCHED)


def make_finding(
    rule: str, severity: str, line: Line, message: str, hint: str, new: str | None | bool = False
) -> Finding:
    """Return a finding for an entry.

    ``new`` is its replacement, None to remove it, or False if no fix is known.
    """
    fix = None
    in_toml = isinstance(line, Option) and line.file.endswith(".toml")  # options have a different syntax in TOML
    # An entry with hashes gets no automatic fix, because its hashes belong to the old package.
    if not isinstance(new, bool) and not in_toml and not (isinstance(line, PipLine) and line.hashes):
        fix = Replacement(line.file, line.line, line.text, new)
    return Finding(rule, severity, line.file, line.line, message, hint, fix)
