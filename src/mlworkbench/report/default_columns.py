"""What a list of runs shows by itself: the metrics that most of them have, the parameters in which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..history.parameters import of_run
from ..history.parameters import text as as_text
from ..model import Run
from .records import record


def common_metrics(runs: Sequence[Run]) -> list[str]:
    """Names of plain metrics, the most frequent first; one that is named like a key of ours is not a column."""
    keys = set(record(replace(runs[0], metrics={}))) if runs else set()
    counts = Counter(
        name
        for run in runs
        for name, value in run.metrics.items()
        if isinstance(value, (int, float, str)) and name not in keys
    )
    return [name for name, _ in counts.most_common()]


def varying_parameters(runs: Sequence[Run]) -> list[str]:
    """Names of parameters that some of the runs have, and not all with the same value; the most frequent first.

    ``--batch-size`` of one and ``batch_size`` of another are the same one.
    """
    told = [{name.replace("-", "_"): (name, value) for name, value in of_run(run).items()} for run in runs]
    given = [one for one in told if one]
    found = []
    for name, count in Counter(name for one in given for name in one).most_common():
        spelt, values = zip(*(one[name] for one in given if name in one), strict=True)
        different = {True if value is None else as_text(value) for value in values}
        if count > 1 and (len(different) > 1 or count < len(given)):
            found.append(spelt[0])
    return found
