"""What people wrote on a run: in a file in its folder at home, so that an index made anew knows it again."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from ..errors import HistoryError
from ..model import Noted, RunSpec
from ..remote.shared.files import read_json, write_whole
from ..remote.shared.layout import Root
from .rows import noted_from


def read_all(root: Root, folder: str) -> dict[str, Any]:
    """Of all runs in a folder: its own, and those inside it."""
    return read_json(root.run(folder).noted) or {}


def noted_of(known: dict[str, Any], run_id: str) -> Noted:
    told = known.get(run_id)
    return noted_from(told) if isinstance(told, dict) else Noted()


def write_noted(root: Root, spec: RunSpec, noted: Noted) -> None:
    """Whole or not at all. The caller sees to it that nobody else does so at the same time."""
    folder = root.run(spec.folder)
    try:
        os.makedirs(folder.path, mode=0o700, exist_ok=True)
        known = read_all(root, spec.folder)
        write_whole(folder.noted, {**known, spec.id: asdict(noted)})
    except OSError as error:
        raise HistoryError(f"cannot write {folder.noted}: {error.strerror}") from error
