"""One finding, and all that a rule may look at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..environments.dependencies import Dependencies, Line, Option, PipLine
from ..environments.known import fact
from ..model import Compute, Problem
from ..targets.types import type_of
from .tables import RETIRED, WATCHED

if TYPE_CHECKING:
    from ..environments.known import Known

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Replacement:
    """What to write instead of what stands on a line of a file; None: the entry goes."""

    file: str
    line: int
    old: str
    new: str | None


@dataclass(frozen=True)
class Finding:
    """Something that will not work on the target: where it stands, why, and what to write instead."""

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
    """The file that will be run."""

    file: str
    text: str


@dataclass(frozen=True)
class Case:
    """A run that is about to be: nothing else is asked."""

    compute: Compute
    dependencies: Dependencies | None = None  # None: the environment is not ours to make
    facts: Known | None = None  # None: nobody has looked at the machine
    script: Script | None = None
    image_at: Line | None = None  # where the image stands

    @property
    def contained(self) -> bool:
        return type_of(self.compute).contained

    @property
    def gpu(self) -> bool:
        """Whether the script will see GPUs: a container if it was told to, other runs if the machine has some."""
        return self.compute.nvidia_docker if self.contained else self.driver is not None

    @property
    def driver(self) -> str | None:
        driver = fact(self.facts, "nvidia", "driver")
        return driver if re.match(r"\d+\.\d+", driver or "") else None

    @property
    def linux(self) -> bool:
        """Containers are Linux; so are machines elsewhere until somebody has looked."""
        return self.contained or fact(self.facts, "os", "system") in (None, "Linux", "linux")

    @property
    def machine(self) -> str:
        """The processor: that of the engine if there is one, which may be a machine inside the machine."""
        engine = fact(self.facts, "docker", "arch") if self.contained else None
        arch = (engine or fact(self.facts, "os", "arch") or "x86_64").lower()
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)

    @property
    def musl(self) -> bool:
        if self.contained:
            return "alpine" in (self.compute.base_docker_image or "")
        return (fact(self.facts, "os", "libc") or "").startswith("musl")

    @cached_property
    def python(self) -> tuple[int, int] | None:
        """The Python that the file pins, as far as it matters to wheels; None: any, or a range."""
        found = re.fullmatch(
            r"={0,3}\s*(\d+)\.(\d+)(?:\.[\d*]+)*", (self.dependencies and self.dependencies.python) or ""
        )
        return (int(found[1]), int(found[2])) if found else None

    @cached_property
    def pip(self) -> tuple[PipLine, ...]:
        """Pip's packages, those left out that a marker keeps for other machines."""
        lines = self.dependencies.pip if self.dependencies else ()
        return tuple(line for line in lines if self._applies(line))

    def _applies(self, line: PipLine) -> bool:
        if not line.marker or not self.linux or not _is_watched(line):
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
            return True  # the reader's or the solver's complaint


def _is_watched(line: PipLine) -> bool:
    """Whether any rule has a say about an entry: markers of the many others need not be looked at."""
    if line.url or line.path or line.name in [row.name for row in RETIRED]:
        return True
    text = line.text.lower()
    return any(word in text for word in WATCHED)


def found(rule: str, severity: str, at: Line, message: str, hint: str, new: str | None | bool = False) -> Finding:
    """A finding at an entry; ``new``: what to write instead, None: nothing, False: nobody can say."""
    fix = None
    in_toml = isinstance(at, Option) and at.file.endswith(".toml")  # there an option has another form
    # A digest behind the package is that of the old one: whoever took care to write it must look up the new one.
    if not isinstance(new, bool) and not in_toml and not (isinstance(at, PipLine) and at.hashes):
        fix = Replacement(at.file, at.line, at.text, new)
    return Finding(rule, severity, at.file, at.line, message, hint, fix)
