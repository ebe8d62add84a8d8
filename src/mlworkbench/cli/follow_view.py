"""Follow a run on the terminal: stream its log and print the summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TextIO

from ..errors import HistoryError, LaunchError
from ..follow import Follower
from ..hosts.unattached import UnattachedHost
from ..inferred_state import INTERRUPTED
from ..model import IN_CONTACT, Run
from ..paths import RunFolder
from ..report import spark_report as report_spark
from ..report import units
from ..report.attempt_history import attempt_pairs
from ..report.failure_report import gpu_page, page_line, page_of
from ..report.output_locations import describe_outputs, left_out_pairs
from ..report.run_records import cause_lines, exit_code, gpu_fields, summary
from ..report.value_format import format_value
from ..run_observer import Observer
from ..runfiles.secret_masking import Mask
from ..runs.result_download import SweepChildren, fetch_outputs
from ..runs.run_messages import RunMessages
from ..sanitize import plain
from . import render
from .submission_console import Console
from .terminal_safety import TerminalFilter

_MAX_LISTED = 8


def stream(
    follower: Follower,
    *,
    secrets: Iterable[str] = (),
    live: bool = True,
    raw: bool = False,
    log_to: TextIO | None = None,
    on_data: Callable[[bytes], None] = lambda data: None,
    observer: Observer | None = None,
) -> None:
    """Write the log, filtered on a terminal and unchanged elsewhere. Known secrets are masked."""
    out = log_to or sys.stdout
    stages: list[Mask | TerminalFilter] = []
    values = [os.fsencode(value) for value in secrets]
    if values:
        stages.append(Mask(values))
    if render.is_terminal(out) and not raw:
        stages.append(TerminalFilter(encoding=getattr(out, "encoding", None) or "utf-8"))
    for data in follower.chunks(live, observer=observer):
        chunk = data
        for stage in stages:
            chunk = stage.feed(chunk)
        render.write_bytes(chunk, out)
        on_data(data)
    remaining = b""
    for stage in stages:
        remaining = stage.feed(remaining) + stage.end()
    render.write_bytes(remaining, out)


def watch(follower: Follower, secrets: Iterable[str] = (), log_to: TextIO | None = None, raw: bool = False) -> int:
    """Stream a run until it ends, fetch outputs, and print a summary. Ctrl-C does not stop the run."""
    console = Console()
    messages = RunMessages(render.message)
    messages.state_changed(follower.run)
    if isinstance(follower.target.host, UnattachedHost) and not follower.is_log_complete():
        raise follower.target.host.refusal  # the log cannot be read without a connection
    if follower.run.contact != IN_CONTACT:
        messages.contact_changed(follower.run)  # contact was already lost
    children = _sweep_children(follower, console)
    on_data = children.feed if children else lambda data: None
    try:
        stream(follower, secrets=secrets, log_to=log_to, raw=raw, on_data=on_data, observer=messages)
        fetch_outputs(follower, console)
        if children:
            children.fetch_all()
    except (KeyboardInterrupt, render.OutputClosed):
        console.detached(follower.run)
        raise
    if follower.run.detail == INTERRUPTED:
        render.message(f"the submission of run {follower.run.id} was interrupted before the run started")
        render.message(
            f"hint: resume it with 'mlw experiment resume {follower.run.id}', or cancel it with"
            f" 'mlw cancel {follower.run.id}'"
        )
        return LaunchError.exit_code
    if follower.log_was_shortened():
        where = plain(follower.run.spec.compute.name)
        render.message(f"warning: the log on {where} was truncated during the run; lines may be missing here")
    print_summary(follower.run, follower.history.paths.root.run(follower.run.id))
    if children:
        from ..history.child_runs import children_of_sweep  # noqa: PLC0415 - only sweeps need it
        from .sweep_view import show_children  # noqa: PLC0415

        show_children(follower.run, children_of_sweep(follower.history, follower.run.spec))
    return exit_code(follower.run)


def _sweep_children(follower: Follower, console: Console) -> SweepChildren | None:
    """Return the children of a sweep, or None for other runs."""
    spec = follower.run.spec
    return SweepChildren(follower.history, spec, follower.target, console) if spec.sweep else None


def report_lost_contact(runs: Iterable[Run]) -> None:
    """Print which machines could not be reached. Their runs are shown in their last known state."""
    lost = {(run.spec.compute.name, run.contact) for run in runs if run.contact != IN_CONTACT and not run.status.final}
    for name, contact in sorted(lost):
        render.message(f"{name}: {contact}; its runs continue and are shown in their last known state")


def print_summary(run: Run, folder: RunFolder) -> None:
    """Print the execution summary."""
    lines: list[tuple[str, str]] = [("RunId", run.id), ("Status", summary(run))]
    lines += [*cause_lines(run), *page_line(page_of(run)), *attempt_pairs(run)]
    names = {"gpu": "GPU used", "gpu_cause": "GPU cause", "gpu_remedy": "Remedy"}
    lines += [(names[name], plain(text)) for name, text in gpu_fields(run.gpu).items() if name in names]
    lines += page_line(gpu_page(run.gpu))
    if run.spark and run.spark.get("app"):
        lines.append(("Spark", report_spark.summary(run.spark)))
    if run.metrics:
        lines.append(("Metrics", _format_metrics(run)))
    if run.outputs:
        lines.append(("Outputs", _format_outputs(run, folder)))
    if run.leftovers:
        pids = ", ".join(str(pid) for pid in run.leftovers)
        count = units.pluralize(len(run.leftovers), "process", "processes")
        lines.append(("Leftover", f"{count} still running: {pids}"))
    lines += left_out_pairs(run, folder)
    render.message("\nExecution Summary\n=================")
    for name, text in lines:
        render.message(f"{name + ':' if name else '':<10} {text}")


def _format_metrics(run: Run) -> str:
    names = list(run.metrics)
    parts = [f"{plain(name)} {format_value(run.metrics[name])}" for name in names[:_MAX_LISTED]]
    return ", ".join(parts) + (f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else "")


def _format_outputs(run: Run, folder: RunFolder) -> str:
    from ..runfiles.output_manifest import read_outputs  # noqa: PLC0415 - not needed for the first log line

    try:
        entries = list(islice((entry for entry in read_outputs(folder.manifest) if entry.is_collected), _MAX_LISTED))
    except (OSError, HistoryError):
        return f"{units.pluralize(run.outputs or 0, 'file')}; {describe_outputs(run, folder)}"
    parts = [f"{plain(entry.path)} ({units.size(entry.size)})" for entry in entries]
    remaining = (run.outputs or 0) - len(entries)
    return (
        ", ".join(parts) + (f", and {remaining} more" if remaining > 0 else "") + f"; {describe_outputs(run, folder)}"
    )
