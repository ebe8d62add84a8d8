"""What scripts recorded that nobody submitted: they ran outside a run, and made a folder for it themselves."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from ..model import Command, Compute, Entry, JsonDict, Run, RunSpec, Status
from ..remote.shared import endings, machine
from ..remote.shared.files import read_json
from ..remote.shared.layout import Root, RunFolder, is_outside
from ..targets.types import LOCAL

FACTS, ENDED = "local.json", "ended.json"
_STATUS = {"completed": (Status.COMPLETED, endings.SUCCEEDED), "failed": (Status.FAILED, endings.FAILED)}
_UNTOLD = "its process ended without reporting a result"
_LATEST = 1e11


def outside_names(root: Root) -> list[str]:
    try:
        return sorted(name for name in os.listdir(root.outside) if is_outside(name))
    except OSError:
        return []


def told_end(root: Root, name: str) -> bool:
    """Whether it said how it ended."""
    return os.path.exists(os.path.join(root.run(name).path, ENDED))


def outside_spec(folder: RunFolder, name: str) -> RunSpec | None:
    """What its folder tells of it; None if that is not sound."""
    facts = read_json(os.path.join(folder.path, FACTS), "id", "started")
    if facts is None or facts["id"] != name or not _is_moment(facts["started"]):
        return None
    script, place = _text(facts, "script"), _text(facts, "folder")
    arguments = [str(word) for word in facts["arguments"]] if isinstance(facts.get("arguments"), list) else []
    shown = os.path.relpath(script, place) if place and os.path.isabs(script) else script
    return RunSpec(
        id=name,
        key=f"outside:{name}",
        number=0,
        name=None,
        project_id=_text(facts, "project_id"),
        project_name=_text(facts, "project_name") or os.path.basename(place),
        project_path=place,
        created=float(facts["started"]),
        compute=Compute(LOCAL.name, LOCAL.name),
        runconfig="",
        framework="Python",
        entry=Entry("script", shown or "(interactive)", tuple(arguments)),
        commands=(Command("run", (_text(facts, "python"), script, *arguments)),),
        environment={},
        inherit=(),
        secrets=(),
        snapshot="",
        user=_text(facts, "user") or None,
    )


def outside_run(folder: RunFolder, spec: RunSpec) -> Run:
    """How it stands: its process lives, said how it ended, or is gone."""
    facts = read_json(os.path.join(folder.path, FACTS)) or {}
    run = Run(spec, status=Status.RUNNING, accepted=spec.created, started=spec.created)
    told = read_json(os.path.join(folder.path, ENDED), "ended")
    if told is None and _lives(facts):
        return run
    status, ending = _STATUS.get(str((told or {}).get("status")), (Status.FAILED, endings.EXIT_UNKNOWN))
    ended = told["ended"] if told and _is_moment(told["ended"]) else _last_written(folder, spec.created)
    cause = _text(told, "cause") if told else _UNTOLD
    code = 1 if ending == endings.FAILED else None  # what Python returns after an exception that nobody caught
    return replace(run, status=status, ending=ending, exit=code, cause=cause or None, ended=float(ended))


def _lives(facts: JsonDict) -> bool:
    pid, start = facts.get("pid"), facts.get("start")
    if not isinstance(pid, int) or facts.get("boot_id") not in (None, machine.identity()["boot_id"]):
        return False
    now = machine.start_time(pid)
    return now is not None and (start is None or now == start)


def _last_written(folder: RunFolder, otherwise: float) -> float:
    """When it was last heard of."""
    try:
        with os.scandir(folder.metrics) as files:
            return max((file.stat(follow_symlinks=False).st_mtime for file in files), default=otherwise)
    except OSError:
        return otherwise


def _is_moment(told: Any) -> bool:
    """Seconds since 1970; a number that is none would keep all other runs out of the index, too."""
    return isinstance(told, (int, float)) and 0 <= told < _LATEST


def _text(facts: Any, name: str) -> str:
    value = facts.get(name)
    return value[:4000] if isinstance(value, str) else ""
