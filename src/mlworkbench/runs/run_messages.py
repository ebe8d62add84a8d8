"""Messages about a followed run: build output, queue, GPUs, Spark, and contact with its target."""

from __future__ import annotations

from collections.abc import Callable

from ..inferred_state import is_unwritten
from ..model import IN_CONTACT, JsonDict, Run, Status
from ..report import spark_report as report_spark
from ..report.attempt_history import describe_attempt
from ..run_observer import Observer
from ..sanitize import plain
from ..scheduler_state import is_queued_by_scheduler

Write = Callable[[str], None]


class BuildOutput:
    """Writer for the output of a run's preparation, line by line."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").partition(" (from ")[0]  # uv appends the source of each package
            self._write(plain(text.rstrip(), limit=200))
        self._rest = self._rest[-4096:]  # limit the memory for a line that does not end


class RunMessages(Observer):
    """Observer that writes each message once."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._written: set[str] = set()
        self._build = BuildOutput(write)

    def build_output(self, data: bytes) -> None:
        self._build.feed(data)

    def contact_changed(self, run: Run) -> None:
        """Report lost and restored contact once each. Losing contact is not a failure of the run."""
        if run.contact == IN_CONTACT:
            self._write("reconnected")
        else:
            self._write(f"{run.contact}; the run continues, reconnecting … (Ctrl-C detaches)")

    def state_changed(self, run: Run) -> None:
        for attempt in run.attempts:
            self._once(describe_attempt(attempt))
        if run.status is Status.QUEUED and run.detail:
            if is_queued_by_scheduler(run):
                self._report_job(run.detail, run.job or {})
            else:
                self._once(f"queued: {plain(run.detail)}")
        if is_unwritten(run):
            self._once(plain(run.detail or ""))
        if run.gpu:
            self._report_gpus(run.gpu, warn=not run.status.final)
        if run.spark:
            self._report_spark(run, run.spark)

    def _report_spark(self, run: Run, spark: JsonDict) -> None:
        if spark.get("app"):
            kind = report_spark.kind(spark)
            self._once(f"Spark: application {plain(str(spark['app']), 200)}" + (f" ({kind})" if kind else ""))
        page, tunnel = report_spark.link(spark, "ui"), report_spark.tunnel(run)
        if page and not run.status.final:
            self._once(f"Spark UI: {page}" + (f" on the target; open a tunnel with: {tunnel}" if tunnel else ""))
        for trouble in spark.get("troubles") or []:
            if isinstance(trouble, dict) and trouble.get("what") in ("executor", "task", "stage"):
                self._once(f"Spark: {report_spark.describe_problem(trouble)}", str(trouble.get("number")))

    def _report_gpus(self, gpu: JsonDict, warn: bool) -> None:
        from ..remote.gpus.verdict import start_line  # noqa: PLC0415 - runs without a GPU need not wait for it

        got = gpu.get("got") or {}
        for device in got.get("gpus") or []:
            if isinstance(device, dict):
                self._once(plain(start_line(device)))
        replaced = got.get("replaced")
        if replaced:
            by = " by the GPUs allocated to the run" if got.get("held") else ": the run requested no GPU"
            self._once("note: " + plain(f'CUDA_VISIBLE_DEVICES="{replaced}" is replaced{by}'))
        idle = gpu.get("idle") or {}
        if warn and idle.get("warning"):
            diagnosis = idle.get("diagnosis") or {}
            more = "".join(f"; {diagnosis[name]}" for name in ("cause", "remedy") if diagnosis.get(name))
            self._once(f"warning: {plain(idle['warning'] + more)}")

    def _report_job(self, detail: str, job: JsonDict) -> None:
        """Report each reason why a job waits once, because the expected start changes often."""
        mark = f"queued {job.get('reason')} {job.get('problem')}"
        if mark not in self._written:
            self._written.add(mark)
            self._write(f"queued {plain(detail)}")
            if job.get("hint"):
                self._write(f"hint: {plain(str(job['hint']))}")

    def _once(self, text: str, mark: str = "") -> None:
        if mark + text not in self._written:
            self._written.add(mark + text)
            self._write(text)
