"""``mlw history export``: runs for a spreadsheet, for a program, for colleagues, for an MLflow server."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import click

from ..errors import MlwError, UsageError
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report.plain import plain
from ..report.records import for_people, record
from ..report.wishes import make_query
from . import render
from .completion import complete_run
from .filters import narrowing
from .history import refreshed
from .options import debugging, in_project, maybe_project
from .output_option import output_options

_MISTAKES = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
KINDS = ("csv", "json", "html")
_ENDINGS = {**{kind: kind for kind in KINDS}, "htm": "html"}
_STDOUT = "-"
_OWN = ("kind", "path", "points", "uri", "experiment", "no_children")  # options that choose no runs


@click.command(epilog="Example: mlw history export --where 'accuracy > 0.9' --to report.html")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@output_options(
    KINDS,
    format_help="Output format (default: from the file name, else csv)",
    file_help="File to write: .csv, .json, or .html (default: standard output)",
)
@click.option("--points", is_flag=True, help="Export every point: one row each in CSV, whole series in JSON")
@click.option("--mlflow", "uri", metavar="URI", help="Send the runs to this MLflow server instead of writing a file")
@click.option("--experiment", metavar="NAME", help="MLflow experiment (default: the project name)")
@click.option("--all", "everywhere", is_flag=True, help="Include all projects")
@click.option("--no-children", is_flag=True, help="Exclude child runs of sweeps and nested runs")
@click.option("--sort", metavar="NAME", help="Sort by this metric, parameter, or key; -NAME for descending order")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Maximum number of runs")
@narrowing
@in_project
@debugging
def export(runs: tuple[str, ...], everywhere: bool, folder: str | None, **asked: Any) -> int:
    """Export runs to CSV, JSON, HTML, or MLflow.

    Exports all runs of the project, the runs that match the options, or the specified runs with their children.

    CSV has one row per run. The HTML page is a single self-contained file with tables and charts. It includes up to 12
    images per run of at most 2 MB each (PNG, JPEG, GIF, WebP, and SVG that begins with <?xml) and lists other files by
    name.

    An MLflow server receives every point and all outputs. Exporting again updates the runs on the server. For a server
    with authentication, set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN. Exits
    with 1 if some files could not be sent.
    """
    kind = _kind(asked)
    history = History(user_paths())
    project = None if everywhere or runs else maybe_project(folder)
    found = _chosen(history, runs, project.id if project else None, asked)
    if not found:
        raise UsageError("no runs match; nothing was exported", "list runs with 'mlw history list --all'")
    if asked["uri"] is not None:
        from .exportmlflow import to_server  # noqa: PLC0415 - brings what speaks HTTP, which files need none of

        return to_server(history, found, asked["uri"], asked["experiment"])
    _write(history, found, kind, asked)
    return 0


def _kind(asked: dict[str, Any]) -> str:
    """The format, where the options fit together."""
    path, kind = asked["path"], asked["kind"]
    if asked["uri"] is not None:
        if path or kind or asked["points"]:
            raise UsageError("--mlflow cannot be combined with --output, --to, or --points", "remove these options")
        return "mlflow"
    if asked["experiment"] is not None:
        raise UsageError("--experiment requires --mlflow", "for example: --mlflow http://127.0.0.1:5000")
    if kind is None:
        kind = _kind_of_file(path)
    if kind == "html" and not path:
        raise UsageError("html output requires a file", "for example: --to report.html")
    if kind == "html" and asked["points"]:
        raise UsageError("--points cannot be combined with html output", "remove --points, or use -o csv")
    return str(kind)


def _kind_of_file(path: str | None) -> str:
    """By its ending; CSV if it has none."""
    if path is None or path == _STDOUT:
        return "csv"
    ending = os.path.splitext(path)[1].lower().lstrip(".")
    if ending and ending not in _ENDINGS:
        raise UsageError(
            f"{path}: unknown output format .{ending}", f"available: {', '.join(KINDS)}; or select one with -o FORMAT"
        )
    return _ENDINGS.get(ending, "csv")


def _chosen(history: History, names: tuple[str, ...], project: str | None, asked: dict[str, Any]) -> list[Run]:
    """In the order of the names, else newest first or as sorted. Children of named runs come with them."""
    from ..export.material import with_children  # noqa: PLC0415 - mlw --help lists this command, too

    wishes = {name: value for name, value in asked.items() if name not in _OWN}
    query = replace(make_query(project, wishes, history), children=not asked["no_children"])
    refreshed(history, history.unfinished(project))
    if not names:
        return history.search(query)
    named = [history.get(name) for name in names]
    if not asked["no_children"]:
        named = with_children(history, named)
    if not any(wishes.values()):
        return named
    ids = {run.id for run in named}
    return [run for run in history.search(replace(query, hidden=True, children=True)) if run.id in ids]


def _write(history: History, runs: list[Run], kind: str, asked: dict[str, Any]) -> None:
    from ..export.material import make_items  # noqa: PLC0415 - see _chosen

    items = make_items(history, runs, record, for_people)
    path = None if asked["path"] == _STDOUT else asked["path"]
    with _sink(path) as write:
        if kind == "html":
            from ..export.html.page import write_page  # noqa: PLC0415

            write_page(items, write)
        elif kind == "json":
            from ..export.jsonfile import write_json  # noqa: PLC0415

            write_json(items, write, all_points=asked["points"])
        else:
            from ..export.csvfile import write_points, write_runs  # noqa: PLC0415

            (write_points if asked["points"] else write_runs)(items, write)
    if path:
        count = f"{len(items)} run" + ("" if len(items) == 1 else "s")
        render.message(f"wrote {count} to {path}")


# -- where it goes -------------------------------------------------------------------------------------


@contextmanager
def _sink(path: str | None) -> Iterator[Callable[[str], None]]:
    """A file appears whole or not at all, and one that was there stays until then."""
    if path is None:
        yield _pour
        return
    path = os.path.realpath(path)
    try:
        special = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
        part = (
            path
            if special
            else os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:200]}.{os.urandom(4).hex()}.part")
        )
        try:
            with open(part, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                yield lambda text: _put(file, text)
            if not special:
                os.replace(part, path)
        finally:
            if not special:
                with suppress(FileNotFoundError):
                    os.unlink(part)
    except OSError as error:
        # A folder that is not there, or is not ours, is a mistake of the command line.
        kind = UsageError if isinstance(error, _MISTAKES) else MlwError
        raise kind(f"cannot write {path}: {error.strerror}", "choose another file with --to") from error


def _put(file: Any, text: str) -> None:
    file.write(text)


def _pour(text: str) -> None:
    if render.terminal(sys.stdout):
        text = "\n".join(plain(line) for line in text.split("\n"))
    render.pour(text.encode("utf-8", "backslashreplace"))
