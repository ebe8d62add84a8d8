"""Every place where foreign bytes are read, each as a function that reads one case as the product does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw

from mlworkbench.attach.purge import Options, make_plan
from mlworkbench.attachments import Attachment, Attachments
from mlworkbench.cli import page
from mlworkbench.cli.view import _metrics as _metrics_line
from mlworkbench.client_identity import Client
from mlworkbench.config.files import (
    problems,
    read_compute,
    read_runconfig,
    read_spark_dependencies,
)
from mlworkbench.config.project import find_project
from mlworkbench.environments.channels import channels_of, indexes_of
from mlworkbench.environments.dependencies import Line
from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.inventory import Inventory
from mlworkbench.environments.lock_check import checked_lock
from mlworkbench.environments.supply import packages
from mlworkbench.errors import MlwError
from mlworkbench.history import rows, schema
from mlworkbench.history.annotations import noted_of, read_all
from mlworkbench.history.fold import ending_words
from mlworkbench.history.folders import read_family
from mlworkbench.history.gather import read_batch
from mlworkbench.history.intake import take_in
from mlworkbench.history.rows import Reading
from mlworkbench.history.series.series import Series
from mlworkbench.history.store import History
from mlworkbench.hosts.channel import Channel, NotGreeted
from mlworkbench.hosts.facts import Facts
from mlworkbench.hosts.gpus import ask_gpus
from mlworkbench.hosts.ssh import SshHost
from mlworkbench.hosts.survey import ask_survey
from mlworkbench.hosts.unfit import unfit
from mlworkbench.hosts.upload import _checked
from mlworkbench.import_runs import Here, read_spec
from mlworkbench.model import Compute, Run
from mlworkbench.paths import UserPaths
from mlworkbench.preflight.check import examine
from mlworkbench.preflight.finding import Case, Script
from mlworkbench.prepare import build_ahead
from mlworkbench.remote import progress
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.shared.failure import text_of
from mlworkbench.remote.shared.frames import FrameError, Pipe
from mlworkbench.remote.shared.layout import Root, RunFolder
from mlworkbench.report import gpus as gpu_report
from mlworkbench.report import spark as report_spark
from mlworkbench.report.records import for_people, record, summary
from mlworkbench.runfiles.clean_elsewhere import CleanerElsewhere
from mlworkbench.runfiles.incoming import Incoming
from mlworkbench.runfiles.manifest import read_outputs
from mlworkbench.snapshot.ignore import Rules, judge
from mlworkbench.targets.check import judge as judge_machine
from mlworkbench.targets.container import Engine
from mlworkbench.targets.gpucheck import judge_gpus
from mlworkbench.targets.ground import Ground, _elsewhere
from mlworkbench.targets.images import image_libc
from mlworkbench.targets.remote import look
from mlworkbench.targets.sparkcheck import spark_findings
from mlworkbench.targets.target import Stock, Target
from mlworkbench.targets.types import REMOTEDOCKER
from mlworkbench.ui.answers import run as answers_run
from mlworkbench.ui.answers.gpu import verdict
from mlworkbench.ui.answers.samples import Samples, _names
from tests.fuzz import samples
from tests.fuzz.campaign import Surface
from tests.unit.test_fold import SPEC

MOST = 60_000  # bytes in a pipe that nobody reads meanwhile
FAR = Compute("far", "remotedocker", "far", "ada", spark_master="spark://m:7077", nvidia_docker=True)

FACTS = Facts.from_json(samples.FACTS)


class _Refused(Exception):
    """What a reader of frames calls no message."""


def _message(case: bytes) -> dict[str, Any]:
    """As ``Pipe.receive`` does it."""
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
    """An ssh that has ended."""

    stdin = stdout = None

    def wait(self, seconds: float | None = None) -> int:
        return 0

    def poll(self) -> int:
        return 0


class _Tail:
    def text(self) -> str:
        return "words\n"


class _Host(SshHost):
    """An SSH host whose agent's frames are at hand."""

    def __init__(self, folder: Path, frames: bytes) -> None:
        super().__init__(Attachment(folder, "eve@far:22", address="far", username="eve", port=22), UserPaths(folder))
        self._source, sink = os.pipe()
        os.write(sink, frames[:MOST])
        os.close(sink)
        self._sink = os.open(os.devnull, os.O_WRONLY)
        self._made: Any = Channel.__new__(Channel)
        self._made.pipe = Pipe(self._source, self._sink)
        self._made._process, self._made._errors = _Process(), _Tail()
        self._made._nonce, self._made._client, self._made._said_hello, self._made.hello = "77", None, False, {}

    def _open(self, ahead: bool = False) -> Channel:
        return self._made  # type: ignore[no-any-return]

    def _drop_channel(self) -> None:
        self._ahead = None

    def end(self) -> None:
        os.close(self._source)
        os.close(self._sink)


def _stream(case: bytes, folder: Path) -> None:
    frames = b""
    for one in _listed(case):
        message, body = (one[0], one[1]) if isinstance(one, list) and len(one) == 2 else (one, "")
        text = body.encode("utf-8", "replace") if isinstance(body, str) else b"x"
        frames += _frame(message, text[:1000])
    uses: list[Callable[[Any], Any]] = [
        lambda host: host.news("r", {"log": 0, "events.jsonl": 0}, 1000),
        lambda host: host.news("r", {"log": 0}, 4),
        lambda host: list(host.outputs("r", [("a", 0, 3), ("b", 0, 2)])),
        lambda host: host.read_file("r", "outputs.json", 0, 100),
        lambda host: host._made.greet(1.0),
    ]
    host = _Host(folder, frames)
    try:
        uses[crc32(case) % len(uses)](host)
    except NotGreeted as error:
        raise unfit(host.attachment, error) from None
    finally:
        host.end()


def _listed(case: bytes) -> list[Any]:
    try:
        found = json.loads(case)
    except (ValueError, RecursionError):
        raise _Refused from None
    return found if isinstance(found, list) else [found]


class _Saying:
    """A host that answers every request with one message."""

    distant = True
    identity = "eve@far:22"
    attachment = None

    def __init__(self, message: dict[str, Any], root: Path) -> None:
        self._message = message
        self.root = Root(str(root))

    def connect(self) -> None:
        pass

    def ask(self, request: Any, body: bytes = b"", patience: float = 0.0) -> dict[str, Any]:
        if request.get("do") == "built":
            self._message = {**self._message, "state": "ready"}  # else it is asked for ever
        return self._message

    def call(self, verb: str, run_id: str, words: Any, message: Any) -> dict[str, Any]:
        return self._message

    def send_packages(self, packages: Any, progress: Any = None) -> None:
        pass

    def send_code(self, digest: str, store: Any, progress: Any = None) -> None:
        pass


def _size(count: float) -> str:
    return f"{count:.1f} B"


def _each(*uses: Callable[[], Any]) -> None:
    """All of them; each may end in its own sentence."""
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
        host._made.greet(1.0)
        host._learn(host._made.hello)
        host._warm_words()
        host.inrun()
    finally:
        host.end()


def _facts(case: bytes, folder: Path) -> None:
    said: Any = _Saying(_message(case), folder)
    facts, link = look(said, None)
    judge_machine(facts, FAR, None, _size, link)
    _elsewhere_from(facts, folder)


def _elsewhere_from(facts: Facts, folder: Path) -> None:
    from dataclasses import asdict

    attachment = Attachment(folder, "eve@far:22", "far", "eve", 22, root="/r", facts=asdict(facts))
    _elsewhere(attachment, FAR, "/r", Target(_Saying({}, folder), REMOTEDOCKER))  # type: ignore[arg-type]


def _gpus(case: bytes, folder: Path) -> None:
    found = ask_gpus(_Saying(_message(case), folder))  # type: ignore[arg-type]
    gpu_report.summary(found)
    for one in found.gpus:
        gpu_report.row(one)
        gpu_report.line(one)


def _doctor(case: bytes, folder: Path) -> None:
    found = _message(case).get("found")
    if isinstance(found, dict):
        judge_gpus(found, FACTS, FAR)
        judge_gpus(found, FACTS, Compute("local", "local"))


def _space(case: bytes, folder: Path) -> None:
    cleaner = CleanerElsewhere.__new__(CleanerElsewhere)
    cleaner._host, cleaner._free, cleaner._kept = _Saying(_message(case), folder), [], {}  # type: ignore[assignment]
    cleaner._young = 0.0
    _each(cleaner.find, cleaner.remove)


def _survey(case: bytes, folder: Path) -> None:
    survey = ask_survey(_Saying(_message(case), folder), sizes=True)  # type: ignore[arg-type]
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
    stock = Stock(host.root, lambda lock, answer: packages(lock, answer, host.root))
    uses: list[Callable[[], Any]] = [
        lambda: Target(host).adopt("r", None),
        lambda: Target(host).cancel("r", "me", None),
        lambda: build_ahead(host, lock, None, stock, lambda data: None),
    ]
    if message.get("claimed") or message.get("owner") or not message.get("ok"):  # else it waits for another's claim
        uses.append(lambda: Target(host).launch(SPEC, {}, Stock(host.root, lambda lock, answer: {})))
    _each(*uses)


def _spark_answer(case: bytes, folder: Path) -> None:
    spark_findings(FAR, lambda request: _message(case))


def _image(case: bytes, folder: Path) -> None:
    host: Any = _Saying(_message(case), folder)
    ground = Ground("/home/ada", "/home/ada/share", engine=Engine("/usr/bin/docker"))
    (folder / "cache").mkdir(exist_ok=True)
    (folder / "cache" / "images.json").unlink(missing_ok=True)
    image_libc(Target(host), FAR, ground, UserPaths(folder))()


def _upload(case: bytes, folder: Path) -> None:
    _checked(_message(case), [(samples.SHA, 5), ("f" * 64, 7)])


# -- runs ----------------------------------------------------------------------------------------------

_index: list[apsw.Connection] = []


def _shown(run: Run, reading: Reading) -> None:
    """Into the index and out of it, and as people and programs see it."""
    if not _index:
        _index.append(apsw.Connection(":memory:"))
        schema.create(_index[0])
    encoded = rows.encode(run, reading, {})
    rows.decode(encoded.body[0], encoded.body[1])
    connection = _index[0]
    connection.execute("BEGIN")
    try:
        rows.pour(connection, encoded)
        list(connection.execute("SELECT json_extract(facts, '$.duration'), json_extract(metrics, '$.loss') FROM runs"))
        for stored in rows.select(connection, "1", ()):
            told = record(stored.run)
            for_people(told)
            json.dumps(told)
            _seen(stored.run)
    finally:
        connection.execute("ROLLBACK")


def _seen(run: Run) -> None:
    """What the pages and the command line make of it."""
    summary(run)
    assert len(ending_words(run) or "") < 100
    for show in (page._head, page._spark, page._parameters, page._words, page._grounds, page._hints):
        list(show(run))
    if run.cause and crc32(run.cause.encode(errors="replace")) % 16 == 0:
        page._trouble(run)  # which looks through every text of `mlw explain`
    for tell in (verdict, answers_run.ending, answers_run.cause, answers_run.parameters, answers_run.last_values):
        tell(run)
    _names(run)
    _metrics_line(run)
    if run.spark:
        report_spark.words(run.spark, run.status.final)
        report_spark.members(run.spark)
        report_spark.troubles(run.spark)
        report_spark.tunnel(run)


def _journal(case: bytes, folder: Path) -> None:
    run, reading = take_in(Run(SPEC), Reading(), {"events.jsonl": case})
    if crc32(case) % 4:
        rows.encode(run, reading, {})
    else:
        _shown(run, reading)


def _metrics(case: bytes, folder: Path) -> None:
    from mlworkbench.history.family import children_of

    run, reading = take_in(Run(SPEC), Reading(), {"metrics/1-0": case})
    if crc32(case) % 4:
        rows.encode(run, reading, {})
        return
    _shown(run, reading)
    for child in children_of(run):
        _shown(child, Reading())


def _run_folder(folder: Path) -> RunFolder:
    found = Root(str(folder)).run(SPEC.id)
    if not os.path.isdir(found.metrics):
        os.makedirs(found.metrics)
    return found


def _child(case: bytes, folder: Path) -> None:
    """What the conductor of a sweep reads of a child, and a supervisor of a run that it takes over."""
    run = _run_folder(folder)
    Path(run.events).write_bytes(case)
    Path(run.metrics, "1-0").write_bytes(case)
    told = progress.how_ended(run)
    if told is not None:
        assert len(progress.outcome(told)) < 100
        assert len(text_of(progress.failures([(SPEC.id, told)]))) < 10_000
    progress.when_started(run)
    progress.last_value(run, "loss")
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
            series.drawn(name.name, 10)
            series.ends(name.name)
            series.values(name.name, newest=3)
            series.rows(name.name)


def _manifest(case: bytes, folder: Path) -> None:
    path = folder / "outputs.json"
    path.write_bytes(case)
    place = folder / "outputs"
    found = [one for one in read_outputs(str(path)) if one.size < 10_000]
    try:
        Incoming(str(place), lambda files: iter(()), lambda done: None).fetch(found)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _notes(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    Path(run.noted).write_bytes(case)
    noted = noted_of(read_all(Root(str(folder)), SPEC.folder), SPEC.id)
    rows.encode(Run(SPEC, noted=noted), Reading(), {})


def _spec(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    Path(run.spec).write_bytes(case)
    Path(run.noted).unlink(missing_ok=True)
    for name in os.listdir(run.metrics):
        Path(run.metrics, name).unlink()
    if read_batch(Root(str(folder)), [SPEC.id]):  # else it is passed over
        for one, reading in read_family(Root(str(folder)), SPEC.id):
            _shown(one, reading)


def _lock(case: bytes, folder: Path) -> None:
    """What ``--locked`` repeats."""
    try:
        found = json.loads(case)
    except (ValueError, RecursionError):
        return  # then the run has no record
    if isinstance(found, dict):
        _each(*(lambda contained=contained: checked_lock(found, contained=contained) for contained in (True, False)))


class _Spoken:
    """A host whose every file holds the same."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        return self._data[offset : offset + limit]


def _foreign_spec(case: bytes, folder: Path) -> None:
    here = Here(FAR, "p", str(folder))
    spec = read_spec(_Spoken(case), here, SPEC.id, "ada@old")  # type: ignore[arg-type]
    assert spec.compute == FAR and not spec.secrets and not spec.environment and spec.origin
    _shown(Run(spec), Reading())


def _telemetry(case: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    for path in (run.gpu, run.effort):
        Path(path).write_bytes(case)
        Samples()._read(path)


# -- projects ------------------------------------------------------------------------------------------


def _file(name: str, *readers: Callable[[Path], Any]) -> Callable[[bytes, Path], None]:
    def consume(case: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(case)
        _each(*(lambda read=read: read(path) for read in readers))

    return consume


def _needs(name: str, **beside: bytes) -> Callable[[bytes, Path], None]:
    """A file that says what packages are needed, in a project of its own."""

    def consume(case: bytes, folder: Path) -> None:
        project = folder / name.replace(".", "-")
        if not project.is_dir():
            project.mkdir()
            (project / "wheels").mkdir()
            (project / "other.txt").write_bytes(b"scipy\n")
            for other, data in beside.items():
                (project / other.replace("_", ".")).write_bytes(data)
        (project / name).write_bytes(case)
        found = read_dependencies(project / name, project)
        examine(Case(FAR, found, FACTS, None, None))
        indexes = indexes_of(found, {"P": "x", "PIP_CONFIG_FILE": os.devnull}, Path())
        indexes.public(Path())
        indexes.hosts_with_password()
        channels_of(found)
        [one.wheel for one in found.pip]

    return consume


def _script(case: bytes, folder: Path) -> None:
    try:
        text = case.decode("utf-8-sig")
    except UnicodeDecodeError:
        return
    examine(Case(FAR, None, FACTS, Script("train.py", text), Line("nvidia/cuda:12.9", "x", 1)))


def _ignore(case: bytes, folder: Path) -> None:
    chain = (Rules("", ".mlwignore", case[:3000]),)
    for place, name, is_folder in (("", "a", True), ("data", "keep.csv", False), ("a/b/c/d", "x" * 60, False)):
        judge(chain, place, name, is_folder)


def _project(case: bytes, folder: Path) -> None:
    project = folder / "project"
    (project / "aml_config").mkdir(parents=True, exist_ok=True)
    (project / "aml_config" / "project.json").write_bytes(case)
    found = find_project(project)
    found.computes()


def _attachment(case: bytes, folder: Path) -> None:
    place = folder / "targets" / "0123456789abcdef"
    place.mkdir(parents=True, exist_ok=True)
    (place / "attachment.json").write_bytes(case)
    found = Attachments(UserPaths(folder))
    found.find("far", "ada")
    for one in found.list():
        judge_machine(Facts.from_json(one.facts), FAR, None, _size)
        _elsewhere(one, FAR, "/r", Target(_Saying({}, folder)))  # type: ignore[arg-type]


_MESSAGES = (MlwError, FrameError, _Refused)
_ANSWERS: dict[str, tuple[Callable[[bytes, Path], None], float]] = {
    "hello": (_hello, 0.5), "facts": (_facts, 1.5), "gpus": (_gpus, 1.0), "doctor": (_doctor, 1.0),
    "space": (_space, 0.5), "survey": (_survey, 0.3), "environments": (_environments, 1.0),
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
    Surface("journal", samples.JOURNAL, _journal, 2.0, lines=True),
    Surface("metrics", samples.METRICS, _metrics, 1.5, lines=True),
    Surface("child", [*samples.JOURNAL, *samples.METRICS], _child, 0.5, lines=True),
    Surface("series", samples.METRICS, _series, 0.1, lines=True),
    Surface("telemetry", samples.TELEMETRY, _telemetry, 0.5, lines=True),
    Surface("manifest", samples.MANIFESTS, _manifest, 1.0),
    Surface("notes", samples.NOTES, _notes, 0.5),
    Surface("spec", [SPEC.to_json()], _spec, 0.7),
    Surface("lock", samples.LOCKS, _lock, 0.3),
    Surface("foreign-spec", samples.FOREIGN, _foreign_spec, 0.5, _MESSAGES),
    Surface("compute", samples.COMPUTE, _file("far.compute", problems, read_compute), 1.0),
    Surface("runconfig", samples.RUNCONFIG, _file("far.runconfig", problems, read_runconfig), 1.0),
    Surface("spark", samples.SPARK, _file("spark_dependencies.yml", problems, read_spark_dependencies), 0.5),
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
