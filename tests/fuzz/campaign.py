"""Run fuzz cases on surfaces, the places where external input arrives.

The seed, the name of the surface, and the case number determine a case, so every case can be reproduced.
"""

from __future__ import annotations

import hashlib
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from mlworkbench.errors import MlwError
from tests.fuzz.mutate import as_json, mutate_bytes, mutate_lines, mutate_tree

CRASHES = Path(__file__).parent / "crashes"
PATIENCE = 20.0  # time limit of a case in seconds; most take a millisecond, more on a busy machine
LONGEST = 6000  # maximum length of an error message in characters


@dataclass(frozen=True, eq=False)
class Surface:
    """A place where external input arrives. ``consume`` reads a case as the product does."""

    name: str
    samples: list[Any]  # bytes, or JSON trees
    consume: Callable[[bytes, Path], None]
    share: float = 1.0  # weight when cases are distributed to surfaces
    expected: tuple[type[Exception], ...] = (MlwError,)
    lines: bool = False  # samples are lines of JSON

    def case(self, seed: int, number: int) -> bytes:
        random = Random(f"{seed}/{self.name}/{number}")
        sample = random.choice(self.samples)
        if isinstance(sample, bytes):
            change = random.choice((mutate_bytes, mutate_lines, mutate_lines))
            return change(sample, random, self._texts())
        data = self.text(mutate_tree(sample, random))
        if random.random() < 0.2:
            data = mutate_bytes(data, random, self._texts())
        return data

    @cache  # noqa: B019 - one entry per surface
    def _texts(self) -> list[bytes]:
        return [self.text(sample) for sample in self.samples]

    def text(self, tree: Any) -> bytes:
        """Return a sample or a case as the bytes that are read."""
        if isinstance(tree, bytes):
            return tree
        if self.lines and isinstance(tree, list):
            return b"".join(as_json(line) + b"\n" for line in tree)
        return as_json(tree)


@dataclass
class Finding:
    """A case that ended neither in success nor in an expected error with a message of acceptable length."""

    surface: str
    case: bytes
    error: str
    place: str

    @property
    def file(self) -> str:
        return f"{self.surface}-{hashlib.sha256(self.case).hexdigest()[:12]}"


@dataclass
class Outcome:
    """Results of the cases of one surface."""

    cases: int = 0
    refused: int = 0  # rejected with an error message
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)  # the first of each kind


def run(surface: Surface, seed: int, numbers: range, folder: Path) -> Outcome:
    outcome = Outcome()
    for number in numbers:
        case = surface.case(seed, number)
        outcome.cases += 1
        finding = attempt(surface, case, folder)
        if isinstance(finding, Finding):
            outcome.findings.setdefault((finding.error, finding.place), finding)
        else:
            outcome.refused += finding
    return outcome


def attempt(surface: Surface, case: bytes, folder: Path) -> Finding | bool:
    """Return whether the case was rejected with an error message, or a finding for any other failure."""
    try:
        with _limited():
            surface.consume(case, folder)
    except surface.expected as error:
        message = str(error)
        if len(message) > LONGEST:
            return Finding(surface.name, case, "LongMessage", _place(error))
        return True
    except Exception as error:  # noqa: BLE001 - any other exception is a finding
        return Finding(surface.name, case, f"{type(error).__name__}: {str(error)[:120]!a}", _place(error))
    return False


def _place(error: Exception) -> str:
    """Return the file and line of the innermost frame in mlworkbench."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "mlworkbench" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"


class TookTooLong(Exception):
    """Raised when a case exceeds the time limit."""


@contextmanager
def _limited() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def working_folder() -> Iterator[Path]:
    """Yield a temporary folder, in memory if possible, because most surfaces read files."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, prefix="mlw-fuzz-") as folder:
        yield Path(folder)
