"""Decide which source of a metric is shown if several sources report the same name.

The in-run library (also MLflow and azureml) comes first, then TensorBoard, then printed lines. The points of sources
are never mixed: the series of the other source has its name as a prefix, such as ``tensorboard/loss``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..remote.shared.layout import EXTERNAL_METRICS, PRINTED_METRICS

_LABELS = {PRINTED_METRICS: "log"}  # source → prefix, if different


def shown_names(own: Collection[str], external: Mapping[str, Collection[str]]) -> dict[tuple[str, str], str]:
    """Return the shown name for each source and metric in ``external``. The names in ``own`` are not available."""
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
