"""Differences between runs, including packages and lines of code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..history.journal_parsing import strict_json
from ..history.parameters import run_parameters
from ..history.parameters import text as as_text
from ..model import Run
from ..paths import Root
from .code_diff import MAX_LINES, code_difference
from .line_diff import LineDiff
from .run_records import outcome, record

_MISSING = object()
_RUN_VARIABLES = ("MLW_RUN_", "MLW_CHECKPOINTS")  # prefixes of variables that always differ
_PACKAGES = ("conda", "pip")
# Keys of a lock file that are reported per package, or are not chosen by the user.
_SKIPPED_LOCK_KEYS = (*_PACKAGES, "tools", "mirrors", "format", "python")


def differences(root: Root, runs: Sequence[Run], lines: bool, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Return all differences, with values in the order of ``runs``.

    The code of each run is compared with that of the first run.
    """
    first, *others = runs
    budget = LineDiff(MAX_LINES if lines else 0)
    measured = _differences([strict_json(record(run)["metrics"]) for run in runs])
    return {
        "runs": [run.id for run in runs],
        "parameters": _parameters(runs),
        "metrics": {name: values for name, values in measured.items() if not metrics or name in metrics},
        "properties": _differences([_properties(run) for run in runs]),
        "packages": _packages(runs),
        "packages_unknown": [run.id for run in runs if not _has_managed_environment(run)],
        "code": [{"run": run.id, "against": first.id, **code_difference(root, first, run, budget)} for run in others],
    }


def _parameters(runs: Sequence[Run]) -> dict[str, list[Any]]:
    parameters = [
        {name: True if value is None else value for name, value in run_parameters(run).items()} for run in runs
    ]
    differing = _differences(parameters)
    # Command-line values are strings, while logged values may be numbers: "0.1" equals 0.1.
    differing = {
        name: strict_json(values) for name, values in differing.items() if len({as_text(item) for item in values}) > 1
    }
    # If no named parameter differs, the arguments may be positional or reordered: compare them as a whole.
    return differing or _differences([{"arguments": shlex.join(run.spec.entry.arguments)} for run in runs])


def _properties(run: Run) -> dict[str, Any]:
    spec = run.spec
    git = spec.git
    lock = {name: value for name, value in (spec.lock or {}).items() if name not in _SKIPPED_LOCK_KEYS}
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
        **{
            f"variable.{name}": value for name, value in spec.environment.items() if not name.startswith(_RUN_VARIABLES)
        },
    }


def _sweep(sweep: Mapping[str, Any]) -> dict[str, Any]:
    axes = sweep.get("axes")
    text = " ".join(f"{name}={values}" for name, values in axes.items()) if isinstance(axes, dict) else None
    return {"sweep": text, **{f"sweep.{name}": sweep.get(name) for name in ("way", "seed", "metric", "goal")}}


def _python(lock: Mapping[str, Any]) -> Any:
    python = lock.get("python")
    return python.get("version") if isinstance(python, dict) else python


def _packages(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Return a mapping from package to its version in each run, for environments that mlw built.

    The version is None where a package is not installed. If a run used the user's own Python, its
    packages are unknown, and nothing is compared.
    """
    if not all(_has_managed_environment(run) for run in runs):
        return {}
    return dict(sorted(_differences([_versions(run.spec.lock or {}) for run in runs]).items()))


def _has_managed_environment(run: Run) -> bool:
    return (run.spec.lock or {}).get("kind") == "managed"


def _versions(lock: Mapping[str, Any]) -> dict[str, str]:
    """Return a mapping from name to version and build: conda may build one version in several ways."""
    versions = {}
    for kind in _PACKAGES:
        for package in lock.get(kind) or ():
            name = str(package.get("name")).lower().replace("_", "-")
            build = f" {package['build']}" if package.get("build") else ""
            versions[name] = f"{package.get('version')}{build}"
    return versions


def _differences(all_facts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for facts in all_facts for name in facts)
    values = {name: [facts.get(name, _MISSING) for facts in all_facts] for name in names}
    return {
        name: [None if value is _MISSING else value for value in row]
        for name, row in values.items()
        if any(value != row[0] for value in row[1:])
    }
