"""Decide which source of a metric is shown if several sources report the same name.

The in-run library (also MLflow and azureml) comes first, then MLflow stores, W&B, TensorBoard, and printed lines.
Points of different sources are never mixed: a series from a later source gets a prefix, such as ``tensorboard/loss`` or
``log/loss``.
If a script runs in several processes, only rank 0 counts, and other ranks for metrics that no lower rank has logged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..remote.shared.layout import EXTERNAL_METRICS, PRINTED_METRICS
from ..remote.shared.metric_limits import rank_number

_LABELS = {PRINTED_METRICS: "log"}  # source → prefix, if different


def shown_names(own: Collection[str], external: Mapping[str, Collection[str]]) -> dict[tuple[str, str], str]:
    """Return the displayed name for each source and metric in ``external``. Names in ``own`` are already taken."""
    taken = set(own)
    result: dict[tuple[str, str], str] = {}
    for source in EXTERNAL_METRICS:
        names = external.get(source, ())
        plain = {name for name in names if name not in taken}
        taken |= plain
        for name in names:
            shown = name
            while name not in plain and shown in taken:
                shown = f"{_LABELS.get(source, source)}/{shown}"
            taken.add(shown)
            result[source, name] = shown
    for source in sorted(filter(rank_number, external), key=rank_number):
        new = [name for name in external[source] if name not in taken]
        taken.update(new)
        result.update({(source, name): name for name in new})
    return result
