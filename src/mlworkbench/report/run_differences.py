"""What differs between runs, down to the packages and the lines of their code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..history.parameters import of_run
from ..history.parameters import text as as_text
from ..model import Run
from ..paths import Root
from .codediff import ALL_LINES, code_difference
from .linediff import LineDiff
from .records import outcome, record
from .values import finite

_MISSING = object()
_OURS = "MLW_RUN_"  # what tells a run its own id and folder differs always
_PACKAGES = ("conda", "pip")
# Of a lock: reported by package, or nothing that anybody chose.
_UNTOLD = (*_PACKAGES, "tools", "mirrors", "format", "python")


def differences(root: Root, runs: Sequence[Run], lines: bool, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """All that differs, with the values of each run in the order of ``runs``; code against the first one's."""
    first, *others = runs
    budget = LineDiff(ALL_LINES if lines else 0)
    measured = _differences([record(run)["metrics"] for run in runs])
    return {
        "runs": [run.id for run in runs],
        "parameters": _parameters(runs),
        "metrics": {name: values for name, values in measured.items() if not metrics or name in metrics},
        "properties": _differences([_properties(run) for run in runs]),
        "packages": _packages(runs),
        "packages_unknown": [run.id for run in runs if not _is_known(run)],
        "code": [{"run": run.id, "against": first.id, **code_difference(root, first, run, budget)} for run in others],
    }


def _parameters(runs: Sequence[Run]) -> dict[str, list[Any]]:
    named = [{name: True if value is None else value for name, value in of_run(run).items()} for run in runs]
    found = _differences(named)
    # What was typed is a text, and what a script logs may be a number: 0.1 is 0.1.
    found = {name: finite(values) for name, values in found.items() if len({as_text(one) for one in values}) > 1}
    # Arguments that are no options, or stand in another order, are told as a whole.
    return found or _differences([{"arguments": shlex.join(run.spec.entry.arguments)} for run in runs])


def _properties(run: Run) -> dict[str, Any]:
    spec = run.spec
    git = spec.git
    lock = {name: value for name, value in (spec.lock or {}).items() if name not in _UNTOLD}
    return {
        "status": outcome(run),
        "ending": run.ending,
        "duration": record(run)["duration"],
        "script_name": spec.entry.name,
        "target": spec.compute.name,
        "run_configuration": spec.runconfig,
        "framework": spec.framework,
        "tags": list(run.tags) or None,
        "gpus": spec.gpus,
        **_sweep(spec.sweep or {}),
        "CommitId": git.commit if git else None,
        "Branch": git.branch if git else None,
        "Dirty": git.dirty if git else None,
        "SnapshotId": spec.snapshot,
        "image": spec.container.image if spec.container else None,
        **{f"environment.{name}": value for name, value in lock.items()},
        "environment.python": _python(spec.lock or {}),
        **{f"variable.{name}": value for name, value in spec.environment.items() if not name.startswith(_OURS)},
    }


def _sweep(told: Mapping[str, Any]) -> dict[str, Any]:
    axes = told.get("axes")
    words = " ".join(f"{name}={values}" for name, values in axes.items()) if isinstance(axes, dict) else None
    return {"sweep": words, **{f"sweep.{name}": told.get(name) for name in ("way", "seed", "metric", "goal")}}


def _python(lock: Mapping[str, Any]) -> Any:
    python = lock.get("python")
    return python.get("version") if isinstance(python, dict) else python


def _packages(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Of the environments that we made: package → version in each run, None where it has none.

    Where one of the runs had a Python of the user's, nobody knows its packages, and nothing is compared.
    """
    if not all(_is_known(run) for run in runs):
        return {}
    return dict(sorted(_differences([_versions(run.spec.lock or {}) for run in runs]).items()))


def _is_known(run: Run) -> bool:
    return (run.spec.lock or {}).get("kind") == "managed"


def _versions(lock: Mapping[str, Any]) -> dict[str, str]:
    """Name → version; conda builds the same version in several ways."""
    found = {}
    for kind in _PACKAGES:
        for one in lock.get(kind) or ():
            name = str(one.get("name")).lower().replace("_", "-")
            build = f" {one['build']}" if one.get("build") else ""
            found[name] = f"{one.get('version')}{build}"
    return found


def _differences(all_facts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for facts in all_facts for name in facts)
    values = {name: [facts.get(name, _MISSING) for facts in all_facts] for name in names}
    return {
        name: [None if one is _MISSING else one for one in found]
        for name, found in values.items()
        if any(one != found[0] for one in found[1:])
    }
