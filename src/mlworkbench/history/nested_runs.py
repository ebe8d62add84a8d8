"""The runs inside a run: those that its script made, of MLflow for example. Each is a run of the history too."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256

from ..model import JsonDict, Run, RunSpec, Span, Status
from ..remote.shared import endings

_ENDINGS = {
    "completed": (Status.COMPLETED, endings.SUCCEEDED),
    "failed": (Status.FAILED, endings.FAILED),
    "cancelled": (Status.CANCELED, endings.CANCELLED),
}


def children_of(run: Run) -> list[Run]:
    """The children inside a run, each as a run of its own; two that would get one id are told as one."""
    found: dict[str, Run] = {}
    for name, told in run.children.items():
        if told.get("same"):
            continue  # the script's first one, which is the run itself
        child = _child(run, name, told)
        found.setdefault(child.id, child)
    return list(found.values())


def child_id(parent: str, name: str) -> str:
    """``demo-swift-otter-7k2q.3f2a91bc``, also for names that are no file names."""
    plain = name if re.fullmatch(r"[0-9a-f]{8,64}", name) else sha256(name.encode("utf-8", "replace")).hexdigest()
    return f"{parent}.{plain[:8]}"


def told_name(run: Run, child: str) -> str | None:
    """What the script calls the child with this id."""
    return next((name for name in run.children if child_id(run.id, name) == child), None)


def _child(run: Run, name: str, told: JsonDict) -> Run:
    status, ending = _standing(run, told)
    return Run(
        _spec(run, name, told),
        status=status,
        ending=ending,
        accepted=run.accepted,
        started=told.get("started") or run.started,
        ended=told.get("ended") or run.ended,
        contact=run.contact,
        metrics=told.get("metrics", {}),
        spans={title: Span(*span) for title, span in told.get("spans", {}).items()},
        params=told.get("params", {}),
        told_tags=told.get("tags", {}),
        files=told.get("files", {}),
    )


def _spec(run: Run, name: str, told: JsonDict) -> RunSpec:
    own = child_id(run.id, name)
    above = told.get("parent")
    whole = above is None or above == name or run.children.get(above, {"same": True}).get("same")
    parent = run.id if whole else child_id(run.id, str(above))
    return replace(
        run.spec,
        id=own,
        key=f"{run.spec.key}.{own.rpartition('.')[2]}",
        name=told.get("name") or None,
        created=told.get("started") or run.spec.created,
        parent=parent,
        inside=True,
        tags=(),
        sweep=None,
    )


def _standing(run: Run, told: JsonDict) -> tuple[Status, str | None]:
    """As the script said; one that it left open ends with the script."""
    said = _ENDINGS.get(str(told.get("status")))
    if said:
        return said
    return (run.status, run.ending) if run.status.final else (Status.RUNNING, None)
