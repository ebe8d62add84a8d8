"""Spans of a trace as an indented list with a time axis. The browser renders it, so many spans are fast."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui.element import Element

from ...report.mlflow_report import span_duration
from ...runfiles.mlflow_traces import Span
from ...sanitize import plain

_MAX_VALUE = 4000  # maximum characters of an input or output
_MAX_CHARACTERS = 400_000  # for all spans of a trace; later values are shortened further
_SHORT_VALUE = 100
_MIN_WIDTH = 0.5  # percent


class SpanList(Element, component="spans.js"):
    """Spans of a trace in the order of a tree. Their texts are untrusted."""

    def __init__(self, label: str, spans: Sequence[Span]) -> None:
        super().__init__()
        starts = [span.started for span in spans if span.started is not None]
        ends = [span.started + (span.duration or 0.0) for span in spans if span.started is not None]
        begin = min(starts, default=0.0)
        length = max(ends, default=0.0) - begin or 1.0
        rows, free = [], _MAX_CHARACTERS
        for span in spans:
            limit = _MAX_VALUE if free > 0 else _SHORT_VALUE
            values = [("Error", span.message), ("Inputs", span.inputs), ("Outputs", span.outputs)]
            shown = [(title, plain(text, limit)) for title, text in values if text]
            free -= sum(len(text) for _, text in shown)
            left = 0.0 if span.started is None else 100 * (span.started - begin) / length
            width = 100 * (span.duration or 0.0) / length
            rows.append(
                {
                    "name": plain(span.name, 100),
                    "depth": span.depth,
                    "type": "" if span.type == "UNKNOWN" else plain(span.type, 40),
                    "problem": "" if span.status in ("", "OK", "UNSET") else plain(span.status, 40),
                    "duration": span_duration(span.duration),
                    "tokens": "" if span.tokens is None else f"{span.tokens} tokens",
                    "left": min(left, 100 - _MIN_WIDTH),
                    "width": max(_MIN_WIDTH, min(width, 100 - left)),
                    "values": shown,
                }
            )
        self._props["label"] = label
        self._props["spans"] = rows
