"""A run on the screen: its log as it comes, and the closing lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TextIO

from ..errors import HistoryError, LaunchError
from ..follow import Follower
from ..hosts.stranger import Stranger
from ..inferred_state import INTERRUPTED
from ..model import IN_CONTACT, Run
from ..paths import RunFolder
from ..report import spark as report_spark
from ..report import units
from ..report.failures import gpu_page, page_line, page_of
from ..report.output_places import left_out_pairs, outputs_place
from ..report.plain import plain
from ..report.records import cause_lines, exit_code, gpu_words, summary
from ..report.values import shown
from ..run_observer import Observer
from ..runfiles.manifest import read_outputs
from ..runfiles.mask import Mask
from ..runs.results import SweepChildren, fetch_outputs
from ..runs.run_messages import RunMessages
from . import render
from .console import Console
from .screen import Screen

_SHOWN = 8


def stream(
    follower: Follower,
    *,
    secrets: Iterable[str] = (),
    live: bool = True,
    raw: bool = False,
    log_to: TextIO | None = None,
    heard: Callable[[bytes], None] = lambda data: None,
    observer: Observer | None = None,
) -> None:
    """Pour the log out: safe on a terminal, byte for byte elsewhere; known secrets are masked."""
    out = log_to or sys.stdout
    stages: list[Mask | Screen] = []
    values = [os.fsencode(value) for value in secrets]
    if values:
        stages.append(Mask(values))
    if render.terminal(out) and not raw:
        stages.append(Screen(encoding=getattr(out, "encoding", None) or "utf-8"))
    for data in follower.chunks(live, observer=observer):
        chunk = data
        for stage in stages:
            chunk = stage.feed(chunk)
        render.pour(chunk, out)
        heard(data)
    rest = b""
    for stage in stages:
        rest = stage.feed(rest) + stage.end()
    render.pour(rest, out)


def watch(follower: Follower, secrets: Iterable[str] = (), log_to: TextIO | None = None, raw: bool = False) -> int:
    """Stream a run to its end, bring its outputs home, and say how it ended. Ctrl-C leaves the run alone."""
    console = Console()
    messages = RunMessages(render.message)
    messages.state_changed(follower.run)
    if isinstance(follower.target.host, Stranger) and not follower.log_is_home():
        raise follower.target.host.refusal  # nothing would ever come
    if follower.run.contact != IN_CONTACT:
        messages.contact_changed(follower.run)  # lost before we came
    children = _children(follower, console)
    heard = children.feed if children else lambda data: None
    try:
        stream(follower, secrets=secrets, log_to=log_to, raw=raw, heard=heard, observer=messages)
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
    closing(follower.run, follower.history.paths.root.run(follower.run.id))
    if children:
        from ..history.children import children_of_sweep  # noqa: PLC0415 - other runs do without
        from .sweep import show_children  # noqa: PLC0415

        show_children(follower.run, children_of_sweep(follower.history, follower.run.spec))
    return exit_code(follower.run)


def _children(follower: Follower, console: Console) -> SweepChildren | None:
    """The runs of a sweep; None of every other run."""
    spec = follower.run.spec
    return SweepChildren(follower.history, spec, follower.target, console) if spec.sweep else None


def tell_lost(runs: Iterable[Run]) -> None:
    """Which machines could not be asked: what is shown of their runs is as old as the last contact."""
    lost = {(run.spec.compute.name, run.contact) for run in runs if run.contact != IN_CONTACT and not run.status.final}
    for name, words in sorted(lost):
        render.message(f"{name}: {words}; its runs continue and are shown in their last known state")


def closing(run: Run, folder: RunFolder) -> None:
    """The execution summary."""
    lines: list[tuple[str, str]] = [("RunId", run.id), ("Status", summary(run))]
    lines += [*cause_lines(run), *page_line(page_of(run))]
    names = {"gpu": "GPU used", "gpu_cause": "GPU cause", "gpu_remedy": "Remedy"}
    lines += [(names[name], plain(text)) for name, text in gpu_words(run.gpu).items() if name in names]
    lines += page_line(gpu_page(run.gpu))
    if run.spark and run.spark.get("app"):
        lines.append(("Spark", report_spark.summary(run.spark)))
    if run.metrics:
        lines.append(("Metrics", _metrics(run)))
    if run.outputs:
        lines.append(("Outputs", _outputs(run, folder)))
    if run.leftovers:
        pids = ", ".join(str(pid) for pid in run.leftovers)
        count = units.counted(len(run.leftovers), "process", "processes")
        lines.append(("Leftover", f"{count} still running: {pids}"))
    lines += left_out_pairs(run, folder)
    render.message("\nExecution Summary\n=================")
    for name, text in lines:
        render.message(f"{name + ':' if name else '':<10} {text}")


def _metrics(run: Run) -> str:
    names = list(run.metrics)
    words = [f"{plain(name)} {shown(run.metrics[name])}" for name in names[:_SHOWN]]
    return ", ".join(words) + (f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _outputs(run: Run, folder: RunFolder) -> str:
    try:
        found = list(islice((one for one in read_outputs(folder.manifest) if one.is_collected), _SHOWN))
    except (OSError, HistoryError):
        return f"{units.counted(run.outputs or 0, 'file')}; {outputs_place(run, folder)}"
    words = [f"{plain(one.path)} ({units.size(one.size)})" for one in found]
    rest = (run.outputs or 0) - len(found)
    return ", ".join(words) + (f", and {rest} more" if rest > 0 else "") + f"; {outputs_place(run, folder)}"
