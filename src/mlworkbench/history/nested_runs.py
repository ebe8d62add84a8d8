"""Nested runs, which a script creates inside its run, for example with MLflow.

The history lists them like other runs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256

from ..model import JsonDict, Run, RunSpec, Span, Status
from ..remote.shared import run_endings

DELETED = "deleted"  # status detail of a nested run that the script deleted
_ENDINGS = {
    "completed": (Status.COMPLETED, run_endings.SUCCEEDED),
    "failed": (Status.FAILED, run_endings.FAILED),
    "cancelled": (Status.CANCELED, run_endings.CANCELLED),
}


def children_of(run: Run) -> list[Run]:
    """Return the nested runs of a run. If two would get the same ID, the first one is used."""
    children: dict[str, Run] = {}
    for name, record in run.children.items():
        child = _child(run, name, record)
        if record.get("same"):
            child = _with_data_of(run, child)
        children.setdefault(child.id, child)
    return list(children.values())


def same_as(run: Run) -> list[str]:
    """Return the IDs of nested runs that have the data of the whole run. See ``_with_data_of``."""
    return [child_id(run.id, name) for name, record in run.children.items() if record.get("same")]


def child_id(parent: str, name: str) -> str:
    """Return an ID such as ``demo-swift-otter-7k2q.3f2a91bc``, which is always a safe file name."""
    digits = name if re.fullmatch(r"[0-9a-f]{8,64}", name) else sha256(name.encode("utf-8", "replace")).hexdigest()
    return f"{parent}.{digits[:8]}"


def name_in_script(run: Run, child: str) -> str | None:
    """Return the name that the script uses for the nested run with this ID."""
    return next((name for name in run.children if child_id(run.id, name) == child), None)


def _child(run: Run, name: str, record: JsonDict) -> Run:
    status, ending = _status_and_ending(run, record)
    return Run(
        _spec(run, name, record),
        status=status,
        ending=ending,
        detail=DELETED if record.get("deleted") else None,
        accepted=run.accepted,
        started=record.get("started") or run.started,
        ended=record.get("ended") or run.ended,
        contact=run.contact,
        metrics=record.get("metrics", {}),
        spans={metric: Span(*span) for metric, span in record.get("spans", {}).items()},
        params=record.get("params", {}),
        told_tags=record.get("tags", {}),
        files=record.get("files", {}),
    )


def _with_data_of(run: Run, child: Run) -> Run:
    """Return ``child``, the script's first run, with the data of ``run``, because both share the same records."""
    return replace(
        child, metrics=run.metrics, spans=run.spans, params=run.params, told_tags=run.told_tags, files=run.files
    )


def _spec(run: Run, name: str, record: JsonDict) -> RunSpec:
    run_id = child_id(run.id, name)
    parent_name = record.get("parent")
    is_top_level = parent_name == name or parent_name not in run.children
    parent = run.id if is_top_level else child_id(run.id, str(parent_name))
    return replace(
        run.spec,
        id=run_id,
        key=f"{run.spec.key}.{run_id.rpartition('.')[2]}",
        name=record.get("name") or None,
        created=record.get("started") or run.spec.created,
        parent=parent,
        inside=True,
        tags=(),
        sweep=None,
    )


def _status_and_ending(run: Run, record: JsonDict) -> tuple[Status, str | None]:
    """Return the status and ending of a nested run. A nested run that is still open ends with the script."""
    reported = _ENDINGS.get(str(record.get("status")))
    if reported:
        return reported
    return (run.status, run.ending) if run.status.final else (Status.RUNNING, None)
