"""Names, tags, and notes that users add to runs.

They are stored in a file in the local run folder, so that a rebuilt index contains them.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from ..errors import HistoryError
from ..model import Annotations, RunSpec
from ..remote.shared.atomic_files import read_json, write_atomic
from ..remote.shared.layout import Root
from .rows import parse_annotations


def read_annotations(root: Root, folder: str) -> dict[str, Any]:
    """Return the annotations of all runs in a folder: the run itself and its nested runs."""
    return read_json(root.run(folder).annotations) or {}


def annotations_of(annotations: dict[str, Any], run_id: str) -> Annotations:
    entry = annotations.get(run_id)
    return parse_annotations(entry) if isinstance(entry, dict) else Annotations()


def write_annotations(root: Root, spec: RunSpec, changed: Annotations) -> None:
    """Write the annotations of a run atomically. The caller prevents concurrent writes."""
    folder = root.run(spec.folder)
    try:
        os.makedirs(folder.path, mode=0o700, exist_ok=True)
        annotations = read_annotations(root, spec.folder)
        write_atomic(folder.annotations, {**annotations, spec.id: asdict(changed)})
    except OSError as error:
        raise HistoryError(f"cannot write {folder.annotations}: {error.strerror}") from error
