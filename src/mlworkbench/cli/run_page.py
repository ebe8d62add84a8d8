"""``mlw history show``: print one run as a page."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

from ..history.child_runs import search_children
from ..history.parameters import run_parameters
from ..history.run_query import Query
from ..history.series.run_series import RunSeries
from ..history.series.series_store import Name
from ..history.store import History
from ..model import IN_CONTACT, Run
from ..paths import user_paths
from ..remote.shared.layout import is_untracked
from ..report import spark_report as report_spark
from ..report import units
from ..report.attempt_history import attempt_pairs
from ..report.failure_report import gpu_page, page_line, page_of
from ..report.gpu_figures import gpu_lines
from ..report.output_locations import describe_checkpoints, describe_outputs, left_out_pairs
from ..report.packages import load_packages
from ..report.rank_list import rank_pairs
from ..report.ranking import differing
from ..report.run_records import cause_lines, gpu_fields, outcome, summary
from ..report.slurm_report import describe_request, requested_gpus
from ..report.sweep_report import best, rank, ranking_metric
from ..report.value_format import format_value
from ..sanitize import plain
from ..scheduler_state import describe_job
from ..sweep_axes import name_of
from . import text_output
from .completion_types import complete_run
from .history import refresh_runs
from .metrics import format_metrics
from .options import project_option, result_options
from .recorded_sections import annotation_lines, data_sections
from .run_lookup import get_current_run
from .run_tables import show_run, show_run_file

_MAX_PARAMETERS, _MAX_METRICS, _MAX_CHILDREN, _MAX_FILES = 40, 30, 15, 6  # maximum entries per section
_DIGEST_LENGTH = 12
_MAX_SPARK_LINES = 8  # maximum executors and failures
_MAX_VARIED = 6
_GPU_LABELS = {"gpu": "GPU used", "gpu_warning": "GPU", "gpu_cause": "GPU cause", "gpu_remedy": "Remedy"}
_FILE_KINDS = ("image", "figure", "text", "file")  # tables and models have sections of their own
Lines = list[str]


@click.command(epilog="Example: mlw history show demo-swift")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "run_option", metavar="ID", help="Same as the argument RUN")
@click.option("--artifact", "-a", metavar="PATH", help="Print one file instead: driver_log, or an output")
@project_option
@result_options
def show(
    run: str | None, run_option: str | None, artifact: str | None, folder: str | None, output: str, query: str | None
) -> None:
    """Show a run.

    Prints status, parameters, metrics with charts, children, and files. Defaults to the newest run. For programs, use
    -o json.
    """
    history = History(user_paths())
    if artifact is not None:
        show_run_file(history, run or run_option, folder, artifact)
        return
    selected = get_current_run(history, run or run_option, folder)
    if output != "table" or query is not None:
        show_run(selected, output, query, history)
    else:
        text_output.write_lines(format_run(history, selected, text_output.width()))


def format_run(history: History, run: Run, width: int) -> Lines:
    """Return the lines of all nonempty sections, separated by empty lines."""
    sections = (
        _header(run),
        _problems(history, run),
        _spark(run),
        _parameters(run),
        _metrics(history, run, width),
        annotation_lines(run),
        *data_sections(history, run),
        _children(history, run),
        _files(history, run),
        _provenance(run, len(load_packages(history, run))),
        _hints(run),
    )
    lines: Lines = []
    for section in sections:
        lines += ["", *section] if section and lines else section
    return lines


def _header(run: Run) -> Lines:
    spec = run.spec
    title = text_output.bold(run.id) + (f"  {plain(run.name)}" if run.name else "")
    age = units.age(max(0.0, time.time() - (run.ended or run.started or spec.created)))
    contact = "" if run.contact == IN_CONTACT or run.status.final else f" ({plain(run.contact)})"
    since = "" if run.status.final else "started " if run.started else "submitted "
    prefix = {"module": ("-m",), "command": ("--",)}.get(spec.entry.kind, ())
    command = shlex.join((*prefix, spec.entry.name, *spec.entry.arguments))
    lines = [title, f"{text_output.color_status(summary(run))}, {since}{age}{contact}", plain(command, 1000)]
    if is_untracked(spec.folder):
        lines.append(f"not submitted by mlw: the script ran in {plain(spec.project_path)}")
    else:
        configuration = f", run configuration {plain(spec.runconfig)}" if spec.runconfig else ""
        lines.append(f"on {plain(spec.compute.name)}{configuration}, project {plain(spec.project_name)}")
    if spec.sweep is not None:
        axes = spec.sweep.get("axes") or {}
        lines.append(plain("sweep over " + " ".join(f"{name}={values}" for name, values in axes.items()), 1000))
    if spec.parent:
        lines.append(f"{'nested in run' if spec.inside else 'part of sweep'} {spec.parent}")
    lines += [f"job {plain(job)}"] if (job := describe_job(run)) else []
    if spec.resumed:
        lines.append(f"resumed from the checkpoints of run {plain(spec.resumed)}")
    if run.noted.archived:
        lines.append("archived")
    return lines


def _problems(history: History, run: Run) -> Lines:
    pairs = [*cause_lines(run), *page_line(page_of(run)), *attempt_pairs(run), *rank_pairs(run)]
    pairs += [(_GPU_LABELS[name], plain(text)) for name, text in gpu_fields(run.gpu).items() if name in _GPU_LABELS]
    pairs += [*page_line(gpu_page(run.gpu)), *gpu_lines(run)]
    if run.leftovers:
        pairs.append(("Leftover", f"processes {', '.join(map(str, run.leftovers))} still running"))
    pairs += left_out_pairs(run, history.paths.root.run(run.spec.folder))
    return text_output.format_pairs(pairs)


def _spark(run: Run) -> Lines:
    spark = run.spark
    if not spark or not spark.get("app"):
        return []
    names = {"spark": "Spark", "spark_ui": "Spark UI", "spark_history": "Spark history"}
    facts, tunnel = report_spark.spark_fields(spark, run.status.final), report_spark.tunnel(run)
    if tunnel and "spark_ui" in facts:
        facts["spark_ui"] += f" on the target; open a tunnel with: {tunnel}"
    pairs = [(names[name], text) for name, text in facts.items()]
    more = [("", report_spark.kind(spark)), ("", report_spark.progress(spark))]
    pairs[1:1] = [(name, text) for name, text in more if text]
    for name, lines in (
        ("Executors", report_spark.members(spark)),
        ("Failures", report_spark.describe_problems(spark)),
    ):
        pairs += [(name if index == 0 else "", text) for index, text in enumerate(lines[:_MAX_SPARK_LINES])]
        pairs += [("", text) for text in _more_line(len(lines) - _MAX_SPARK_LINES, "-o json")]
    return text_output.format_pairs(pairs)


def _parameters(run: Run) -> Lines:
    parameters = run_parameters(run)
    rows = [[plain(name, 60), "yes" if value is None else format_value(value)] for name, value in parameters.items()]
    return [
        *text_output.format_table(["Parameter", "Value"], rows[:_MAX_PARAMETERS]),
        *_more_line(len(rows) - _MAX_PARAMETERS, "-o json"),
    ]


def _metrics(history: History, run: Run, width: int) -> Lines:
    if not run.metrics:
        return []
    with RunSeries(history, run) as run_series:
        series = run_series.names()
        visible = series[:_MAX_METRICS] or [Name(name, "number", 1) for name in list(run.metrics)[:_MAX_METRICS]]
        lines = format_metrics(run, run_series, visible, width)
    return [*lines, *_more_line(len(series) - _MAX_METRICS, f"mlw history metrics {run.id}")]


# -- children ------------------------------------------------------------------------------------------


def _children(history: History, run: Run) -> Lines:
    if not run.children and run.spec.sweep is None and not run.spec.inside:
        return []
    children = search_children(history, run.spec, Query(hidden=True, sort="created", oldest=True))
    if not children:
        return []
    active = [child for child in children if not child.status.final and not child.spec.inside]
    refreshed = {child.id: child for child in refresh_runs(history, active)}
    positions = {name: position for position, name in enumerate((run.spec.sweep or {}).get("children", ()))}
    children = [
        refreshed.get(child.id, child)
        for child in sorted(children, key=lambda child: positions.get(child.id, len(positions)))
    ]
    metric, goal = ranking_metric(run, children)
    best_run = best(children, metric, goal)
    ordered = sorted(children, key=lambda child: rank(child, metric, goal))
    lines = _children_table(ordered[:_MAX_CHILDREN], metric, best_run)
    remaining = _more_line(len(children) - _MAX_CHILDREN, f"mlw history list --parent {run.id}")
    return [text_output.bold(f"Children ({len(children)})"), *lines, *remaining]


def _children_table(children: Sequence[Run], metric: str | None, best_run: Run | None) -> Lines:
    varied = {name: values for name, values in differing(children).items() if name != metric}
    names = list(varied)[:_MAX_VARIED]
    has_names = any(child.name and child.name != name_of(child.spec.varied) for child in children)
    titles = ["Run ID", *(["Name"] if has_names else []), *names, "Status", *([metric] if metric else []), ""]
    rows = [
        [
            child.id,
            *([plain(child.name or "", 40)] if has_names else []),
            *(format_value(varied[name][index], 30) for name in names),
            outcome(child),
            *([format_value(child.metrics.get(metric), 30)] if metric else []),
            "best" if child is best_run else "",
        ]
        for index, child in enumerate(children)
    ]
    return text_output.format_table(titles, rows)


# -- files, environment, code --------------------------------------------------------------------------


def _files(history: History, run: Run) -> Lines:
    kinds: dict[str, Lines] = {}
    for path, facts in run.files.items():
        kind = str(facts.get("as"))
        if kind not in ("table", "model"):
            kinds.setdefault(kind if kind in _FILE_KINDS else "file", []).append(path)
    pairs = [(f"{kind.capitalize()}s", _list_paths(kinds[kind])) for kind in _FILE_KINDS if kind in kinds]
    if run.outputs:
        size = f", {units.size(run.output_bytes)}" if run.output_bytes is not None else ""
        location = describe_outputs(run, history.paths.root.run(run.spec.folder))
        pairs.append(("Outputs", f"{units.pluralize(run.outputs, 'file')}{size}, {location}"))
    checkpoints = describe_checkpoints(run, history.paths.root.run(run.spec.folder))
    pairs += [("Checkpoints", checkpoints)] if checkpoints else []
    return text_output.format_pairs(pairs)


def _list_paths(paths: Sequence[str]) -> str:
    remaining = len(paths) - _MAX_FILES
    return plain(", ".join(paths[:_MAX_FILES])) + (f", and {remaining} more" if remaining > 0 else "")


def _provenance(run: Run, packages: int = 0) -> Lines:
    spec = run.spec
    pairs = [("Environment", plain(text)) for text in _describe_environment(run, packages)]
    if spec.container:
        pairs.append(("Image", plain(spec.container.image)))
    gpus = spec.gpus or requested_gpus(spec.scheduler)
    if gpus:
        pairs.append(("GPU request", plain(gpus)))
    pairs += [("Job request", plain(text))] if (text := describe_request(spec.scheduler)) else []
    code = [f"snapshot {spec.snapshot[:_DIGEST_LENGTH]}"] if spec.snapshot else []
    if spec.git and spec.git.commit:
        branch = f" on {spec.git.branch}" if spec.git.branch else ""
        changed = ", with uncommitted changes" if spec.git.dirty else ""
        code.append(f"commit {spec.git.commit[:_DIGEST_LENGTH]}{branch}{changed}")
    if code:
        pairs.append(("Code", plain(", ".join(code))))
    if spec.user:
        pairs.append(("User", plain(spec.user)))
    return text_output.format_pairs(pairs)


def _describe_environment(run: Run, packages: int) -> Iterable[str]:
    lock = run.spec.lock
    if not lock:
        return
    python: Any = lock.get("python")
    count = f", {units.pluralize(packages, 'package')}" if packages else ""
    if lock.get("kind") == "managed":
        version = python.get("version") if isinstance(python, dict) else None
        yield f"Python {version or ''}{count}, environment {str(lock.get('digest'))[:_DIGEST_LENGTH]}"
    else:
        yield f"Python {lock.get('version') or ''}{count}, {python}".replace("Python ,", "Python")


def _hints(run: Run) -> Lines:
    commands = [] if is_untracked(run.spec.folder) else [f"mlw logs {run.spec.folder}"]
    commands += [f"mlw history metrics {run.id}"] if run.spans else []
    commands += [f"mlw cancel {run.spec.folder}"] if not run.status.final and not is_untracked(run.spec.folder) else []
    return [text_output.faint("see also: " + "; ".join(commands))] if commands else []


def _more_line(count: int, where: str) -> Lines:
    return [f"and {count} more: {where}"] if count > 0 else []
