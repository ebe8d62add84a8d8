"""Runs cases on surfaces. Case ``n`` of a surface is the same whenever the seed is the same."""

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
PATIENCE = 20.0  # seconds of one case, on a busy machine; a case takes a millisecond
LONGEST = 6000  # characters of a message: more is no sentence


@dataclass(frozen=True, eq=False)
class Surface:
    """One place where foreign bytes arrive. ``consume`` reads a case as the product does."""

    name: str
    samples: list[Any]  # bytes, or JSON trees
    consume: Callable[[bytes, Path], None]
    share: float = 1.0  # of all cases
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

    @cache  # noqa: B019 - there are as many as surfaces
    def _texts(self) -> list[bytes]:
        return [self.text(one) for one in self.samples]

    def text(self, tree: Any) -> bytes:
        """A sample or a case as the bytes that it is read from."""
        if isinstance(tree, bytes):
            return tree
        if self.lines and isinstance(tree, list):
            return b"".join(as_json(one) + b"\n" for one in tree)
        return as_json(tree)


@dataclass
class Finding:
    """A case that ended in neither success nor one sentence."""

    surface: str
    case: bytes
    error: str
    place: str

    @property
    def file(self) -> str:
        return f"{self.surface}-{hashlib.sha256(self.case).hexdigest()[:12]}"


@dataclass
class Outcome:
    """What became of the cases of one surface."""

    cases: int = 0
    refused: int = 0  # ended in a sentence
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)  # the first of each kind


def run(surface: Surface, seed: int, numbers: range, folder: Path) -> Outcome:
    outcome = Outcome()
    for number in numbers:
        case = surface.case(seed, number)
        outcome.cases += 1
        found = attempt(surface, case, folder)
        if isinstance(found, Finding):
            outcome.findings.setdefault((found.error, found.place), found)
        else:
            outcome.refused += found
    return outcome


def attempt(surface: Surface, case: bytes, folder: Path) -> Finding | bool:
    """Whether the case was refused in a sentence; a finding where anything else happened."""
    try:
        with _limited():
            surface.consume(case, folder)
    except surface.expected as error:
        message = str(error)
        if len(message) > LONGEST:
            return Finding(surface.name, case, "LongMessage", _place(error))
        return True
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return Finding(surface.name, case, f"{type(error).__name__}: {str(error)[:120]!a}", _place(error))
    return False


def _place(error: Exception) -> str:
    """The innermost line of ours."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "mlworkbench" in one.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"


class TookTooLong(Exception):
    """A case that did not end."""


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
    """In memory where that is possible: most surfaces read files."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, prefix="mlw-fuzz-") as folder:
        yield Path(folder)
