"""``mlw history compare``: what differs between runs, down to the lines of their code."""

from __future__ import annotations

import difflib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..errors import UsageError
from ..history.parameters import parameters
from ..history.store import History
from ..model import Run
from ..paths import Root, user_paths
from ..remote.manifest import read_manifest
from . import formats, render
from .experiment import open_run
from .options import rendering
from .records import outcome, record
from .screen import plain

LARGEST = 256 * 1024  # bytes of a file that is shown line by line
LINES = 400  # of the diff of one file
ALL_LINES = 4000
_MISSING = object()
_OURS = "MLW_RUN_"  # what tells a run its own id and folder differs always
_DIGEST = 12  # as many characters of one tell it from all others


@click.command(epilog="Example: mlw history compare demo-swift demo-brave --files")
@click.argument("runs", nargs=-1, metavar="RUN RUN…")
@click.option("--files", "names_only", is_flag=True, help="Of the code only the names of the files.")
@rendering
def compare(runs: tuple[str, ...], names_only: bool, output: str, query: str | None) -> None:
    """Tell what differs between runs: parameters, metrics, environment, and the code itself.

    Code is compared with that of the first run, line by line.
    """
    if len(runs) < 2:
        raise UsageError("compare needs two runs or more", "list them with: mlw history list")
    history = History(user_paths())
    found = [open_run(history, name, None).refresh() for name in runs]
    facts = differences(history.paths.root, found, lines=not names_only)
    if output == "table" and query is None:
        show(facts, names_only)
    else:
        render.emit(facts, output=output, query=query)


def differences(root: Root, runs: Sequence[Run], lines: bool) -> dict[str, Any]:
    """All that differs, with the values of each run in the order of ``runs``; code against the first one's."""
    first, *others = runs
    budget = [ALL_LINES if lines else 0]
    return {
        "runs": [run.id for run in runs],
        "parameters": _parameters(runs),
        "metrics": _differences([record(run)["metrics"] for run in runs]),
        "properties": _differences([_properties(run) for run in runs]),
        "code": [{"run": run.id, "against": first.id, **_code(root, first, run, budget)} for run in others],
    }


def _parameters(runs: Sequence[Run]) -> dict[str, list[Any]]:
    named = [parameters(run.spec.entry.arguments) for run in runs]
    found = _differences([{name: True if text is None else text for name, text in values.items()} for values in named])
    # Arguments that are no options, or stand in another order, are told as a whole.
    return found or _differences([{"arguments": shlex.join(run.spec.entry.arguments)} for run in runs])


def _properties(run: Run) -> dict[str, Any]:
    spec = run.spec
    git = spec.git
    return {
        "status": outcome(run),
        "ending": run.ending,
        "duration": record(run)["duration"],
        "script_name": spec.entry.name,
        "target": spec.compute.name,
        "run_configuration": spec.runconfig,
        "framework": spec.framework,
        "tags": list(spec.tags) or None,
        "gpus": spec.gpus,
        "CommitId": git.commit if git else None,
        "Branch": git.branch if git else None,
        "Dirty": git.dirty if git else None,
        "SnapshotId": spec.snapshot,
        **{f"environment.{name}": value for name, value in (spec.lock or {}).items()},
        **{f"variable.{name}": value for name, value in spec.environment.items() if not name.startswith(_OURS)},
    }


def _differences(all_facts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for facts in all_facts for name in facts)
    values = {name: [facts.get(name, _MISSING) for facts in all_facts] for name in names}
    return {
        name: [None if one is _MISSING else one for one in found]
        for name, found in values.items()
        if any(one != found[0] for one in found[1:])
    }


# -- code ----------------------------------------------------------------------------------------------


def _code(root: Root, old: Run, new: Run, budget: list[int]) -> dict[str, Any]:
    if old.spec.snapshot == new.spec.snapshot:
        return {"files": [], "diff": []}
    try:
        before, after = _files(root, old), _files(root, new)
    except OSError as error:
        return {"files": [], "diff": [], "problem": f"the code of a run is no longer stored: {error.strerror}"}
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    files = [{"path": path, "change": _change(before.get(path), after.get(path))} for path in changed]
    diff: list[str] = []
    for path in changed:
        shown = _diff(root, path, before.get(path), after.get(path)) if budget[0] > 0 else []
        budget[0] -= len(shown)
        diff += shown
    return {"files": files, "diff": diff}


def _files(root: Root, run: Run) -> dict[str, tuple[str, str, int]]:
    """Path → kind, content and mode: a file's digest, or the text of a link."""
    manifest = read_manifest(root.snapshot(run.spec.snapshot))
    found = {path: ("file", sha256, mode) for path, sha256, _, mode in manifest["files"]}
    return {**found, **{path: ("link", text, 0) for path, text in manifest["links"]}}


def _change(before: tuple[str, str, int] | None, after: tuple[str, str, int] | None) -> str:
    if before is None or after is None:
        return "added" if before is None else "removed"
    return "mode" if before[:2] == after[:2] else "changed"


def _diff(root: Root, path: str, before: tuple[str, str, int] | None, after: tuple[str, str, int] | None) -> list[str]:
    if before is not None and after is not None and before[:2] == after[:2]:
        return [f"--- {path}", f"+++ {path}", f"mode {before[2]:o} -> {after[2]:o}"]
    old, new = _text(root, before), _text(root, after)
    if old is None or new is None:
        return [f"--- {path}", f"+++ {path}", "(not shown: binary, large or no longer stored)"]
    names = path if before else "(nothing)", path if after else "(nothing)"
    found = list(difflib.unified_diff(old, new, *names, lineterm=""))
    if len(found) > LINES:
        found[LINES:] = [f"({len(found) - LINES} more lines)"]
    return found


def _text(root: Root, known: tuple[str, str, int] | None) -> list[str] | None:
    """The lines of a file; None if they cannot be shown."""
    if known is None:
        return []
    kind, content, _ = known
    if kind == "link":
        return [f"link to {content}"]
    try:
        with open(root.blob(content), "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    if len(data) > LARGEST or b"\0" in data:
        return None
    return data.decode("utf-8", "replace").splitlines()


# -- for people ----------------------------------------------------------------------------------------


def show(facts: Mapping[str, Any], names_only: bool) -> None:
    """The differences as a table for each kind, and the code as a diff."""
    same = True
    for title, kind in (("Parameter", "parameters"), ("Metric", "metrics"), ("Property", "properties")):
        found = facts[kind]
        if found:
            same = False
            rows = [[_cell(name), *(_value(name, value) for value in values)] for name, values in found.items()]
            for line in formats.align(formats.Grid([title, *facts["runs"]], rows)).splitlines():
                _say(line)
            _say("")
    for part in facts["code"]:
        same = same and not part["files"] and "problem" not in part
        _show_code(part, names_only)
    if same:
        render.message("the runs do not differ")


def _value(name: str, value: Any) -> str:
    return _cell(value)[:_DIGEST] if name == "SnapshotId" else _cell(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    return plain(text, formats.WIDEST_CELL)


def _show_code(part: Mapping[str, Any], names_only: bool) -> None:
    if "problem" in part:
        render.warn(f"{part['run']}: {part['problem']}")
    if not part["files"]:
        return
    _say(f"code of {part['run']} against {part['against']}")
    for file in part["files"]:
        _say(f"  {file['change']:8} {file['path']}")
    if not names_only:
        for line in part["diff"]:
            _say(line)
    _say("")


def _say(line: str) -> None:
    # A tab is harmless, and the code of most people has some.
    safe = "\t".join(plain(piece) for piece in line.split("\t"))
    render.pour((safe + "\n").encode(getattr(sys.stdout, "encoding", None) or "utf-8", "backslashreplace"))
