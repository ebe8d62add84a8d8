"""Spark application of a run: properties, progress, and problems."""

from __future__ import annotations

from nicegui import ui

from ....model import JsonDict
from ....report import spark_report
from ....sanitize import plain
from ...components.property_list import Cell, heading, property_list
from .page_context import RunPageContext

_MAX_LINES = 20  # maximum number of executors or problems
_REL = 'rel="noopener noreferrer"'


def show(context: RunPageContext) -> None:
    spark = context.run.spark
    if not spark or not spark.get("app"):
        return
    rows: list[tuple[str, Cell | None]] = [
        ("Application", plain(str(spark["app"]), 200)),
        ("Kind", spark_report.kind(spark) or None),
        ("Progress", lambda: _progress(context)),
        ("Executors", _lines(spark_report.members(spark)) or spark_report.executors(spark)),
        ("Spark UI", None if context.run.status.final else _page(context, spark)),
        ("Spark history server", _link(spark, "history")),
        ("Event log", plain(str(spark["events"]), 500) if spark.get("events") else None),
        ("Problems", _lines(spark_report.describe_problems(spark))),
    ]
    with ui.element("section").classes("mlw-card"):
        heading("Spark")
        property_list((name, value) for name, value in rows if value is not None)


def update_progress(context: RunPageContext) -> None:
    """Update the progress text without redrawing; it changes every second."""
    label = context.progress
    if label is not None and not label.is_deleted:
        label.set_text(_progress_text(context))


def _progress(context: RunPageContext) -> None:
    context.progress = ui.label(_progress_text(context)).classes("mlw-said")


def _progress_text(context: RunPageContext) -> str:
    spark = context.run.spark or {}
    parts = [spark_report.progress(spark), spark_report.executors(spark)]
    return ", ".join(part for part in parts if part) or "no jobs yet"


def _lines(lines: list[str]) -> str | None:
    more = [f"and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
    return "\n".join([*lines[:_MAX_LINES], *more]) or None


def _page(context: RunPageContext, spark: JsonDict) -> Cell | None:
    """Return a link, or a tunnel command if the link would point to this machine."""
    tunnel = spark_report.tunnel(context.run)
    return (
        f"{spark_report.link(spark, 'ui')} on the target; to open it here, run: {tunnel}"
        if tunnel
        else _link(spark, "ui")
    )


def _link(spark: JsonDict, name: str) -> Cell | None:
    address = spark_report.link(spark, name)
    return None if address is None else lambda: ui.link(address, address, new_tab=True).props(_REL)
