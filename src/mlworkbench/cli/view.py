"""A run on the screen: its log as it comes, and the closing lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from ..errors import HistoryError, HostError, LaunchError
from ..follow import Follower
from ..hosts.stranger import Stranger
from ..inferred_state import INTERRUPTED, is_unwritten
from ..model import IN_CONTACT, JsonDict, Run, Status
from ..paths import RunFolder
from ..report import spark as report_spark
from ..report import units
from ..report.output_places import left_out_pairs, outputs_place
from ..report.plain import plain
from ..report.records import cause_lines, exit_code, gpu_words, summary
from ..report.values import shown
from ..runfiles.manifest import read_outputs
from ..runfiles.mask import Mask
from . import render
from .screen import Screen

if TYPE_CHECKING:
    from .sweep import Children

_SHOWN = 8


def stream(
    follower: Follower,
    *,
    secrets: Iterable[str] = (),
    live: bool = True,
    raw: bool = False,
    log_to: TextIO | None = None,
    heard: Callable[[bytes], None] = lambda data: None,
) -> None:
    """Pour the log out: safe on a terminal, byte for byte elsewhere; known secrets are masked."""
    out = log_to or sys.stdout
    stages: list[Mask | Screen] = []
    values = [os.fsencode(value) for value in secrets]
    if values:
        stages.append(Mask(values))
    if render.terminal(out) and not raw:
        stages.append(Screen(encoding=getattr(out, "encoding", None) or "utf-8"))
    for data in follower.chunks(live):
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
    follower.tell_contact = tell_contact
    follower.tell_build = Lines().feed
    follower.tell_state = standing = Standing()
    standing(follower.run)
    if isinstance(follower.target.host, Stranger) and not follower.log_is_home():
        raise follower.target.host.refusal  # nothing would ever come
    if follower.run.contact != IN_CONTACT:
        tell_contact(follower.run)  # lost before we came
    family = _family(follower)
    try:
        stream(follower, secrets=secrets, log_to=log_to, raw=raw, heard=family.heard if family else lambda data: None)
        fetch_outputs(follower)
        if family:
            family.bring_all()
    except KeyboardInterrupt:
        detached(follower.run)
        raise
    except render.OutputClosed:
        detached(follower.run)
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
    if family:
        from ..history.children import children_of_sweep  # noqa: PLC0415 - other runs do without
        from .sweep import show_children  # noqa: PLC0415

        show_children(follower.run, children_of_sweep(follower.history, follower.run.spec))
    return exit_code(follower.run)


def _family(follower: Follower) -> Children | None:
    """The runs of a sweep; None of every other run."""
    if not follower.run.spec.sweep:
        return None
    from .sweep import Children  # noqa: PLC0415 - other runs do without

    return Children(follower.history, follower.run.spec, follower.target)


class Lines:
    """What the preparation of a run says, line by line, beside the script's own output."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").partition(" (from ")[0]  # uv names where each package came from
            render.message(plain(text.rstrip(), limit=200))
        self._rest = self._rest[-4096:]  # a line without an end is none of ours


class Standing:
    """What is worth saying while a run is followed, each once: what it waits for, its GPUs, its Spark application."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, run: Run) -> None:
        if run.status is Status.QUEUED and run.detail:
            self._say(f"queued: {plain(run.detail)}")
        if is_unwritten(run):
            self._say(plain(run.detail or ""))
        if run.gpu:
            self._tell_gpus(run.gpu, warn=not run.status.final)
        if run.spark:
            self._tell_spark(run, run.spark)

    def _tell_spark(self, run: Run, spark: JsonDict) -> None:
        if spark.get("app"):
            kind = report_spark.kind(spark)
            self._say(f"Spark: application {plain(str(spark['app']), 200)}" + (f" ({kind})" if kind else ""))
        page, tunnel = report_spark.link(spark, "ui"), report_spark.tunnel(run)
        if page and not run.status.final:
            self._say(f"Spark UI: {page}" + (f" on the target; open a tunnel with: {tunnel}" if tunnel else ""))
        for one in spark.get("troubles") or []:
            if isinstance(one, dict) and one.get("what") in ("executor", "task", "stage"):
                self._say(f"Spark: {report_spark.trouble(one)}", str(one.get("number")))

    def _tell_gpus(self, told: JsonDict, warn: bool) -> None:
        from ..remote.gpus.verdict import start_line  # noqa: PLC0415 - runs without a GPU need not wait for it

        got = told.get("got") or {}
        for gpu in got.get("gpus") or []:
            if isinstance(gpu, dict):
                self._say(plain(start_line(gpu)))
        replaced = got.get("replaced")
        if replaced:
            by = " by the GPUs allocated to the run" if got.get("held") else ": the run requested no GPU"
            self._say("note: " + plain(f'CUDA_VISIBLE_DEVICES="{replaced}" is replaced{by}'))
        idle = told.get("idle") or {}
        if warn and idle.get("warning"):
            found = idle.get("diagnosis") or {}
            more = "".join(f"; {found[name]}" for name in ("cause", "remedy") if found.get(name))
            self._say(f"warning: {plain(idle['warning'] + more)}")

    def _say(self, text: str, mark: str = "") -> None:
        if mark + text not in self._said:
            self._said.add(mark + text)
            render.message(text)


def tell_contact(run: Run) -> None:
    """Lost contact is no failure of the run: said once, and once more when it is back."""
    if run.contact == IN_CONTACT:
        render.message("reconnected")
    else:
        render.message(f"{run.contact}; the run continues, reconnecting … (Ctrl-C detaches)")


def tell_lost(runs: Iterable[Run]) -> None:
    """Which machines could not be asked: what is shown of their runs is as old as the last contact."""
    lost = {(run.spec.compute.name, run.contact) for run in runs if run.contact != IN_CONTACT and not run.status.final}
    for name, words in sorted(lost):
        render.message(f"{name}: {words}; its runs continue and are shown in their last known state")


def fetch_outputs(follower: Follower) -> None:
    """Of a run elsewhere that has ended: what its run configuration wants at home."""
    run, host = follower.run, follower.target.host
    if not host.distant or not run.status.final:
        return
    from ..fetch import bring_outputs  # noqa: PLC0415 - runs on this machine have nothing to fetch

    try:
        with render.Progress("outputs") as progress:
            brought = bring_outputs(run, host, follower.history.paths.root.run(run.id), progress.report)
    except HostError as error:
        render.warn(f"outputs not downloaded: {error.message}")
        render.message(f"hint: download them with 'mlw history download -r {run.id}'")
        return
    if brought is None:
        return
    for path, why in brought.outcome.failed[:_SHOWN]:
        render.warn(f"output {plain(path)}: {why}")
    if brought.left:
        render.message(
            f"{brought.left} outputs ({units.size(brought.left_bytes)}) remain on {run.spec.compute.name};"
            f" download them with 'mlw history download -r {run.id}'"
        )


def detached(run: Run) -> None:
    if run.status.final:
        return
    if run.detail == INTERRUPTED or run.accepted is None:
        render.message(f"\nrun {run.id} was not started; start it with 'mlw experiment resume {run.id}'")
        return
    render.message(f"\ndetached; run {run.id} continues")
    hint_back(run)


def hint_back(run: Run) -> None:
    render.message(f"  follow: mlw logs -f {run.id}")
    render.message(f"  cancel: mlw cancel {run.id}")


def closing(run: Run, folder: RunFolder) -> None:
    """The execution summary."""
    from ..report import symptoms  # noqa: PLC0415 - most commands end no run

    lines: list[tuple[str, str]] = [("RunId", run.id), ("Status", summary(run))]
    if run.cause:
        lines += cause_lines(run.cause)
    lines += symptoms.line(symptoms.of_run(run))
    names = {"gpu": "GPU used", "gpu_cause": "GPU cause", "gpu_remedy": "Remedy"}
    lines += [(names[name], plain(text)) for name, text in gpu_words(run.gpu).items() if name in names]
    lines += symptoms.line(symptoms.of_gpu(run.gpu))
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
