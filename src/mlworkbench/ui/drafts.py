"""Unsaved editor content, stored so that reloads, page changes, and restarts do not lose it."""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..remote.shared.atomic_files import read_json, write_atomic
from ..remote.shared.folder_tree import make_private

_KEYS = ("path", "text", "base", "windows", "marked")


@dataclass(frozen=True)
class Draft:
    """Unsaved content of a file in the editor."""

    path: str
    text: str
    base: str  # digest of the file on which the draft is based
    windows: bool
    marked: bool
    owner: str = ""  # ID of the page where the text was typed


class Drafts:
    """Drafts of all projects, by project key. Each is a small file that only its user can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()  # never held during file writes
        self._writing = threading.Lock()
        self._drafts: dict[str, dict[str, Draft]] = {}
        self._unwritten: set[tuple[str, str]] = set()

    def for_project(self, key: str) -> dict[str, Draft]:
        """Return a project's drafts by path."""
        with self._lock:
            return dict(self._project(key))

    def put(self, key: str, draft: Draft) -> None:
        with self._lock:
            self._project(key)[draft.path] = draft
            self._unwritten.add((key, draft.path))

    def drop(self, key: str, path: str) -> None:
        with self._lock:
            if self._project(key).pop(path, None) is not None:
                self._unwritten.add((key, path))

    @property
    def has_unwritten(self) -> bool:
        """Whether some drafts have not been written to disk yet."""
        return bool(self._unwritten)

    def flush(self) -> None:
        """Write all changes to disk. This blocks, but callers can change drafts in the meantime."""
        with self._writing:  # one flush at a time, so that the newest content is written last
            with self._lock:
                unwritten = {(key, path): self._drafts[key].get(path) for key, path in sorted(self._unwritten)}
                self._unwritten.clear()
            try:
                while unwritten:
                    (key, path), draft = next(iter(unwritten.items()))
                    self._write(self._file(key, path), draft)
                    del unwritten[key, path]
            finally:
                with self._lock:
                    self._unwritten.update(unwritten)  # drafts that could not be written

    def _write(self, file: Path, draft: Draft | None) -> None:
        if draft is None:
            file.unlink(missing_ok=True)
            return
        make_private(str(self._folder), str(file.parent))
        write_atomic(str(file), asdict(draft))

    def _project(self, key: str) -> dict[str, Draft]:
        if key not in self._drafts:
            self._drafts[key] = {draft.path: draft for draft in self._stored(key)}
        return self._drafts[key]

    def _stored(self, key: str) -> list[Draft]:
        try:
            names = sorted(os.listdir(self._folder / key))
        except OSError:
            return []
        records = [read_json(str(self._folder / key / name), *_KEYS) for name in names if name.endswith(".json")]
        return [_parse_draft(record) for record in records if record]

    def _file(self, key: str, path: str) -> Path:
        return self._folder / key / (hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:24] + ".json")


def _parse_draft(data: dict[str, Any]) -> Draft:
    texts = {name: str(data[name]) for name in ("path", "text", "base")}
    return Draft(**texts, windows=bool(data["windows"]), marked=bool(data["marked"]))
