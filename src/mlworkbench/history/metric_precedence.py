"""Decide which source of a metric is shown if several sources report the same name.

The in-run library (also MLflow and azureml) comes first, then MLflow stores, W&B, TensorBoard, and printed lines.
Points of different sources are never mixed: a series from a later source gets a prefix, such as ``tensorboard/loss`` or
``log/loss``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..remote.shared.layout import EXTERNAL_METRICS, PRINTED_METRICS

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
    return result
