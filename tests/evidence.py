"""What a failed test leaves for whoever asks why: one folder below build/evidence, whose path is printed.

It has the small files of the test's own folder (logs of servers, records of runs, pictures of pages), and what each
`Witness` knows: a machine, an engine or a browser calls `witnesses.add(self)` when it is made, and
`witnesses.discard(self)` when it is closed.
"""

from __future__ import annotations

import re
import shutil
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

EVIDENCE = Path(__file__).parents[1] / "build" / "evidence"
MOST_BYTES = 1 << 20  # of one file: its end
MOST_FILES = 500  # of one folder
TELLING = ("*.log", "*.txt", "*.json", "*.jsonl", "failed.*")


class Witness(Protocol):
    def keep(self, folder: Path) -> None:
        """Write what it knows into this folder, which is its own."""


witnesses: set[Witness] = set()


def copy_end(source: Path, folder: Path) -> None:
    """The last part of a log."""
    with source.open("rb") as file:
        file.seek(max(0, source.stat().st_size - MOST_BYTES))
        (folder / source.name).write_bytes(file.read())


def copy_telling(source: Path, folder: Path) -> None:
    """Small files below it that a person would read, with their paths."""
    found = (path for pattern in TELLING for path in source.rglob(pattern))
    for _, path in zip(range(MOST_FILES), found, strict=False):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    own_folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and report.when != "teardown" and (own_folder or witnesses):
        folder = _collect(item.nodeid, own_folder)
        (folder / "failure.txt").write_text(f"{item.nodeid}\n\n{report.longreprtext}\n")
        report.sections.append(("evidence", str(folder)))


def _collect(test: str, own_folder: Path | None) -> Path:
    name = re.sub(r"[^\w.-]+", "_", test.removeprefix("tests/"))[:150]
    folder = EVIDENCE / f"{time.strftime('%m%d-%H%M%S')}-{name}"
    folder.mkdir(parents=True)
    if own_folder:
        copy_telling(own_folder, folder / "test")
    for number, witness in enumerate(sorted(witnesses, key=lambda one: type(one).__name__)):
        own = folder / f"{type(witness).__name__.lower()}-{number}"
        own.mkdir()
        try:
            witness.keep(own)
        except Exception:  # noqa: BLE001 - it may be what failed; the others still tell what they know
            (own / "could-not-be-kept.txt").write_text(traceback.format_exc())
    return folder
