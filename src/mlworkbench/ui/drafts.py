"""What was typed and not saved: kept here, so that no reload, no other page and no restart of the server loses it."""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..remote.shared.files import read_json, write_whole
from ..remote.shared.tree import make_private

_KEYS = ("path", "text", "base", "windows", "marked")


@dataclass(frozen=True)
class Draft:
    """A file as it is in the editor."""

    path: str
    text: str
    base: str  # the digest of the file that it was made from
    windows: bool
    marked: bool
    owner: str = ""  # the page that it was typed in


class Drafts:
    """Of all projects, by the key of the project. One small file each, its user's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()  # never held while a file is written
        self._writing = threading.Lock()
        self._known: dict[str, dict[str, Draft]] = {}
        self._unwritten: set[tuple[str, str]] = set()

    def of(self, key: str) -> dict[str, Draft]:
        """By their paths."""
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
    def waiting(self) -> bool:
        """Something is not written yet."""
        return bool(self._unwritten)

    def flush(self) -> None:
        """Write what has changed since; blocks. Whoever types meanwhile does not wait for the disk."""
        with self._writing:  # one after the other, so that the newest is written last
            with self._lock:
                waiting = {(key, path): self._known[key].get(path) for key, path in sorted(self._unwritten)}
                self._unwritten.clear()
            try:
                while waiting:
                    (key, path), draft = next(iter(waiting.items()))
                    self._write(self._file(key, path), draft)
                    del waiting[key, path]
            finally:
                with self._lock:
                    self._unwritten.update(waiting)  # what the disk did not take

    def _write(self, file: Path, draft: Draft | None) -> None:
        if draft is None:
            file.unlink(missing_ok=True)
            return
        make_private(str(self._folder), str(file.parent))
        write_whole(str(file), asdict(draft))

    def _project(self, key: str) -> dict[str, Draft]:
        if key not in self._known:
            self._known[key] = {one.path: one for one in self._stored(key)}
        return self._known[key]

    def _stored(self, key: str) -> list[Draft]:
        try:
            names = sorted(os.listdir(self._folder / key))
        except OSError:
            return []
        told = [read_json(str(self._folder / key / name), *_KEYS) for name in names if name.endswith(".json")]
        return [_draft(one) for one in told if one]

    def _file(self, key: str, path: str) -> Path:
        return self._folder / key / (hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:24] + ".json")


def _draft(told: dict[str, Any]) -> Draft:
    words = {name: str(told[name]) for name in ("path", "text", "base")}
    return Draft(**words, windows=bool(told["windows"]), marked=bool(told["marked"]))
