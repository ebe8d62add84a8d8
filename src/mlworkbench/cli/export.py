"""``mlw history export``: export runs to a file or an MLflow server."""

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
from ..report.run_filters import make_query
from ..report.run_records import record, to_display
from ..sanitize import plain
from . import render
from .completion_types import complete_run
from .filters import filter_options
from .history import refresh_runs
from .options import get_project_or_none, global_options, project_option
from .output_option import output_options

_USAGE_ERRORS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
FORMATS = ("csv", "json", "html")
_FORMATS_BY_EXTENSION = {**{kind: kind for kind in FORMATS}, "htm": "html"}
_STDOUT = "-"
_NON_FILTER_OPTIONS = ("kind", "path", "points", "uri", "experiment", "no_children")  # options that do not filter runs


@click.command(epilog="Example: mlw history export --where 'accuracy > 0.9' --to report.html")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@output_options(
    FORMATS,
    format_help="Output format (default: from the file name, else csv)",
    file_help="File to write: .csv, .json, or .html (default: standard output)",
)
@click.option("--points", is_flag=True, help="Export every point: one row each in CSV, whole series in JSON")
@click.option("--mlflow", "uri", metavar="URI", help="Send the runs to this MLflow server instead of writing a file")
@click.option("--experiment", metavar="NAME", help="MLflow experiment (default: the project name)")
@click.option("--all", "all_projects", is_flag=True, help="Include all projects")
@click.option("--no-children", is_flag=True, help="Exclude child runs of sweeps and nested runs")
@click.option("--sort", metavar="NAME", help="Sort by this metric, parameter, or key; -NAME for descending order")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Maximum number of runs")
@filter_options
@project_option
@global_options
def export(runs: tuple[str, ...], all_projects: bool, folder: str | None, **options: Any) -> int:
    """Export runs to CSV, JSON, HTML, or MLflow.

    Exports all runs of the project, the runs that match the options, or the specified runs with their children.

    CSV has one row per run. The HTML page is a single self-contained file with tables and charts. It includes up to 12
    images per run of at most 2 MB each (PNG, JPEG, GIF, WebP, and SVG that begins with <?xml) and lists other files by
    name.

    An MLflow server receives every point, all outputs, logged and registered models, and traces. Exporting again
    updates the runs on the server. For a server with authentication, set MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN. Exits with 1 if something could not be sent.
    """
    kind = _choose_format(options)
    history = History(user_paths())
    project = None if all_projects or runs else get_project_or_none(folder)
    selected = _select_runs(history, runs, project.id if project else None, options)
    if not selected:
        raise UsageError("no runs match; nothing was exported", "list runs with 'mlw history list --all'")
    if options["uri"] is not None:
        from .export_mlflow import export_to_server  # noqa: PLC0415 - imports an HTTP client

        return export_to_server(history, selected, options["uri"], options["experiment"])
    _write_runs(history, selected, kind, options)
    return 0


def _choose_format(options: dict[str, Any]) -> str:
    """Return the export format. Raise if the options cannot be combined."""
    path, kind = options["path"], options["kind"]
    if options["uri"] is not None:
        if path or kind or options["points"]:
            raise UsageError("--mlflow cannot be combined with --output, --to, or --points", "remove these options")
        return "mlflow"
    if options["experiment"] is not None:
        raise UsageError("--experiment requires --mlflow", "for example: --mlflow http://127.0.0.1:5000")
    if kind is None:
        kind = _format_of_file(path)
    if kind == "html" and not path:
        raise UsageError("html output requires a file", "for example: --to report.html")
    if kind == "html" and options["points"]:
        raise UsageError("--points cannot be combined with html output", "remove --points, or use -o csv")
    return str(kind)


def _format_of_file(path: str | None) -> str:
    """Return the format for a file name by its extension, or CSV if there is no extension."""
    if path is None or path == _STDOUT:
        return "csv"
    extension = os.path.splitext(path)[1].lower().lstrip(".")
    if extension and extension not in _FORMATS_BY_EXTENSION:
        raise UsageError(
            f"{path}: unknown output format .{extension}",
            f"available: {', '.join(FORMATS)}; or select one with -o FORMAT",
        )
    return _FORMATS_BY_EXTENSION.get(extension, "csv")


def _select_runs(history: History, names: tuple[str, ...], project: str | None, options: dict[str, Any]) -> list[Run]:
    """Return the named runs in the given order, or all runs, sorted or newest first.

    Children of named runs are included.
    """
    from ..export.run_data import with_children  # noqa: PLC0415 - keeps `mlw --help` fast

    filters = {name: value for name, value in options.items() if name not in _NON_FILTER_OPTIONS}
    query = replace(make_query(project, filters, history), children=not options["no_children"])
    refresh_runs(history, history.unfinished(project))
    if not names:
        return history.search(query)
    named = [history.get(name) for name in names]
    if not options["no_children"]:
        named = with_children(history, named)
    if not any(filters.values()):
        return named
    ids = {run.id for run in named}
    return [run for run in history.search(replace(query, hidden=True, children=True)) if run.id in ids]


def _write_runs(history: History, runs: list[Run], kind: str, options: dict[str, Any]) -> None:
    from ..export.run_data import make_items  # noqa: PLC0415 - see _select_runs

    items = make_items(history, runs, record, to_display)
    path = None if options["path"] == _STDOUT else options["path"]
    with _open_destination(path) as write:
        if kind == "html":
            from ..export.html.document import write_page  # noqa: PLC0415

            write_page(items, write)
        elif kind == "json":
            from ..export.json_export import write_json  # noqa: PLC0415

            write_json(items, write, all_points=options["points"])
        else:
            from ..export.csv_export import write_points, write_runs  # noqa: PLC0415

            (write_points if options["points"] else write_runs)(items, write)
    if path:
        count = f"{len(items)} run" + ("" if len(items) == 1 else "s")
        render.message(f"wrote {count} to {path}")


# -- destination ------------------------------------------------------------------------------------------


@contextmanager
def _open_destination(path: str | None) -> Iterator[Callable[[str], None]]:
    """Return a function that writes to a file or stdout.

    An existing file is replaced only after everything has been written.
    """
    if path is None:
        yield _write_stdout
        return
    path = os.path.realpath(path)
    try:
        is_special = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
        temporary = (
            path
            if is_special
            else os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:200]}.{os.urandom(4).hex()}.part")
        )
        try:
            with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                yield lambda text: _write_text(file, text)
            if not is_special:
                os.replace(temporary, path)
        finally:
            if not is_special:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
    except OSError as error:
        # A missing or unwritable folder is a usage error.
        kind = UsageError if isinstance(error, _USAGE_ERRORS) else MlwError
        raise kind(f"cannot write {path}: {error.strerror}", "choose another file with --to") from error


def _write_text(file: Any, text: str) -> None:
    file.write(text)


def _write_stdout(text: str) -> None:
    if render.is_terminal(sys.stdout):
        text = "\n".join(plain(line) for line in text.split("\n"))
    render.write_bytes(text.encode("utf-8", "backslashreplace"))
