"""Overview tab: status, cause, and the most important results."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from nicegui import ui

from ....metric_goal import MAX
from ....report.attempt_history import attempt_count, describe_attempt
from ....report.output_locations import describe_unkept
from ....report.rank_list import rank_pairs
from ....report.run_records import left_out
from ....report.slurm_report import describe_request
from ....report.units import duration, pluralize, size
from ....report.value_format import format_value
from ....sanitize import plain
from ....scheduler_state import describe_job
from ...components.metric_chart import MetricChart
from ...components.property_list import Cell, heading, property_list, table
from ...components.status_badge import status_badge
from ...components.timestamp import Timestamp
from ...queries import gpu_verdict as gpus
from ...queries import mlflow_data as mlflow_queries
from ...queries import outputs as output_queries
from ...queries import run as queries
from . import gpu, recorded_data, spark
from .page_context import RunPageContext

_MAX_METRICS = 24  # maximum metrics; the metrics tab shows all
_MAX_FILES = 8
_MAX_ATTEMPTS = 20
_MAX_COMPARED = 50  # maximum number of compared runs
_MAX_PARAMETERS = 100
_CHILDREN_PER_STEP = 50  # child runs shown at a time


async def show(context: RunPageContext) -> None:
    run = context.run
    files = await context.backend.call(output_queries.listing, run.id) if run.outputs or not run.status.final else None
    data = await context.backend.call(mlflow_queries.load, run.id)
    verdict = gpus.verdict(run)
    _cause(context)
    with ui.element("div").classes("mlw-run-columns"):
        with ui.element("div").classes("mlw-run-main"):
            if verdict is not None and verdict.needs_attention:
                gpu.show(verdict)
            recorded_data.description(context)
            _metrics(context)
            recorded_data.models(context, data)
            recorded_data.datasets(data)
            _nested_runs(context)
            if verdict is not None and not verdict.needs_attention:
                gpu.show(verdict)
        with ui.element("div").classes("mlw-run-side"):
            _properties(context)
            spark.show(context)
            _parameters(context)
            if files is not None and files.entries:
                _files(context, files)


def _cause(context: RunPageContext) -> None:
    lines, remedy = queries.cause(context.run)
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


def _properties(context: RunPageContext) -> None:
    run = context.run
    spec = run.spec
    git = spec.git
    rows: list[tuple[str, Cell | None]] = [
        ("Status", lambda: status_badge(run.status.value, queries.ending(run))),
        ("Run ID", run.id),
        ("Run number", str(spec.number) if spec.number else None),
        ("Script", plain(spec.entry.name, 500)),
        ("Target", plain(spec.compute.name, 200)),
        ("Scheduler job", describe_job(run)),
        ("Job request", describe_request(spec.scheduler)),
        ("Run configuration", plain(spec.runconfig, 200) or None),
        ("Project", _project(context)),
        ("Submitted", _timestamp(spec.created)),
        ("Started", _timestamp(run.started)),
        ("Ended", _timestamp(run.ended)),
        ("Duration", duration(run.duration) if run.duration is not None else None),
        ("Attempts", attempt_count(run)),
        *(("", describe_attempt(attempt)) for attempt in run.attempts[-_MAX_ATTEMPTS:]),
        *rank_pairs(run),
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
        ("Not kept", describe_unkept(run)),
    ]
    with ui.element("section").classes("mlw-card"):
        heading("Properties")
        property_list((name, value) for name, value in rows if value is not None)


def _timestamp(time: float | None) -> Callable[[], object] | None:
    return None if time is None else lambda: Timestamp(time, relative=False)


def _project(context: RunPageContext) -> Cell:
    name = plain(context.run.spec.project_name, 200)
    scope = context.scope
    return name if scope is None else lambda: ui.link(name, scope.address)


def _outputs(context: RunPageContext) -> str | None:
    run = context.run
    return f"{pluralize(run.outputs, 'file')}, {size(run.output_bytes or 0)}" if run.outputs else None


def _parameters(context: RunPageContext) -> None:
    parameters = queries.parameters(context.run)
    if parameters:
        with ui.element("section").classes("mlw-card"):
            heading("Parameters")
            property_list(parameters[:_MAX_PARAMETERS], mono=True)
            if len(parameters) > _MAX_PARAMETERS:
                text = (
                    f"and {len(parameters) - _MAX_PARAMETERS} more; run: mlw history info {plain(context.run.id, 100)}"
                )
                ui.label(text).classes("mlw-faint")


def _metrics(context: RunPageContext) -> None:
    values = queries.last_values(context.run)
    if not values:
        if not context.facts.child_runs:
            with ui.element("section").classes("mlw-card"):
                heading("Metrics")
                text = "No metrics logged." if context.run.status.final else "No metrics logged yet."
                ui.label(f'{text} To log one: from mlworkbench import log; log("loss", 0.12)').classes("mlw-faint")
        return
    with ui.element("section").classes("mlw-card"):
        heading("Metrics")
        with ui.element("div").classes("mlw-run-tiles"):
            for name, value, text in values[:_MAX_METRICS]:
                _tile(context, name, text, isinstance(value, (int, float)) and not isinstance(value, bool))
        if len(values) > _MAX_METRICS:
            ui.link(f"and {pluralize(len(values) - _MAX_METRICS, 'more metric')}", context.address(tab="metrics"))


def _tile(context: RunPageContext, name: str, text: str, has_curve: bool) -> None:
    span = context.run.spans.get(name)
    with ui.element("div").classes("mlw-run-tile"):
        ui.label(plain(name, 100)).classes("mlw-run-tile-name")
        context.values[name] = ui.label(text).classes("mlw-run-tile-value mlw-said")
        if has_curve and (not context.run.status.final or (span is not None and span.length > 1)):
            url = f"{context.api}/series?name={quote(name, safe='')}"
            MetricChart(plain(name, 100), [{"label": plain(name, 100), "url": url}], height=36, small=True)


def _nested_runs(context: RunPageContext) -> None:
    family = context.facts.child_runs
    if family is None:
        return
    with ui.element("section").classes("mlw-card"):
        heading("Runs of this sweep" if context.run.spec.sweep else "Nested runs")
        if family.metric:
            ui.label(_ranking_note(plain(family.metric, 100), family.goal)).classes("mlw-faint")
        _compare(family)
        _children(family, ui.element("div").classes("mlw-run-tab"), _CHILDREN_PER_STEP)


def _ranking_note(metric: str, goal: str | None) -> str:
    if goal is None:
        return f"Not ranked: it is not known whether higher or lower values of {metric} are better."
    return f"Ranked by {metric}; {'higher' if goal == MAX else 'lower'} is better."


def _children(family: queries.ChildRuns, box: ui.element, limit: int) -> None:
    """Show the first child runs, and more on demand."""
    titles = ["Run", "Status", "Parameters", *([plain(family.metric, 60)] if family.metric else []), "Duration"]
    remaining = len(family.children) - limit
    box.clear()
    with box:
        table(titles, (_child_row(child, bool(family.metric)) for child in family.children[:limit]), "Child runs")
        if remaining > 0:
            button = ui.button(
                f"and {remaining + family.more} more",
                on_click=lambda: _children(family, box, limit + _CHILDREN_PER_STEP),
            )
            button.props("flat dense no-caps")
        elif family.more:
            ui.label(f"and {family.more} more").classes("mlw-faint")


def _compare(family: queries.ChildRuns) -> None:
    """Link to a comparison of the child runs, up to the maximum number."""
    ids = [child.run.id for child in family.children[:_MAX_COMPARED]]
    if len(ids) < 2:
        return
    partial = f"Compare the {'best' if family.metric else 'first'} {len(ids)} runs"
    label = partial if len(ids) < len(family.children) + family.more else "Compare all runs"
    ui.link(label, f"/compare?runs={quote(','.join(ids), safe=',')}")


def _child_row(child: queries.Child, has_metric: bool) -> list[Cell]:
    run = child.run

    def link() -> None:
        with ui.row().classes("mlw-status"):
            title = run.id if run.spec.varied else run.name or run.id  # in a sweep, the name repeats the parameters
            ui.link(plain(title, 80), f"/runs/{quote(run.id, safe='')}")
            if child.best:
                ui.label("best").classes("mlw-run-word mlw-good")

    value = format_value(child.value) if child.value is not None else ""
    elapsed = duration(run.duration) if run.duration is not None else ""
    return [link, lambda: status_badge(run.status.value), child.varied, *([value] if has_metric else []), elapsed]


def _files(context: RunPageContext, listing: output_queries.Listing) -> None:
    with ui.element("section").classes("mlw-card"):
        heading("Outputs")
        for entry in listing.entries[:_MAX_FILES]:
            with ui.row().classes("mlw-run-file-line"):
                ui.icon("folder" if entry.kind == "folder" else "description").props("aria-hidden=true")
                ui.link(plain(entry.name, 80), context.address(tab="outputs", path=entry.path))
                ui.space()
                ui.label(size(entry.size)).classes("mlw-faint")
        if len(listing.entries) > _MAX_FILES:
            ui.link(f"and {len(listing.entries) - _MAX_FILES} more", context.address(tab="outputs"))
