"""Data model of ML Workbench: frozen dataclasses without behavior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from .failure import Failure
from .remote.shared.protocol_versions import SPEC
from .remote.shared.retry_causes import DEFAULT_CAUSES
from .retries import DEFAULT_DELAY, Retries
from .spec_parts import Command as Command
from .spec_parts import Container as Container
from .spec_parts import Entry as Entry
from .spec_parts import Git as Git

if TYPE_CHECKING:
    from .project_dependencies import SparkDependencies

JsonDict = dict[str, Any]


# -- project files ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compute:
    """A ``<name>.compute`` file: where code runs."""

    name: str
    type: str
    address: str | None = None
    username: str | None = None
    password: str | None = None  # only a reference such as AzureMlSecret=…, never used or copied
    base_docker_image: str | None = None
    shared_volumes: bool = False
    native_shared_directory: str | None = None
    nvidia_docker: bool = False
    user_managed_environment: bool | None = None
    python_location: str | None = None
    spark_submit_location: str | None = None
    spark_master: str | None = None
    yarn_deploy_mode: str | None = None
    port: int | None = None
    jump_host: str | None = None
    mounts: tuple[str, ...] = ()  # source[:target][:ro], with paths on the target
    shm_size: str | None = None
    memory: str | None = None
    cpus: str | None = None
    network: str | None = None
    keep_entrypoint: bool = False
    registry_username: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: str | None = None  # in Slurm's notation
    set_up: tuple[str, ...] = ()  # shell lines
    extra_options: tuple[str, ...] = ()  # of sbatch
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  # additional keys that a plugin defines


@dataclass(frozen=True)
class RunConfig:
    """A ``<name>.runconfig`` file: how to run the code."""

    name: str
    target: str
    argument_vector: tuple[str, ...] = ()
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    pass_environment: tuple[str, ...] = ("default",)  # names of variables; "default" is the default table
    framework: str = "PySpark"
    conda_dependencies_file: str = "aml_config/conda_dependencies.yml"
    spark_dependencies_file: str = "aml_config/spark_dependencies.yml"
    prepare_environment: bool = True
    tracked_run: bool = True
    use_sampling: bool = True
    data_source_settings: Mapping[str, Any] = field(default_factory=dict)
    data_source_substitutions: Mapping[str, str] = field(default_factory=dict)
    fetch_outputs: str = "all"
    keep: tuple[str, ...] = ()  # paths in the working copy that are collected with the outputs
    gpus: str | None = None  # in the format of remote.shared.gpu_request
    retries: int = 0
    retry_on: tuple[str, ...] = DEFAULT_CAUSES
    retry_delay: float = DEFAULT_DELAY
    launcher: str = "none"  # see remote.shared.process_launchers
    processes_per_node: str | None = None  # "gpu" or a number
    metrics_from_log: bool = False
    metric_goals: Mapping[str, str] = field(default_factory=dict)  # name → "min" or "max"
    environment: str | None = None  # name of the plugin that provides the environment; None: the target decides
    overrides: Mapping[str, Any] = field(default_factory=dict)  # see config.legacy_formats.apply_overrides
    spark_dependencies: SparkDependencies | None = None  # from the April 2018 format; used instead of the file


@dataclass(frozen=True)
class Problem:
    """A problem in a project file. Only an error prevents a run from starting."""

    path: str
    line: int | None
    severity: str  # "error" or "warning"
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}"


@dataclass(frozen=True)
class Interpreter:
    """An existing Python interpreter, and how it was found."""

    path: str
    version: tuple[int, int, int]
    reason: str


# -- run specification -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of the project's code in the content store, identified by the digest of its file list."""

    digest: str
    files: int
    size: int
    git: Git | None = None
    git_diff: bytes = b""
    notes: tuple[str, ...] = ()  # notices for the user: files skipped, changed during the snapshot, or large
    left_out: str | None = None  # folders excluded by default


@dataclass(frozen=True)
class RunSpec:
    """The complete specification of a run. It contains the names of secrets, but not their values."""

    id: str
    key: str
    number: int
    name: str | None
    project_id: str
    project_name: str
    project_path: str
    created: float
    compute: Compute
    runconfig: str
    framework: str
    entry: Entry
    commands: tuple[Command, ...]
    environment: Mapping[str, str]
    inherit: tuple[str, ...]
    secrets: tuple[str, ...]
    snapshot: str
    git: Git | None = None
    lock: JsonDict | None = None
    prepare: bool = True  # whether the environment may be built; otherwise it must exist
    path: tuple[str, ...] = ()  # folders on the target to put before PATH
    container: Container | None = None
    starter: str = "detached"  # how the supervisor is started on the target
    companions: Mapping[str, JsonDict] = field(default_factory=dict)  # name → settings from the framework
    scheduler: JsonDict | None = None  # what is requested from a scheduler: see scheduler_plan
    gpus: str | None = None  # requested GPUs; the run's events record the allocated GPUs
    processes: JsonDict | None = None  # several processes of the command: launcher, count, python, library
    timeout: float | None = None
    grace: float = 30.0
    retries: Retries | None = None
    resumed: str | None = None  # ID of the run whose checkpoints this run starts with
    checkpoints: str | None = None  # their digest, if they were on another machine
    tracked: bool = True
    keep: tuple[str, ...] = ()  # paths in the working copy that are collected with the outputs
    fetch: str = "all"  # outputs to download automatically: "all", "none", or up to a size
    tags: tuple[str, ...] = ()
    user: str | None = None
    parent: str | None = None  # for a child: ID of the sweep or run that contains it
    inside: bool = False  # a child created by its parent's script, without its own process or folder
    sweep: JsonDict | None = None  # for a parent: its children, how many run in parallel, and how they are ranked
    spoken: bool = False  # record printed ``key: value`` lines as metrics
    given: Mapping[str, str] = field(default_factory=dict)  # variables from --env, which a rerun reuses
    passed: tuple[str, ...] = ()  # variables of the submitting shell; their values are in ``environment``
    unpassed: tuple[str, ...] = ()  # known variables that were set in the submitting shell, but not passed
    varied: Mapping[str, str] = field(default_factory=dict)  # for a child of a sweep: its value for each axis
    client: str | None = None  # ID of the data folder from which it was submitted
    origin: str | None = None  # for an imported run: the laptop that submitted it
    spec: int = SPEC

    @property
    def folder(self) -> str:
        """Name of the run's folder. A child that its parent's script created is in the parent's folder."""
        return self.id.partition(".")[0] if self.inside else self.id

    def to_json(self) -> JsonDict:
        return asdict(self)

    @staticmethod
    def from_json(data: JsonDict) -> RunSpec:
        compute = _known(Compute, data["compute"])
        return RunSpec(
            **{
                **_known(RunSpec, data),
                "compute": Compute(**{**compute, **{name: tuple(compute.get(name, ())) for name in _COMPUTE_LISTS}}),
                "container": _container(data["container"]) if data.get("container") else None,
                "entry": Entry(**{**_known(Entry, data["entry"]), "arguments": tuple(data["entry"]["arguments"])}),
                "commands": tuple(Command(c["step"], tuple(c["argv"])) for c in data["commands"]),
                "retries": _retries(data["retries"]) if data.get("retries") else None,
                "git": Git(**_known(Git, data["git"])) if data.get("git") else None,
                **{name: tuple(data[name]) for name in ("inherit", "secrets")},
                **{name: tuple(data.get(name, ())) for name in ("tags", "path", "keep", "passed", "unpassed")},
                # Earlier versions had a single companion, stored under its own key.
                "companions": data.get("companions") or ({"spark": data["spark"]} if data.get("spark") else {}),
            }
        )


_COMPUTE_LISTS = ("mounts", "set_up", "extra_options")


def _container(data: JsonDict) -> Container:
    gpus = data.get("gpus")
    lists: JsonDict = {name: tuple(map(tuple, data.get(name, ()))) for name in ("mounts", "resolved")}
    lists["options"] = tuple(data.get("options", ()))
    return Container(**{**_known(Container, data), **lists, "gpus": None if gpus is None else tuple(gpus)})


def _retries(data: JsonDict) -> Retries:
    return Retries(**{**_known(Retries, data), "causes": tuple(data["causes"])})


def _known(kind: Any, data: JsonDict) -> JsonDict:
    """Drop keys that only a newer version uses."""
    return {key: data[key] for key in kind.__dataclass_fields__ if key in data}


# -- run state -------------------------------------------------------------------------------------


IN_CONTACT = "in contact"
_MLFLOW = "mlflow."
# Prefixes of the tags that the index contains for records of scripts
DATASET_TAG, LOGGED_MODEL_TAG = "mlflow.dataset.", "mlflow.logged-model."


class Status(str, Enum):
    """Run states, using the values of the original product."""

    SUBMITTING = "Submitting"
    PREPARING = "Preparing"
    QUEUED = "Queued"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"

    @property
    def final(self) -> bool:
        return self in (Status.COMPLETED, Status.FAILED, Status.CANCELED)


@dataclass(frozen=True)
class Event:
    """One line of a run's event journal, identified by (writer, seq)."""

    writer: str
    seq: int
    time: float
    kind: str
    data: JsonDict


class Span(NamedTuple):
    """Summary of a numeric series, as far as it has been read."""

    length: int
    least: float | None  # None if no number is finite
    most: float | None
    time: float  # time of the last point
    step: int | None  # step of the last point


@dataclass(frozen=True)
class Annotations:
    """Annotations that users added to a run, stored in a separate file in the local run folder."""

    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()  # added tags
    untagged: tuple[str, ...] = ()  # tags of the run that a user removed
    archived: bool = False


@dataclass(frozen=True, repr=False)
class Run:
    """Known state of a run, which ``fold`` computes from the run's events."""

    spec: RunSpec
    status: Status = Status.SUBMITTING
    detail: str | None = None  # detail of the status, such as "stopping" or "interrupted"
    ending: str | None = None
    exit: int | None = None
    signal: int | None = None
    cause: str | None = None  # description of the failure
    failure: Failure | None = None  # also None for a run that ended under an earlier version: see report.failure_report
    accepted: float | None = None
    root: str | None = None  # ID of the root folder on the target that accepted the run
    started: float | None = None  # in the current attempt, like ``ended``
    ended: float | None = None
    attempts: tuple[JsonDict, ...] = ()  # earlier attempts, each with its ending
    outputs: int | None = None
    output_bytes: int | None = None
    checkpoint_bytes: int | None = None  # size of the checkpoints, which stay on the target
    uncollected: int = 0  # output list entries that are not collected, such as links to folders
    log_size: int | None = None
    leftovers: tuple[int, ...] = ()
    ranks: tuple[JsonDict, ...] = ()  # processes of a launcher: keys rank, host, pid, exit, and signal
    left_out: tuple[str, ...] = ()  # recorded data that mlw did not read or check, such as "metrics/x: not a file"
    unkept: tuple[str, ...] = ()  # files and folders that the script created outside of outputs/
    contact: str = IN_CONTACT  # description for users; see no_contact for details
    no_contact: JsonDict | None = None  # keys: since, why, and attached (whether the machine was attached)
    job: JsonDict | None = None  # the last report of a scheduler about the run: see scheduler_state
    unwritten: str | None = None  # the detail of a run that has ended, but whose result the target cannot save yet
    gpu: JsonDict | None = None  # keys: allocation, warning, verdict; as the target reported them, within limits
    spark: JsonDict | None = None  # keys: application, progress, losses; as the target reported them, within limits
    metrics: Mapping[str, Any] = field(default_factory=dict)  # latest value for each name
    spans: Mapping[str, Span] = field(default_factory=dict)  # for numeric metrics
    # Metrics that do not come from the in-run library: name → source (a name in EXTERNAL_METRICS) and name there
    metric_sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)  # as the script logged them; see also history.parameters
    told_tags: Mapping[str, Any] = field(default_factory=dict)  # set by the script: name → value
    files: Mapping[str, JsonDict] = field(default_factory=dict)  # path below outputs → kind: image, table, model, …
    children: Mapping[str, JsonDict] = field(default_factory=dict)  # nested runs: ID → data that the script logged
    noted: Annotations = field(default_factory=Annotations)
    over_limit: Mapping[str, int] = field(default_factory=dict)  # kind → number of items dropped because of limits

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.status.value}>"  # short, because notebooks display lists of runs

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def name(self) -> str | None:
        """The display name from a user, the submission, or MLflow, in this order of precedence."""
        if self.noted.name is not None:
            return self.noted.name
        mlflow_name = self.told_tags.get(_MLFLOW + "runName")
        return self.spec.name or (mlflow_name if isinstance(mlflow_name, str) and mlflow_name != self.id else None)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags such as ``best`` and ``team=vision`` from submission, script, and users, without removed tags."""
        script_tags = (
            name if value in ("", True) else f"{name}={value}"
            for name, value in self.told_tags.items()
            if not name.startswith(_MLFLOW)  # internal tags of MLflow
        )
        given = dict.fromkeys((*self.spec.tags, *script_tags))
        return tuple(dict.fromkeys((*(tag for tag in given if tag not in self.noted.untagged), *self.noted.tags)))

    @property
    def duration(self) -> float | None:
        return None if self.started is None or self.ended is None else max(0.0, self.ended - self.started)
