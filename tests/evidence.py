"""Evidence of failed tests: one folder below build/evidence per failure, whose path and summaries are printed.

It contains the small files of the test's folder (server logs, run records, screenshots), and the files of each
`Witness`. Machines, engines, and browsers call `witnesses.add(self)` when they are created and
`witnesses.discard(self)` when they are closed.
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
MOST_BYTES = 1 << 20  # maximum size of a copied file; of a longer log, the end is copied
MOST_FILES = 500  # maximum number of files per folder
SUMMARY = "failed.txt"  # the file of a witness that is printed with the failure
MOST_PRINTED = 4000  # maximum number of characters of a printed summary
TELLING = ("*.log", "*.txt", "*.json", "*.jsonl", "failed.*")


class Witness(Protocol):
    def keep(self, folder: Path) -> None:
        """Write evidence into this folder, which is reserved for the witness."""


witnesses: set[Witness] = set()


def copy_end(source: Path, folder: Path) -> None:
    """Copy the last part of a log."""
    with source.open("rb") as file:
        file.seek(max(0, source.stat().st_size - MOST_BYTES))
        (folder / source.name).write_bytes(file.read())


def copy_telling(source: Path, folder: Path) -> None:
    """Copy small diagnostic files from below a folder, and keep their relative paths."""
    paths = (path for pattern in TELLING for path in source.rglob(pattern))
    for _, path in zip(range(MOST_FILES), paths, strict=False):
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
        report.sections.append(("evidence", "\n".join((str(folder), *_summaries(folder)))))


def _summaries(folder: Path) -> Iterator[str]:
    """Yield the summaries of witnesses: on a build server, the printed lines may be all that is left."""
    for path in sorted(folder.glob(f"*/{SUMMARY}")):
        yield f"--- {path.parent.name}\n{path.read_text(errors='replace')[:MOST_PRINTED]}"


def _collect(test: str, own_folder: Path | None) -> Path:
    name = re.sub(r"[^\w.-]+", "_", test.removeprefix("tests/"))[:150]
    folder = EVIDENCE / f"{time.strftime('%m%d-%H%M%S')}-{name}"
    folder.mkdir(parents=True)
    if own_folder:
        copy_telling(own_folder, folder / "test")
    for number, witness in enumerate(sorted(witnesses, key=lambda item: type(item).__name__)):
        destination = folder / f"{type(witness).__name__.lower()}-{number}"
        destination.mkdir()
        try:
            witness.keep(destination)
        except Exception:  # noqa: BLE001 - a witness may have failed; the others still write evidence
            (destination / "could-not-be-kept.txt").write_text(traceback.format_exc())
    return folder
