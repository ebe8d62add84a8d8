"""Runs that scripts recorded without a submission. The in-run library creates their folders."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from ..model import Command, Compute, Entry, JsonDict, Run, RunSpec, Status
from ..remote.shared import machine, run_endings
from ..remote.shared.atomic_files import read_json
from ..remote.shared.layout import Root, RunFolder, is_untracked
from ..targets.types import LOCAL

FACTS, ENDED = "local.json", "ended.json"
_STATUS = {
    "completed": (Status.COMPLETED, run_endings.SUCCEEDED),
    "failed": (Status.FAILED, run_endings.FAILED),
    "cancelled": (Status.CANCELED, run_endings.CANCELLED),
}
_NO_RESULT = "its process ended without reporting a result"
_MAX_TIMESTAMP = 1e11


def untracked_names(root: Root) -> list[str]:
    try:
        return sorted(name for name in os.listdir(root.untracked_runs) if is_untracked(name))
    except OSError:
        return []


def has_end_record(root: Root, name: str) -> bool:
    """Return whether the script recorded the end of the run."""
    return os.path.exists(os.path.join(root.run(name).path, ENDED))


def untracked_spec(folder: RunFolder, name: str) -> RunSpec | None:
    """Return the spec from the run folder, or None if it is invalid."""
    facts = read_json(os.path.join(folder.path, FACTS), "id", "started")
    if facts is None or facts["id"] != name or not _is_timestamp(facts["started"]):
        return None
    script, folder_path = _text(facts, "script"), _text(facts, "folder")
    arguments = [str(argument) for argument in facts["arguments"]] if isinstance(facts.get("arguments"), list) else []
    entry_name = os.path.relpath(script, folder_path) if folder_path and os.path.isabs(script) else script
    return RunSpec(
        id=name,
        key=f"outside:{name}",
        number=0,
        name=_text(facts, "name") or None,
        project_id=_text(facts, "project_id"),
        project_name=_text(facts, "project_name") or os.path.basename(folder_path),
        project_path=folder_path,
        created=float(facts["started"]),
        compute=Compute(LOCAL.name, LOCAL.name),
        runconfig="",
        framework="Python",
        entry=Entry("script", entry_name or "(interactive)", tuple(arguments)),
        commands=(Command("run", (_text(facts, "python"), script, *arguments)),),
        environment={},
        inherit=(),
        secrets=(),
        snapshot="",
        user=_text(facts, "user") or None,
    )


def untracked_run(folder: RunFolder, spec: RunSpec) -> Run:
    """Return the run as running, ended with a recorded result, or ended without one."""
    facts = read_json(os.path.join(folder.path, FACTS)) or {}
    run = Run(spec, status=Status.RUNNING, accepted=spec.created, started=spec.created)
    end = read_json(os.path.join(folder.path, ENDED), "ended")
    if end is None and _is_alive(facts):
        return run
    status, ending = _STATUS.get(str((end or {}).get("status")), (Status.FAILED, run_endings.EXIT_UNKNOWN))
    ended = end["ended"] if end and _is_timestamp(end["ended"]) else _last_written(folder, spec.created)
    cause = _text(end, "cause") if end else _NO_RESULT
    code = 1 if ending == run_endings.FAILED else None  # Python's exit code after an uncaught exception
    return replace(run, status=status, ending=ending, exit=code, cause=cause or None, ended=float(ended))


def _is_alive(facts: JsonDict) -> bool:
    pid, start = facts.get("pid"), facts.get("start")
    if not isinstance(pid, int) or facts.get("boot_id") not in (None, machine.identity()["boot_id"]):
        return False
    current = machine.start_time(pid)
    return current is not None and (start is None or current == start)


def _last_written(folder: RunFolder, default: float) -> float:
    """Return the time of the last write to the metrics files."""
    try:
        with os.scandir(folder.metrics) as files:
            return max((file.stat(follow_symlinks=False).st_mtime for file in files), default=default)
    except OSError:
        return default


def _is_timestamp(value: Any) -> bool:
    """Return whether the value is a valid timestamp. An invalid one would break ingesting other runs."""
    return isinstance(value, (int, float)) and 0 <= value < _MAX_TIMESTAMP


def _text(facts: Any, name: str) -> str:
    value = facts.get(name)
    return value[:4000] if isinstance(value, str) else ""
