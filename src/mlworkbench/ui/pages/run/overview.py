"""The first tab: what happened, and the most telling of everything else."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from nicegui import ui

from ....report.plain import plain
from ....report.records import left_out
from ....report.units import counted, duration, size
from ....report.values import shown
from ...answers import gpu as gpus
from ...answers import outputs as answers_outputs
from ...answers import run as answers
from ...parts.chart import Chart
from ...parts.facts import Value, facts, heading, table
from ...parts.status import status
from ...parts.when import When
from . import gpu, spark
from .context import Context

_METRICS = 24  # shown here; the tab has all
_FILES = 8
_COMPARED = 50  # runs of a sweep
_PARAMETERS = 100
_CHILDREN = 50  # at once


async def show(context: Context) -> None:
    run = context.run
    files = await context.desk.ask(answers_outputs.listing, run.id) if run.outputs or not run.status.final else None
    verdict = gpus.verdict(run)
    _cause(context)
    with ui.element("div").classes("mlw-run-columns"):
        with ui.element("div").classes("mlw-run-main"):
            if verdict is not None and verdict.doubtful:
                gpu.show(verdict)
            _metrics(context)
            _family(context)
            if verdict is not None and not verdict.doubtful:
                gpu.show(verdict)
        with ui.element("div").classes("mlw-run-side"):
            _properties(context)
            spark.show(context)
            _parameters(context)
            if files is not None and files.entries:
                _files(context, files)


def _cause(context: Context) -> None:
    lines, remedy = answers.cause(context.run)
    if not lines:
        return
    failed = context.run.status.value == "Failed"
    with ui.element("section").classes("mlw-card mlw-cause" + (" mlw-run-cause-bad" if failed else "")):
        heading("Why it failed" if failed else "Why it ended")
        for line in lines:
            ui.label(line).classes("mlw-said mlw-mono")
        if remedy:
            ui.label(f"How to fix: {remedy}").classes("mlw-said")
        if failed:
            ui.link("View end of log", context.address(tab="log", line="end"))


def _properties(context: Context) -> None:
    run = context.run
    spec = run.spec
    git = spec.git
    rows: list[tuple[str, Value | None]] = [
        ("Status", lambda: status(run.status.value, answers.ending(run))),
        ("Run ID", run.id),
        ("Run number", str(spec.number) if spec.number else None),
        ("Script", plain(spec.entry.name, 500)),
        ("Target", plain(spec.compute.name, 200)),
        ("Run configuration", plain(spec.runconfig, 200) or None),
        ("Project", _project(context)),
        ("Submitted", _moment(spec.created)),
        ("Started", _moment(run.started)),
        ("Ended", _moment(run.ended)),
        ("Duration", duration(run.duration) if run.duration is not None else None),
        ("Exit code", str(run.exit) if run.exit is not None else None),
        ("Signal", str(run.signal) if run.signal is not None else None),
        ("User", plain(spec.user, 100) if spec.user else None),
        (
            "Commit",
            plain(f"{git.commit[:12]}{' (uncommitted changes)' if git.dirty else ''}", 80)
            if git and git.commit
            else None,
        ),
        ("Branch", plain(git.branch, 200) if git and git.branch else None),
        ("Outputs", _outputs(context)),
        ("Log", size(run.log_size) if run.log_size else None),
        ("Leftover processes", f"PID {', '.join(map(str, run.leftovers[:20]))}" if run.leftovers else None),
        ("Not recorded", "; ".join(left_out(run)) or None),
    ]
    with ui.element("section").classes("mlw-card"):
        heading("Properties")
        facts((name, value) for name, value in rows if value is not None)


def _moment(when: float | None) -> Callable[[], object] | None:
    return None if when is None else lambda: When(when, relative=False)


def _project(context: Context) -> Value:
    name = plain(context.run.spec.project_name, 200)
    where = context.where
    return name if where is None else lambda: ui.link(name, where.address)


def _outputs(context: Context) -> str | None:
    run = context.run
    return f"{counted(run.outputs, 'file')}, {size(run.output_bytes or 0)}" if run.outputs else None


def _parameters(context: Context) -> None:
    found = answers.parameters(context.run)
    if found:
        with ui.element("section").classes("mlw-card"):
            heading("Parameters")
            facts(found[:_PARAMETERS], mono=True)
            if len(found) > _PARAMETERS:
                words = f"and {len(found) - _PARAMETERS} more; run: mlw history info {plain(context.run.id, 100)}"
                ui.label(words).classes("mlw-faint")


def _metrics(context: Context) -> None:
    found = answers.last_values(context.run)
    if not found:
        if not context.facts.family:
            with ui.element("section").classes("mlw-card"):
                heading("Metrics")
                words = "No metrics logged." if context.run.status.final else "No metrics logged yet."
                ui.label(f'{words} To log one: from mlworkbench import log; log("loss", 0.12)').classes("mlw-faint")
        return
    with ui.element("section").classes("mlw-card"):
        heading("Metrics")
        with ui.element("div").classes("mlw-run-tiles"):
            for name, value, words in found[:_METRICS]:
                _tile(context, name, words, isinstance(value, (int, float)) and not isinstance(value, bool))
        if len(found) > _METRICS:
            ui.link(f"and {counted(len(found) - _METRICS, 'more metric')}", context.address(tab="metrics"))


def _tile(context: Context, name: str, words: str, curve: bool) -> None:
    span = context.run.spans.get(name)
    with ui.element("div").classes("mlw-run-tile"):
        ui.label(plain(name, 100)).classes("mlw-run-tile-name")
        context.values[name] = ui.label(words).classes("mlw-run-tile-value mlw-said")
        if curve and (not context.run.status.final or (span is not None and span.length > 1)):
            url = f"{context.api}/series?name={quote(name, safe='')}"
            Chart(plain(name, 100), [{"label": plain(name, 100), "url": url}], height=36, small=True)


def _family(context: Context) -> None:
    family = context.facts.family
    if family is None:
        return
    with ui.element("section").classes("mlw-card"):
        heading("Runs of this sweep" if context.run.spec.sweep else "Nested runs")
        if family.metric:
            better = "higher is better" if family.goal == "max" else "lower is better"
            ui.label(f"Ranked by {plain(family.metric, 100)}; {better}.").classes("mlw-faint")
        _compare(family)
        _children(family, ui.element("div").classes("mlw-run-tab"), _CHILDREN)


def _children(family: answers.Family, box: ui.element, most: int) -> None:
    """The first of them, and the next ones on demand."""
    titles = ["Run", "Status", "Parameters", *([plain(family.metric, 60)] if family.metric else []), "Duration"]
    left = len(family.children) - most
    box.clear()
    with box:
        table(titles, (_child_row(child, bool(family.metric)) for child in family.children[:most]), "Child runs")
        if left > 0:
            more = ui.button(
                f"and {left + family.more} more", on_click=lambda: _children(family, box, most + _CHILDREN)
            )
            more.props("flat dense no-caps")
        elif family.more:
            ui.label(f"and {family.more} more").classes("mlw-faint")


def _compare(family: answers.Family) -> None:
    """All of them side by side, or so many as can be looked at."""
    ids = [child.run.id for child in family.children[:_COMPARED]]
    if len(ids) < 2:
        return
    some = f"Compare the {'best' if family.metric else 'first'} {len(ids)} runs"
    words = some if len(ids) < len(family.children) + family.more else "Compare all runs"
    ui.link(words, f"/compare?runs={quote(','.join(ids), safe=',')}")


def _child_row(child: answers.Child, judged: bool) -> list[Value]:
    run = child.run

    def link() -> None:
        with ui.row().classes("mlw-status"):
            title = run.id if run.spec.varied else run.name or run.id  # a name that says what was varied
            ui.link(plain(title, 80), f"/runs/{quote(run.id, safe='')}")
            if child.best:
                ui.label("best").classes("mlw-run-word mlw-good")

    value = shown(child.value) if child.value is not None else ""
    lasted = duration(run.duration) if run.duration is not None else ""
    return [link, lambda: status(run.status.value), child.varied, *([value] if judged else []), lasted]


def _files(context: Context, found: answers_outputs.Listing) -> None:
    with ui.element("section").classes("mlw-card"):
        heading("Outputs")
        for one in found.entries[:_FILES]:
            with ui.row().classes("mlw-run-file-line"):
                ui.icon("folder" if one.kind == "folder" else "description").props("aria-hidden=true")
                ui.link(plain(one.name, 80), context.address(tab="outputs", path=one.path))
                ui.space()
                ui.label(size(one.size)).classes("mlw-faint")
        if len(found.entries) > _FILES:
            ui.link(f"and {len(found.entries) - _FILES} more", context.address(tab="outputs"))
