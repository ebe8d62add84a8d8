"""Default columns for a list of runs: common metrics, and parameters that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..history.parameters import run_parameters
from ..history.parameters import text as as_text
from ..model import Run
from .run_records import record


def common_metrics(runs: Sequence[Run]) -> list[str]:
    """Return the names of scalar metrics, most frequent first, except those that are record keys."""
    keys = set(record(replace(runs[0], metrics={}))) if runs else set()
    counts = Counter(
        name
        for run in runs
        for name, value in run.metrics.items()
        if isinstance(value, (int, float, str)) and name not in keys
    )
    return [name for name, _ in counts.most_common()]


def varying_parameters(runs: Sequence[Run]) -> list[str]:
    """Return the names of parameters that differ between the runs, most frequent first.

    ``--batch-size`` of one run and ``batch_size`` of another count as the same parameter.
    """
    all_parameters = [
        {name.replace("-", "_"): (name, value) for name, value in run_parameters(run).items()} for run in runs
    ]
    not_empty = [parameters for parameters in all_parameters if parameters]
    names = []
    for name, count in Counter(name for parameters in not_empty for name in parameters).most_common():
        spellings, values = zip(*(parameters[name] for parameters in not_empty if name in parameters), strict=True)
        different = {True if value is None else as_text(value) for value in values}
        if count > 1 and (len(different) > 1 or count < len(not_empty)):
            names.append(spellings[0])
    return names
