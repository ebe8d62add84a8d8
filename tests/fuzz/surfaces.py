"""All code that reads external input: for each kind of input, a function that reads one case as the product does."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from struct import pack
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import apsw

from mlworkbench.attach.purge_plan import Options, make_plan
from mlworkbench.attachments import Attachment, Attachments
from mlworkbench.cli import recorded_sections, run_page
from mlworkbench.cli.follow_view import _format_metrics as _metrics_line
from mlworkbench.client_identity import Client
from mlworkbench.config.config_files import (
    check_file,
    read_compute,
    read_runconfig,
    read_spark_dependencies,
)
from mlworkbench.config.project_folder import find_project
from mlworkbench.environment_builds import build_in_advance
from mlworkbench.environments.dependencies import Line
from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.environment_list import Inventory
from mlworkbench.environments.lock_check import validate_lock
from mlworkbench.environments.package_sources import channels_of, indexes_of
from mlworkbench.environments.package_supply import collect_packages
from mlworkbench.errors import MlwError
from mlworkbench.export.mlflow import model_upload, registry_upload, trace_upload
from mlworkbench.history import index_schema, rows
from mlworkbench.history.annotations import annotations_of, read_annotations
from mlworkbench.history.ingest import ingest_bytes
from mlworkbench.history.parallel_read import read_batch
from mlworkbench.history.rows import ReadPosition
from mlworkbench.history.run_folders import read_run_folder
from mlworkbench.history.run_state import format_ending
from mlworkbench.history.series.series_store import Series
from mlworkbench.history.store import History
from mlworkbench.history.value_index import ValueWriter
from mlworkbench.hosts.agent_start_failures import explain_start_failure
from mlworkbench.hosts.channel import AgentNotStarted, Channel
from mlworkbench.hosts.gpu_values import fetch_gpus
from mlworkbench.hosts.host_facts import Facts
from mlworkbench.hosts.root_contents import fetch_survey
from mlworkbench.hosts.snapshot_upload import _check_plan
from mlworkbench.hosts.ssh_host import SshHost
from mlworkbench.import_runs import Destination, read_spec
from mlworkbench.model import Compute, Run
from mlworkbench.paths import UserPaths
from mlworkbench.preflight.checker import examine
from mlworkbench.preflight.finding import CheckContext, Script
from mlworkbench.preflight.slurm_rules import scheduler_findings
from mlworkbench.remote import sweep_log
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.ranks import explain_rank, first_failure, parse_rank
from mlworkbench.remote.script_files import ScriptFiles
from mlworkbench.remote.shared.failure import text_of
from mlworkbench.remote.shared.layout import MLFLOW_DATABASE, Root, RunFolder
from mlworkbench.remote.shared.message_frames import FrameError, Pipe
from mlworkbench.remote.slurm import facts as slurm_facts
from mlworkbench.remote.slurm import job_queue, job_status
from mlworkbench.remote.slurm.accounting import parse_accounting
from mlworkbench.remote.slurm.job_queue import parse_queue, read_cache
from mlworkbench.remote.slurm.job_record import last_line, read_notice, read_record
from mlworkbench.remote.tracking.event_file import _crc32c, _mask_crc
from mlworkbench.remote.tracking.file_search import TrackingFiles
from mlworkbench.remote.tracking.mlflow_import import MlflowImport
from mlworkbench.remote.tracking.printed_metrics import PrintedMetricsReader
from mlworkbench.remote.tracking.tensorboard import TensorBoardReader
from mlworkbench.remote.tracking.wandb_file import HEADER
from mlworkbench.remote.tracking.wandb_reader import WandbReader
from mlworkbench.report import gpu_report as gpu_report
from mlworkbench.report import mlflow_report, slurm_report
from mlworkbench.report import spark_report as report_spark
from mlworkbench.report.distribution_plot import plot_of
from mlworkbench.report.mlflow_report import MlflowData
from mlworkbench.report.run_records import record, summary, to_display
from mlworkbench.report.table_report import load_parts
from mlworkbench.report.value_format import format_value
from mlworkbench.runfiles.clean_remote import RemoteCleaner
from mlworkbench.runfiles.mlflow_models import read_datasets, read_models, read_versions
from mlworkbench.runfiles.mlflow_traces import Trace, read_spans, read_traces
from mlworkbench.runfiles.output_fetch import OutputFetcher
from mlworkbench.runfiles.output_manifest import read_outputs
from mlworkbench.runfiles.script_records import read_packages
from mlworkbench.scheduler_state import parse_report, with_report
from mlworkbench.snapshot.ignore_rules import Rules, exclusion_reason
from mlworkbench.targets.container_plan import Engine
from mlworkbench.targets.gpu_check import gpu_findings
from mlworkbench.targets.image_libc import image_libc
from mlworkbench.targets.machine_check import machine_findings as judge_machine
from mlworkbench.targets.machine_probe import probe_machine
from mlworkbench.targets.slurm_check import describe_partition
from mlworkbench.targets.slurm_facts import SlurmFacts
from mlworkbench.targets.spark_check import spark_findings
from mlworkbench.targets.target import Target, UploadSource
from mlworkbench.targets.target_facts import TargetFacts, _remote_facts
from mlworkbench.targets.types import REMOTEDOCKER
from mlworkbench.ui.queries import run as answers_run
from mlworkbench.ui.queries.gpu_verdict import verdict
from mlworkbench.ui.queries.system_metrics import Telemetry, _gpu_names
from tests.fuzz import samples
from tests.fuzz.campaign import Surface
from tests.unit.history.test_run_state import SPEC

MOST = 60_000  # maximum number of bytes that a pipe buffers without a reader
FAR = Compute("far", "remotedocker", "far", "ada", spark_master="spark://m:7077", nvidia_docker=True)

FACTS = Facts.from_json(samples.FACTS)
_NO_HISTORY: Any = SimpleNamespace(paths=UserPaths(Path("/no/such/store")))  # for pages that only look up its folder


class _Refused(Exception):
    """Raised for input that is not a message."""


def _message(case: bytes) -> dict[str, Any]:
    """Parse a message as ``Pipe.receive`` does."""
    try:
        message = json.loads(case)
    except (ValueError, RecursionError):
        raise _Refused from None
    if not isinstance(message, dict):
        raise _Refused
    return message


# -- messages ------------------------------------------------------------------------------------------


def _piped(data: bytes, use: Callable[[Pipe], Any]) -> Any:
    source, sink = os.pipe()
    try:
        os.write(sink, data[:MOST])
        os.close(sink)
        return use(Pipe(source, os.open(os.devnull, os.O_WRONLY)))
    finally:
        os.close(source)


def _frame(message: Any, body: bytes = b"") -> bytes:
    text = json.dumps(message).encode()
    return len(text).to_bytes(4, "big") + len(body).to_bytes(4, "big") + text + body


def _frames(case: bytes, folder: Path) -> None:
    def read(pipe: Pipe) -> None:
        os.close(pipe._sink)
        pipe.skip_to(b"\nMLW-AGENT 77\n", 1000, 5.0)
        while True:
            pipe.receive(5.0)

    _piped(case, read)


class _Process:
    """An ssh process that has ended."""

    stdin = stdout = None

    def wait(self, seconds: float | None = None) -> int:
        return 0

    def poll(self) -> int:
        return 0


class _Tail:
    def text(self) -> str:
        return "words\n"


class _Host(SshHost):
    """An SSH host with prepared frames from its agent."""

    def __init__(self, folder: Path, frames: bytes) -> None:
        super().__init__(Attachment(folder, "eve@far:22", address="far", username="eve", port=22), UserPaths(folder))
        self._source, sink = os.pipe()
        os.write(sink, frames[:MOST])
        os.close(sink)
        self._sink = os.open(os.devnull, os.O_WRONLY)
        self._made: Any = Channel.__new__(Channel)
        self._made.pipe = Pipe(self._source, self._sink)
        self._made._process, self._made._stderr = _Process(), _Tail()
        self._made._nonce, self._made._client, self._made._hello_sent, self._made.hello = "77", None, False, {}

    def _open_channel(self, accepts_pipelined: bool = False) -> Channel:
        return self._made  # type: ignore[no-any-return]

    def _drop_channel(self) -> None:
        self._pipelined = None

    def end(self) -> None:
        os.close(self._source)
        os.close(self._sink)


def _stream(case: bytes, folder: Path) -> None:
    frames = b""
    for item in _listed(case):
        message, body = (item[0], item[1]) if isinstance(item, list) and len(item) == 2 else (item, "")
        text = body.encode("utf-8", "replace") if isinstance(body, str) else b"x"
        frames += _frame(message, text[:1000])
    uses: list[Callable[[Any], Any]] = [
        lambda host: host.news("r", {"log": 0, "events.jsonl": 0}, 1000),
        lambda host: host.news("r", {"log": 0}, 4),
        lambda host: list(host.outputs("r", [("a", 0, 3), ("b", 0, 2)])),
        lambda host: host.read_file("r", "outputs.json", 0, 100),
        lambda host: host._made.handshake(1.0),
    ]
    host = _Host(folder, frames)
    try:
        uses[crc32(case) % len(uses)](host)
    except AgentNotStarted as error:
        raise explain_start_failure(host.attachment, error) from None
    finally:
        host.end()


def _listed(case: bytes) -> list[Any]:
    try:
        messages = json.loads(case)
    except (ValueError, RecursionError):
        raise _Refused from None
    return messages if isinstance(messages, list) else [messages]


class _Saying:
    """A host that answers every request with the same message."""

    is_remote = True
    identity = "eve@far:22"
    attachment = None

    def __init__(self, message: dict[str, Any], root: Path) -> None:
        self._message = message
        self.root = Root(str(root))

    def connect(self) -> None:
        pass

    def ask(self, request: Any, body: bytes = b"", timeout: float = 0.0) -> dict[str, Any]:
        if request.get("do") == "built":
            self._message = {**self._message, "state": "ready"}  # otherwise the client repeats the request forever
        return self._message

    def call(self, verb: str, run_id: str, arguments: Any, message: Any) -> dict[str, Any]:
        return self._message

    def send_packages(self, packages: Any, progress: Any = None) -> None:
        pass

    def send_code(self, digest: str, store: Any, progress: Any = None) -> None:
        pass


def _size(count: float) -> str:
    return f"{count:.1f} B"


def _each(*uses: Callable[[], Any]) -> None:
    """Call every function, even if some raise MlwError; then raise the last of these errors."""
    last: MlwError | None = None
    for use in uses:
        try:
            use()
        except MlwError as error:
            last = error
    if last is not None:
        raise last


def _hello(case: bytes, folder: Path) -> None:
    host = _Host(folder, b"\nMLW-AGENT 77\n" + _frame(_message(case)))
    try:
        host._made.handshake(1.0)
        host._update_attachment(host._made.hello)
        host._warm_command()
        host.inrun()
    finally:
        host.end()


def _facts(case: bytes, folder: Path) -> None:
    host: Any = _Saying(_message(case), folder)
    facts, link = probe_machine(host, None)
    judge_machine(facts, FAR, None, _size, link)
    _remote_facts_from(facts, folder)


def _remote_facts_from(facts: Facts, folder: Path) -> None:
    from dataclasses import asdict

    attachment = Attachment(folder, "eve@far:22", "far", "eve", 22, root="/r", facts=asdict(facts))
    _remote_facts(attachment, FAR, "/r", Target(_Saying({}, folder), REMOTEDOCKER))  # type: ignore[arg-type]


def _gpus(case: bytes, folder: Path) -> None:
    report = fetch_gpus(_Saying(_message(case), folder))  # type: ignore[arg-type]
    gpu_report.summary(report)
    for gpu in report.gpus:
        gpu_report.row(gpu)
        gpu_report.line(gpu)


def _slurm(case: bytes, folder: Path) -> None:
    answer = _message(case)
    if isinstance(answer.get("facts"), dict):
        facts = SlurmFacts.from_json(answer["facts"])
        slurm_report.describe_gpus(facts)
        _ = [describe_partition(partition) for partition in facts.partitions]
        scheduler_findings({"partition": "gpu", "time": 60, "gpus": 1, "gpu_model": None}, FAR, facts)
    runs = answer.get("runs")
    for status in runs.values() if isinstance(runs, dict) else ():
        run = with_report(Run(SPEC), parse_report(status))
        summary(run)
        record(run)


def _scontrol(case: bytes, folder: Path) -> None:
    text = case.decode(errors="replace")
    lines = slurm_facts.parse_lines(text)
    slurm_facts.summarize(lines, lines)
    slurm_facts.parse_accounts(text)


def _doctor(case: bytes, folder: Path) -> None:
    findings = _message(case).get("found")
    if isinstance(findings, dict):
        gpu_findings(findings, FACTS, FAR)
        gpu_findings(findings, FACTS, Compute("local", "local"))


def _space(case: bytes, folder: Path) -> None:
    cleaner = RemoteCleaner.__new__(RemoteCleaner)
    cleaner._host, cleaner._removable, cleaner._kept = _Saying(_message(case), folder), [], {}  # type: ignore[assignment]
    cleaner._recent_seconds = 0.0
    _each(cleaner.find, cleaner.remove)


def _survey(case: bytes, folder: Path) -> None:
    survey = fetch_survey(_Saying(_message(case), folder), sizes=True)  # type: ignore[arg-type]
    (folder / "runs").mkdir(exist_ok=True)
    history = History(UserPaths(folder))
    try:
        plan = make_plan(survey, history, Client("1" * 32, "ada@here"), Options(others=60.0, shared=True))
        plan.rows()
        plan.request()
    finally:
        history.close()


def _environments(case: bytes, folder: Path) -> None:
    inventory = Inventory(_Saying(_message(case), folder))  # type: ignore[arg-type]
    _each(
        inventory.all,
        lambda: inventory.show(samples.SHA[:12]).sources("pip"),
        lambda: inventory.remove([], unused=True, idle=0.0, caches=True, dry_run=True).size,
    )


def _verbs(case: bytes, folder: Path) -> None:
    message = _message(case)
    host: Any = _Saying(message, folder)
    lock = {"kind": "managed", "digest": samples.SHA, "conda": [], "pip": [], "python": {"source": "host"}}
    uploads = UploadSource(host.root, lambda lock, answer: collect_packages(lock, answer, host.root))
    uses: list[Callable[[], Any]] = [
        lambda: Target(host).adopt("r", None),
        lambda: Target(host).cancel("r", "me", None),
        lambda: build_in_advance(host, lock, None, uploads, lambda data: None),
    ]
    if message.get("claimed") or message.get("owner") or not message.get("ok"):  # otherwise launch waits for a claim
        uses.append(lambda: Target(host).launch(SPEC, {}, UploadSource(host.root, lambda lock, answer: {})))
    _each(*uses)


def _spark_answer(case: bytes, folder: Path) -> None:
    spark_findings(FAR, lambda request: _message(case))


def _image(case: bytes, folder: Path) -> None:
    host: Any = _Saying(_message(case), folder)
    ground = TargetFacts("/home/ada", "/home/ada/share", engine=Engine("/usr/bin/docker"))
    (folder / "cache").mkdir(exist_ok=True)
    (folder / "cache" / "images.json").unlink(missing_ok=True)
    image_libc(Target(host), FAR, ground, UserPaths(folder))()


def _upload(case: bytes, folder: Path) -> None:
    _check_plan(_message(case), [(samples.SHA, 5), ("f" * 64, 7)])


# -- runs ----------------------------------------------------------------------------------------------

_index: list[apsw.Connection] = []


def _shown(run: Run, reading: ReadPosition) -> None:
    """Write a run to the index, read it back, and render it for people and programs."""
    if not _index:
        _index.append(apsw.Connection(":memory:"))
        index_schema.create(_index[0])
    encoded = rows.encode(run, reading, {})
    rows.decode(encoded.body[0], encoded.body[1])
    connection = _index[0]
    connection.execute("BEGIN")
    try:
        rows.bulk_insert(connection, encoded, ValueWriter(connection))
        list(connection.execute("SELECT json_extract(facts, '$.duration') FROM runs"))
        for stored in rows.select(connection, "1", ()):
            shown = record(stored.run)
            to_display(shown)
            json.dumps(shown)
            _seen(stored.run)
    finally:
        connection.execute("ROLLBACK")


def _seen(run: Run) -> None:
    """Render a run for the browser UI and the command line."""
    summary(run)
    assert len(format_ending(run) or "") < 100
    for show in (
        run_page._header,
        run_page._spark,
        run_page._parameters,
        recorded_sections.annotation_lines,
        run_page._provenance,
        run_page._hints,
    ):
        list(show(run))
    if run.cause and crc32(run.cause.encode(errors="replace")) % 16 == 0:
        # Only for some causes, because it searches all texts of `mlw explain`.
        run_page._problems(_NO_HISTORY, run)
    for tell in (verdict, answers_run.ending, answers_run.cause, answers_run.parameters, answers_run.last_values):
        tell(run)
    _gpu_names(run)
    _metrics_line(run)
    if run.spark:
        report_spark.spark_fields(run.spark, run.status.final)
        report_spark.members(run.spark)
        report_spark.describe_problems(run.spark)
        report_spark.tunnel(run)


def _journal(case: bytes, folder: Path) -> None:
    run, reading = ingest_bytes(Run(SPEC), ReadPosition(), {"events.jsonl": case})
    if crc32(case) % 4:
        rows.encode(run, reading, {})
    else:
        _shown(run, reading)


def _metrics(case: bytes, folder: Path) -> None:
    from mlworkbench.history.nested_runs import children_of

    run, reading = ingest_bytes(Run(SPEC), ReadPosition(), {"metrics/1-0": case})
    if crc32(case) % 4:
        rows.encode(run, reading, {})
        return
    _shown(run, reading)
    for child in children_of(run):
        _shown(child, ReadPosition())


def _run_folder(folder: Path) -> RunFolder:
    run = Root(str(folder)).run(SPEC.id)
    if not os.path.isdir(run.metrics):
        os.makedirs(run.metrics)
    return run


def _child(case: bytes, folder: Path) -> None:
    """Read a run as the conductor of its sweep does, and as a supervisor that takes over the run does."""
    run = _run_folder(folder)
    Path(run.events).write_bytes(case)
    Path(run.metrics, "1-0").write_bytes(case)
    finished = sweep_log.read_finished(run)
    if finished is not None:
        assert len(sweep_log.outcome_text(finished)) < 100
        assert len(text_of(sweep_log.summarize_failures([(SPEC.id, finished)]))) < 10_000
    sweep_log.read_start_time(run)
    sweep_log.read_last_value(run, "loss")
    journal = Journal(run)
    journal.add("step", {})
    journal.close()


def _series(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    Path(run.path, "series.db").unlink(missing_ok=True)
    Path(run.metrics, "1-0").write_bytes(case)
    with Series(run) as series:
        for name in series.names()[:8]:
            series.points(name.name)
            series.downsample(name.name, 10)
            series.value_range(name.name)
            series.values(name.name, newest=3)
            series.rows(name.name)


def _event_file(case: bytes, folder: Path) -> None:
    """Read a valid record with this content, and a file that consists of it."""
    work, target = folder / "work", folder / "metrics" / "tensorboard"
    head = pack("<Q", len(case))
    record = head + pack("<I", _mask_crc(_crc32c(head))) + case + bytes(4)
    _read_event_file(work, target, record)
    _read_event_file(work, target, case)


def _tracked(case: bytes, folder: Path) -> None:
    """Continue a metrics file that the script has changed."""
    work, target = folder / "work", folder / "metrics" / "tensorboard"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(case)
    content = (Path(__file__).parents[1] / "unit/recorded/tensorboardX-summaries.tfevents.1").read_bytes()
    _read_event_file(work, target, content)


def _read_event_file(work: Path, target: Path, content: bytes) -> None:
    path = work / "runs/a/x.tfevents.1"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    files = TrackingFiles(str(work))
    files.search(now=True)
    try:
        TensorBoardReader(files, str(target), 0.0).finish()
        ingest_bytes(Run(SPEC), ReadPosition(), {"metrics/tensorboard": target.read_bytes()})
    finally:
        target.unlink(missing_ok=True)
        shutil.rmtree(work)


def _wandb_file(case: bytes, folder: Path) -> None:
    """Read a case as a file, and as the second record of a valid file."""
    run = samples.WANDB_RECORDS[1]
    records = b"".join(
        pack("<IHB", crc32(b"\1" + data), len(data), 1) + data for data in (run, case) if len(data) < 30_000
    )
    path, target = folder / "work/wandb/offline-run-1/run-1.wandb", folder / "metrics" / "wandb"
    path.parent.mkdir(parents=True)
    for content in (case, HEADER + records):
        path.write_bytes(content)
        files = TrackingFiles(str(folder / "work"))
        files.search(now=True)
        reader = WandbReader(files, str(target), 0.0)
        reader.finish()
        reader.describe_files(ScriptFiles())
        ingest_bytes(Run(SPEC), ReadPosition(), {"metrics/wandb": target.read_bytes()})
        target.unlink()
    shutil.rmtree(folder / "work")


def _mlflow_store(case: bytes, folder: Path) -> None:
    _import_mlflow({"mlflow.db": case}, folder)


def _mlflow_folder(case: bytes, folder: Path) -> None:
    """Read a case as each of the files of a run."""
    names = ("metrics/loss", "params/lr", "tags/mlflow.runName", "tags/mlflow.parentRunId")
    run = dict.fromkeys((f"mlruns/0/a/{name}" for name in names), case)
    metadata = b"run_id: a\nlifecycle_stage: active\nstart_time: 9\nstatus: 3\n"
    _import_mlflow({**run, "mlruns/0/a/meta.yaml": metadata, "mlruns/0/b/meta.yaml": case}, folder)


def _import_mlflow(content: dict[str, bytes], folder: Path) -> None:
    run = RunFolder(str(folder / "run"))
    for name, data in content.items():
        path = Path(run.work, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    os.mkdir(run.metrics)
    target = Path(run.metrics, "mlflow")
    try:
        MlflowImport(run, 2.0, (), ScriptFiles()).record(list(content), time.monotonic() + 5)
        if target.exists():
            ingest_bytes(Run(SPEC), ReadPosition(), {"metrics/mlflow": target.read_bytes()})
    finally:
        shutil.rmtree(run.path)


def _printed(case: bytes, folder: Path) -> None:
    log, target = folder / "log", folder / "metrics" / "spoken"
    log.write_bytes(case)
    try:
        assert PrintedMetricsReader(str(log), str(target)).finish()
    finally:
        target.unlink(missing_ok=True)


def _manifest(case: bytes, folder: Path) -> None:
    path = folder / "outputs.json"
    path.write_bytes(case)
    place = folder / "outputs"
    outputs = [output for output in read_outputs(str(path)) if output.size < 10_000]
    try:
        OutputFetcher(str(place), lambda files: iter(()), lambda done: None).fetch(outputs)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _notes(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    Path(run.annotations).write_bytes(case)
    noted = annotations_of(read_annotations(Root(str(folder)), SPEC.folder), SPEC.id)
    rows.encode(Run(SPEC, noted=noted), ReadPosition(), {})


def _spec(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    Path(run.spec).write_bytes(case)
    Path(run.annotations).unlink(missing_ok=True)
    for name in os.listdir(run.metrics):
        Path(run.metrics, name).unlink()
    if read_batch(Root(str(folder)), [SPEC.id]):  # an empty result means that the run is skipped
        for one, reading in read_run_folder(Root(str(folder)), SPEC.id):
            _shown(one, reading)


def _lock(case: bytes, folder: Path) -> None:
    """Read the lock file that ``--locked`` reuses."""
    try:
        lock = json.loads(case)
    except (ValueError, RecursionError):
        return  # the history does not accept such a lock file
    if isinstance(lock, dict):
        _each(*(lambda contained=contained: validate_lock(lock, contained=contained) for contained in (True, False)))


class _Spoken:
    """A host on which all files have the same content."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        return self._data[offset : offset + limit]


def _foreign_spec(case: bytes, folder: Path) -> None:
    destination = Destination(FAR, "p", str(folder))
    spec = read_spec(_Spoken(case), destination, SPEC.id, "ada@old")  # type: ignore[arg-type]
    assert spec.compute == FAR and not spec.secrets and not spec.environment and spec.origin
    _shown(Run(spec), ReadPosition())


def _telemetry(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    for path in (run.gpu, run.usage_samples):
        Path(path).write_bytes(case)
        Telemetry()._read(path)


# -- MLflow --------------------------------------------------------------------------------------------


def _mlflow_database(case: bytes, folder: Path) -> None:
    """Read a database from a target, and a file with the spans of its trace."""
    run = _run_folder(folder)
    path = Path(run.outputs, MLFLOW_DATABASE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case)
    uses = [lambda: read_versions(run, []), lambda: [read_spans(run, trace) for trace in read_traces(run)[:2]]]
    traces = trace_upload.read_traces
    uses += [
        lambda: registry_upload.read_versions(run),
        lambda: [trace_upload.read_spans(run, trace) for trace in traces(run)[:2]],
    ]
    _each(*uses)


def _trace_file(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    path = Path(run.outputs, "mlflow/0/traces/1f/artifacts/traces.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case)
    trace = Trace("1f", "", "", None, None, None, "", "", None, "0")
    for span in read_spans(run, trace):
        json.dumps(mlflow_report.span_record(span))
        mlflow_report.span_duration(span.duration)


def _mlflow_records(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    for name in (os.path.join(run.metrics, "1-0"), run.packages):
        Path(name).write_bytes(case)
    files = {"net": {"as": "model"}}
    data = MlflowData(read_datasets(run), read_models(run, files), [], [])
    json.dumps(mlflow_report.to_json(data))
    json.dumps([model.points for model in model_upload.read_models(run, None)])
    for dataset in data.datasets:
        mlflow_report.source_text(dataset)
        mlflow_report.content_text(dataset)
    for model in data.models:
        mlflow_report.metrics_text(model)
    read_packages(run)


def _table(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    os.makedirs(run.outputs, exist_ok=True)
    Path(run.outputs, "t.json").write_bytes(case)
    table = load_parts(run, "t", ["t.json", "t.json"])
    json.dumps([list(map(format_value, row)) for row in table.rows])
    json.dumps(list(table.records()))
    json.dumps(repr(plot_of(load_parts(run, "t", ["t.json"]))))


# -- projects ------------------------------------------------------------------------------------------


def _file(name: str, *readers: Callable[[Path], Any]) -> Callable[[bytes, Path], None]:
    def consume(case: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(case)
        _each(*(lambda read=read: read(path) for read in readers))

    return consume


def _needs(name: str, **beside: bytes) -> Callable[[bytes, Path], None]:
    """Return a function that reads a dependency file in a separate project."""

    def consume(case: bytes, folder: Path) -> None:
        project = folder / name.replace(".", "-")
        if not project.is_dir():
            project.mkdir()
            (project / "wheels").mkdir()
            (project / "other.txt").write_bytes(b"scipy\n")
            for other, data in beside.items():
                (project / other.replace("_", ".")).write_bytes(data)
        (project / name).write_bytes(case)
        dependencies = read_dependencies(project / name, project)
        examine(CheckContext(FAR, dependencies, FACTS, None, None))
        indexes = indexes_of(dependencies, {"P": "x", "PIP_CONFIG_FILE": os.devnull}, Path())
        indexes.fingerprint(Path())
        indexes.hosts_with_password()
        channels_of(dependencies)
        [requirement.wheel for requirement in dependencies.pip]

    return consume


def _script(case: bytes, folder: Path) -> None:
    try:
        text = case.decode("utf-8-sig")
    except UnicodeDecodeError:
        return
    examine(CheckContext(FAR, None, FACTS, Script("train.py", text), Line("nvidia/cuda:12.9", "x", 1)))


def _ignore(case: bytes, folder: Path) -> None:
    chain = (Rules("", ".mlwignore", case[:3000]),)
    for place, name, is_folder in (("", "a", True), ("data", "keep.csv", False), ("a/b/c/d", "x" * 60, False)):
        exclusion_reason(chain, place, name, is_folder)


def _project(case: bytes, folder: Path) -> None:
    project = folder / "project"
    (project / "aml_config").mkdir(parents=True, exist_ok=True)
    (project / "aml_config" / "project.json").write_bytes(case)
    project_ = find_project(project)
    project_.computes()


def _rank(case: bytes, folder: Path) -> None:
    record = parse_rank(case)
    records = [record] if record else []
    failed = first_failure([*records, {**records[0], "rank": 7}] if records else [])
    if failed:
        spec: Any = {"processes": {"python": "/py"}}
        assert len(text_of(explain_rank(failed, spec, "/w", str))) < 10_000


def _slurm_output(case: bytes, folder: Path) -> None:
    """Read output of squeue and sacct, and of slurmstepd in the job's own file."""
    text = case.decode("utf-8", "replace")
    run = RunFolder(str(folder / "runs" / "r"))
    os.makedirs(run.path, exist_ok=True)
    Path(run.path, "slurm.out").write_bytes(case)
    read_notice(run, "3")
    assert len(last_line(run)) <= 400
    rows = [*parse_queue(text).values(), *parse_accounting(text)]
    statuses = [job_status._describe(job_status._Job({"folder": run.path}), row) for row in rows]
    assert {status["state"] for status in statuses} <= {"queued", "running", "ended", "unknown"}
    assert all(len(status.get("nodes", ())) <= 1000 for status in statuses)


def _slurm_files(case: bytes, folder: Path) -> None:
    """Read the record of a job and the cached queue, which a script can change."""
    run = RunFolder(str(folder / "runs" / "r"))
    os.makedirs(run.path, exist_ok=True)
    Path(run.path, "slurm.json").write_bytes(case)
    record = read_record(run)
    assert record is None or record["job"] is None or record["job"].isdigit()
    Path(run.path, "queue.json").write_bytes(case)
    cache = read_cache(str(Path(run.path, "queue.json")))
    queue = job_queue._usable(cache, 0.0) or job_queue.Queue(cache["rows"], cache["asked_at"], None)
    queue.find("r", "mlw r 0")
    for row in queue.rows.values():
        job_status._describe(job_status._Job({"folder": run.path}), row)


def _attachment(case: bytes, folder: Path) -> None:
    place = folder / "targets" / "0123456789abcdef"
    place.mkdir(parents=True, exist_ok=True)
    (place / "attachment.json").write_bytes(case)
    attachments = Attachments(UserPaths(folder))
    attachments.find("far", "ada")
    for attachment in attachments.list():
        judge_machine(Facts.from_json(attachment.facts), FAR, None, _size)
        _remote_facts(attachment, FAR, "/r", Target(_Saying({}, folder)))  # type: ignore[arg-type]


_MESSAGES = (MlwError, FrameError, _Refused)
_ANSWERS: dict[str, tuple[Callable[[bytes, Path], None], float]] = {
    "hello": (_hello, 0.5), "facts": (_facts, 1.5), "gpus": (_gpus, 1.0), "doctor": (_doctor, 1.0),
    "slurm": (_slurm, 1.0), "space": (_space, 0.5), "survey": (_survey, 0.3), "environments": (_environments, 1.0),
    "verbs": (_verbs, 0.8), "spark": (_spark_answer, 0.5), "image": (_image, 0.3),
    "upload": (_upload, 0.5),
}  # fmt: skip
_FRAMES = b"noise\nMLW-AGENT 77\n" + b"".join(
    _frame(message, str(body).encode()) for message, body in [one for stream in samples.STREAMS for one in stream]
)
SURFACES: list[Surface] = [
    Surface("frames", [_FRAMES, _frame({"ok": True}), _frame({"more": True}, bytes(100))], _frames, 1.5, _MESSAGES),
    Surface("streams", samples.STREAMS, _stream, 1.5, _MESSAGES),
    *(Surface(f"answer-{name}", samples.ANSWERS[name], *one, _MESSAGES) for name, one in _ANSWERS.items()),
    Surface("scontrol", samples.SCONTROL, _scontrol, 0.5),
    Surface("journal", samples.JOURNAL, _journal, 2.0, lines=True),
    Surface("metrics", samples.METRICS, _metrics, 1.5, lines=True),
    Surface("child", [*samples.JOURNAL, *samples.METRICS], _child, 0.5, lines=True),
    Surface("series", samples.METRICS, _series, 0.1, lines=True),
    Surface("event-file", samples.EVENT_RECORDS, _event_file, 0.3),
    Surface("tracked", samples.TRACKED, _tracked, 0.3, lines=True),
    Surface("wandb", [*samples.WANDB_FILES, *samples.WANDB_RECORDS], _wandb_file, 0.3),
    Surface("mlflow-store", [*samples.MLFLOW_DATABASES, samples.script_database()], _mlflow_store, 0.1),
    Surface("mlflow-folder", samples.MLFLOW_FILES, _mlflow_folder, 0.2),
    Surface("printed", samples.PRINTED, _printed, 0.3),
    Surface("telemetry", samples.TELEMETRY, _telemetry, 0.5, lines=True),
    Surface("rank", samples.RANKS, _rank, 0.3),
    Surface("slurm-output", samples.SLURM_OUTPUT, _slurm_output, 0.3),
    Surface("slurm-files", samples.SLURM_FILES, _slurm_files, 0.3),
    Surface("manifest", samples.MANIFESTS, _manifest, 1.0),
    Surface("notes", samples.NOTES, _notes, 0.5),
    Surface("spec", [SPEC.to_json()], _spec, 0.7),
    Surface("mlflow-database", [samples.mlflow_database()], _mlflow_database, 0.5),
    Surface("trace-file", samples.TRACE_FILES, _trace_file, 0.5),
    Surface("mlflow-records", samples.MLFLOW_RECORDS, _mlflow_records, 0.5, lines=True),
    Surface("table", samples.TABLES, _table, 0.5),
    Surface("lock", samples.LOCKS, _lock, 0.3),
    Surface("foreign-spec", samples.FOREIGN, _foreign_spec, 0.5, _MESSAGES),
    Surface("compute", samples.COMPUTE, _file("far.compute", check_file, read_compute), 1.0),
    Surface("runconfig", samples.RUNCONFIG, _file("far.runconfig", check_file, read_runconfig), 1.0),
    Surface("spark", samples.SPARK, _file("spark_dependencies.yml", check_file, read_spark_dependencies), 0.5),
    Surface("conda", samples.CONDA, _needs("conda_dependencies.yml"), 1.0),
    Surface("environment-yml", samples.CONDA, _needs("environment.yml"), 0.5),
    Surface("requirements", samples.REQUIREMENTS, _needs("requirements.txt"), 1.0),
    Surface("pyproject", samples.PYPROJECT, _needs("pyproject.toml"), 0.7),
    Surface("uv-lock", samples.UV_LOCK, _needs("uv.lock", pyproject_toml=samples.PYPROJECT[0]), 0.7),
    Surface("pixi-lock", samples.PIXI_LOCK, _needs("pixi.lock"), 0.7),
    Surface("script", samples.SCRIPTS, _script, 0.3),
    Surface("ignore", samples.IGNORE, _ignore, 0.25),
    Surface("project", samples.PROJECT, _project, 0.5),
    Surface("attachment", samples.ATTACHMENT, _attachment, 0.7),
]
