"""A run's Spark application: what and where it is, how far it is, what went wrong."""

from __future__ import annotations

from nicegui import ui

from ....model import JsonDict
from ....report import spark as words
from ....report.plain import plain
from ...parts.facts import Value, facts, heading
from .context import Context

_SHOWN = 20  # executors, and things that went wrong
_REL = 'rel="noopener noreferrer"'


def show(context: Context) -> None:
    spark = context.run.spark
    if not spark or not spark.get("app"):
        return
    rows: list[tuple[str, Value | None]] = [
        ("Application", plain(str(spark["app"]), 200)),
        ("Kind", words.kind(spark) or None),
        ("Progress", lambda: _progress(context)),
        ("Executors", _lines(words.members(spark)) or words.executors(spark)),
        ("Spark UI", None if context.run.status.final else _page(context, spark)),
        ("Spark history server", _link(spark, "history")),
        ("Event log", plain(str(spark["events"]), 500) if spark.get("events") else None),
        ("Problems", _lines(words.troubles(spark))),
    ]
    with ui.element("section").classes("mlw-card"):
        heading("Spark")
        facts((name, value) for name, value in rows if value is not None)


def freshen(context: Context) -> None:
    """Counts change every second: the words are put in their place, and nothing is drawn anew."""
    label = context.progress
    if label is not None and not label.is_deleted:
        label.set_text(_now(context))


def _progress(context: Context) -> None:
    context.progress = ui.label(_now(context)).classes("mlw-said")


def _now(context: Context) -> str:
    spark = context.run.spark or {}
    found = [words.progress(spark), words.executors(spark)]
    return ", ".join(one for one in found if one) or "no jobs yet"


def _lines(lines: list[str]) -> str | None:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([*lines[:_SHOWN], *more]) or None


def _page(context: Context, spark: JsonDict) -> Value | None:
    """A link, unless it would lead to this machine instead of that one."""
    tunnel = words.tunnel(context.run)
    return f"{words.link(spark, 'ui')} on the target; to open it here, run: {tunnel}" if tunnel else _link(spark, "ui")


def _link(spark: JsonDict, name: str) -> Value | None:
    address = words.link(spark, name)
    return None if address is None else lambda: ui.link(address, address, new_tab=True).props(_REL)
