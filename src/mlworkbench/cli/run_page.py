"""``mlw history show``: one run on a page, for people."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

from ..history.children import search_children
from ..history.parameters import of_run
from ..history.query import Query
from ..history.series.measured import Measured
from ..history.series.series import Name
from ..history.store import History
from ..model import IN_CONTACT, Run
from ..paths import user_paths
from ..remote.shared.layout import is_outside
from ..report import spark as report_spark
from ..report import units
from ..report.children import best, judged_by, rank
from ..report.failures import gpu_page, page_line, page_of
from ..report.output_places import left_out_pairs, outputs_place
from ..report.plain import plain
from ..report.ranking import differing
from ..report.records import cause_lines, gpu_words, outcome, summary
from ..report.values import shown
from ..sweep import name_of
from . import paper
from .completion import complete_run
from .history import refreshed
from .metrics import lines_of
from .opening import look_up
from .options import in_project, rendering
from .show import show_part, show_run

_PARAMETERS, _METRICS, _CHILDREN, _FILES = 40, 30, 15, 6  # of each as many at most
_DIGEST = 12
_SPARK = 8  # executors, and things that went wrong
_VARIED = 6
_GPU = {"gpu": "GPU used", "gpu_warning": "GPU", "gpu_cause": "GPU cause", "gpu_remedy": "Remedy"}
_KINDS = ("image", "figure", "table", "model", "text", "file")
Lines = list[str]


@click.command(epilog="Example: mlw history show demo-swift")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", help="Same as the argument RUN")
@click.option("--artifact", "-a", metavar="PATH", help="Print one file instead: driver_log, or an output")
@in_project
@rendering
def show(
    run: str | None, by_option: str | None, artifact: str | None, folder: str | None, output: str, query: str | None
) -> None:
    """Show a run.

    Prints status, parameters, metrics with charts, children, and files. Defaults to the newest run. For programs, use
    -o json.
    """
    history = History(user_paths())
    if artifact is not None:
        show_part(history, run or by_option, folder, artifact)
        return
    found = look_up(history, run or by_option, folder)
    if output != "table" or query is not None:
        show_run(found, output, query, history)
    else:
        paper.write(page(history, found, paper.width()))


def page(history: History, run: Run, width: int) -> Lines:
    """All parts that have something to say, an empty line between them."""
    parts = (
        _head(run),
        _trouble(history, run),
        _spark(run),
        _parameters(run),
        _metrics(history, run, width),
        _words(run),
        _children(history, run),
        _files(history, run),
        _grounds(run),
        _hints(run),
    )
    lines: Lines = []
    for part in parts:
        lines += ["", *part] if part and lines else part
    return lines


def _head(run: Run) -> Lines:
    spec = run.spec
    title = paper.bold(run.id) + (f"  {plain(run.name)}" if run.name else "")
    age = units.age(max(0.0, time.time() - (run.ended or run.started or spec.created)))
    lost = "" if run.contact == IN_CONTACT or run.status.final else f" ({plain(run.contact)})"
    since = "" if run.status.final else "started " if run.started else "submitted "
    way = {"module": ("-m",), "command": ("--",)}.get(spec.entry.kind, ())
    typed = shlex.join((*way, spec.entry.name, *spec.entry.arguments))
    lines = [title, f"{paper.status(summary(run))}, {since}{age}{lost}", plain(typed, 1000)]
    if is_outside(spec.folder):
        lines.append(f"not submitted by mlw: the script ran in {plain(spec.project_path)}")
    else:
        configured = f", run configuration {plain(spec.runconfig)}" if spec.runconfig else ""
        lines.append(f"on {plain(spec.compute.name)}{configured}, project {plain(spec.project_name)}")
    if spec.sweep is not None:
        axes = spec.sweep.get("axes") or {}
        lines.append(plain("sweep over " + " ".join(f"{name}={values}" for name, values in axes.items()), 1000))
    if spec.parent:
        lines.append(f"{'nested in run' if spec.inside else 'part of sweep'} {spec.parent}")
    if run.noted.archived:
        lines.append("archived")
    return lines


def _trouble(history: History, run: Run) -> Lines:
    found = [*cause_lines(run), *page_line(page_of(run))]
    found += [(_GPU[name], plain(text)) for name, text in gpu_words(run.gpu).items() if name in _GPU]
    found += page_line(gpu_page(run.gpu))
    if run.leftovers:
        found.append(("Leftover", f"processes {', '.join(map(str, run.leftovers))} still running"))
    found += left_out_pairs(run, history.paths.root.run(run.spec.folder))
    return paper.pairs(found)


def _spark(run: Run) -> Lines:
    spark = run.spark
    if not spark or not spark.get("app"):
        return []
    names = {"spark": "Spark", "spark_ui": "Spark UI", "spark_history": "Spark history"}
    told, tunnel = report_spark.words(spark, run.status.final), report_spark.tunnel(run)
    if tunnel and "spark_ui" in told:
        told["spark_ui"] += f" on the target; open a tunnel with: {tunnel}"
    found = [(names[name], text) for name, text in told.items()]
    more = [("", report_spark.kind(spark)), ("", report_spark.progress(spark))]
    found[1:1] = [(name, text) for name, text in more if text]
    for name, lines in (("Executors", report_spark.members(spark)), ("Failures", report_spark.troubles(spark))):
        found += [(name if at == 0 else "", text) for at, text in enumerate(lines[:_SPARK])]
        found += [("", text) for text in _more(len(lines) - _SPARK, "-o json")]
    return paper.pairs(found)


def _parameters(run: Run) -> Lines:
    known = of_run(run)
    rows = [[plain(name, 60), "yes" if value is None else shown(value)] for name, value in known.items()]
    return [*paper.table(["Parameter", "Value"], rows[:_PARAMETERS]), *_more(len(rows) - _PARAMETERS, "-o json")]


def _metrics(history: History, run: Run, width: int) -> Lines:
    if not run.metrics:
        return []
    with Measured(history, run) as measured:
        known = measured.names()
        shown = known[:_METRICS] or [Name(name, "number", 1) for name in list(run.metrics)[:_METRICS]]
        lines = lines_of(run, measured, shown, width)
    return [*lines, *_more(len(known) - _METRICS, f"mlw history metrics {run.id}")]


def _words(run: Run) -> Lines:
    found = [("Tags", plain(", ".join(run.tags)))] if run.tags else []
    if run.noted.note:
        first, *rest = (plain(line) for line in run.noted.note.splitlines())
        found += [("Note", first), *(("", line) for line in rest)]
    return paper.pairs(found)


# -- children ------------------------------------------------------------------------------------------


def _children(history: History, run: Run) -> Lines:
    if not run.children and run.spec.sweep is None and not run.spec.inside:
        return []
    children = search_children(history, run.spec, Query(hidden=True, sort="created", oldest=True))
    if not children:
        return []
    going = [one for one in children if not one.status.final and not one.spec.inside]
    now = {one.id: one for one in refreshed(history, going)}
    places = {name: at for at, name in enumerate((run.spec.sweep or {}).get("children", ()))}
    children = [now.get(one.id, one) for one in sorted(children, key=lambda one: places.get(one.id, len(places)))]
    metric, goal = judged_by(run.spec.sweep or {}, children)
    first = best(children, metric, goal)
    ordered = sorted(children, key=lambda one: rank(one, metric, goal))
    lines = _table(ordered[:_CHILDREN], metric, first)
    more = _more(len(children) - _CHILDREN, f"mlw history list --parent {run.id}")
    return [paper.bold(f"Children ({len(children)})"), *lines, *more]


def _table(children: Sequence[Run], metric: str | None, first: Run | None) -> Lines:
    varied = {name: values for name, values in differing(children).items() if name != metric}
    names = list(varied)[:_VARIED]
    named = any(one.name and one.name != name_of(one.spec.varied) for one in children)
    titles = ["Run ID", *(["Name"] if named else []), *names, "Status", *([metric] if metric else []), ""]
    rows = [
        [
            child.id,
            *([plain(child.name or "", 40)] if named else []),
            *(shown(varied[name][at], 30) for name in names),
            outcome(child),
            *([shown(child.metrics.get(metric), 30)] if metric else []),
            "best" if child is first else "",
        ]
        for at, child in enumerate(children)
    ]
    return paper.table(titles, rows)


# -- files, environment, code --------------------------------------------------------------------------


def _files(history: History, run: Run) -> Lines:
    kinds: dict[str, Lines] = {}
    for path, told in run.files.items():
        kind = str(told.get("as"))
        kinds.setdefault(kind if kind in _KINDS else "file", []).append(path)
    found = [(f"{kind.capitalize()}s", _some(kinds[kind])) for kind in _KINDS if kind in kinds]
    if run.outputs:
        size = f", {units.size(run.output_bytes)}" if run.output_bytes is not None else ""
        place = outputs_place(run, history.paths.root.run(run.spec.folder))
        found.append(("Outputs", f"{units.counted(run.outputs, 'file')}{size}, {place}"))
    return paper.pairs(found)


def _some(paths: Sequence[str]) -> str:
    rest = len(paths) - _FILES
    return plain(", ".join(paths[:_FILES])) + (f", and {rest} more" if rest > 0 else "")


def _grounds(run: Run) -> Lines:
    spec = run.spec
    found = [("Environment", plain(text)) for text in _environment(run)]
    if spec.container:
        found.append(("Image", plain(spec.container.image)))
    if spec.gpus:
        found.append(("GPU request", plain(spec.gpus)))
    code = [f"snapshot {spec.snapshot[:_DIGEST]}"] if spec.snapshot else []
    if spec.git and spec.git.commit:
        branch = f" on {spec.git.branch}" if spec.git.branch else ""
        changed = ", with uncommitted changes" if spec.git.dirty else ""
        code.append(f"commit {spec.git.commit[:_DIGEST]}{branch}{changed}")
    if code:
        found.append(("Code", plain(", ".join(code))))
    if spec.user:
        found.append(("User", plain(spec.user)))
    return paper.pairs(found)


def _environment(run: Run) -> Iterable[str]:
    lock = run.spec.lock
    if not lock:
        return
    python: Any = lock.get("python")
    if lock.get("kind") == "managed":
        version = python.get("version") if isinstance(python, dict) else None
        count = units.counted(len(lock.get("conda") or ()) + len(lock.get("pip") or ()), "package")
        yield f"Python {version or ''}, {count}, environment {str(lock.get('digest'))[:_DIGEST]}"
    else:
        yield f"Python {lock.get('version') or ''}, {python}".replace("Python ,", "Python")


def _hints(run: Run) -> Lines:
    words = [] if is_outside(run.spec.folder) else [f"mlw logs {run.spec.folder}"]
    words += [f"mlw history metrics {run.id}"] if run.spans else []
    words += [f"mlw cancel {run.spec.folder}"] if not run.status.final and not is_outside(run.spec.folder) else []
    return [paper.faint("see also: " + "; ".join(words))] if words else []


def _more(count: int, where: str) -> Lines:
    return [f"and {count} more: {where}"] if count > 0 else []
