"""The nouns of ML Workbench, frozen. What they hold, not what is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from .failure import Failure
from .remote.shared.versions import SPEC

JsonDict = dict[str, Any]


# -- what the project's files say ------------------------------------------------------------------


@dataclass(frozen=True)
class Compute:
    """A ``<name>.compute`` file: where code runs."""

    name: str
    type: str
    address: str | None = None
    username: str | None = None
    password: str | None = None  # only ever a pointer such as AzureMlSecret=…; never used, never copied
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
    mounts: tuple[str, ...] = ()  # source[:target][:ro], paths of the target
    shm_size: str | None = None
    memory: str | None = None
    cpus: str | None = None
    network: str | None = None
    keep_entrypoint: bool = False
    registry_username: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  # keys that only a plugin's type has


@dataclass(frozen=True)
class RunConfig:
    """A ``<name>.runconfig`` file: how to run."""

    name: str
    target: str
    argument_vector: tuple[str, ...] = ()
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    framework: str = "PySpark"
    conda_dependencies_file: str = "aml_config/conda_dependencies.yml"
    spark_dependencies_file: str = "aml_config/spark_dependencies.yml"
    prepare_environment: bool = True
    tracked_run: bool = True
    use_sampling: bool = True
    data_source_settings: Mapping[str, Any] = field(default_factory=dict)
    data_source_substitutions: Mapping[str, str] = field(default_factory=dict)
    fetch_outputs: str = "all"
    gpus: str | None = None  # as remote.gpus.request reads it
    metrics_from_log: bool = False
    environment: str | None = None  # the name of a plugin that makes it; None: as the target says
    overrides: Mapping[str, Any] = field(default_factory=dict)  # for config.dialects.override
    spark_dependencies: SparkDependencies | None = None  # instead of the file, in the form of April 2018


@dataclass(frozen=True)
class Dependencies:
    """A ``conda_dependencies.yml``: what must be importable."""

    name: str = "project_environment"
    channels: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()


@dataclass(frozen=True)
class SparkDependencies:
    """A ``spark_dependencies.yml``: what the Spark session gets."""

    configuration: Mapping[str, str] = field(default_factory=dict)
    repositories: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # Maven coordinates, group:artifact:version


@dataclass(frozen=True)
class Problem:
    """Something wrong or odd in a file of the project. Only an error keeps a run from starting."""

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
    """A Python that is there, and how it was found."""

    path: str
    version: tuple[int, int, int]
    reason: str


# -- what is to be run -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What the user asked to run: a script, a module or any command, with its arguments."""

    kind: str  # "script", "module" or "command"
    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """One step on the target; the last one is the user's own."""

    step: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Container:
    """What stands around the user's command: one container, decided to the last option."""

    engine: str  # "docker" or "podman"
    program: str
    image: str
    name: str
    workdir: str
    socket: str | None = None  # path of the engine's; None: the program's own default
    user: str | None = None  # uid:gid; None: as the engine has it
    mounts: tuple[tuple[str, str, str], ...] = ()  # source, target, "ro" or "rw"
    resolved: tuple[tuple[str, str], ...] = ()  # prefixes of sources that are behind links, and where they lead
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] | None = None  # UUIDs, or ("all",)
    shm_size: str | None = None
    network: str | None = None
    memory: str | None = None
    cpus: str | None = None
    keep_entrypoint: bool = False
    options: tuple[str, ...] = ()
    registry: Mapping[str, str] | None = None
    pull: bool = True
    libc: str | None = None  # the oldest glibc that the environment runs on, where it is not the image's own


@dataclass(frozen=True)
class Git:
    """State of the project's repository when the snapshot was taken."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False


@dataclass(frozen=True)
class Snapshot:
    """The code that travels: a content-addressed list of files, already in the store."""

    digest: str
    files: int
    size: int
    git: Git | None = None
    git_diff: bytes = b""
    notes: tuple[str, ...] = ()  # what the user should know: skipped, changed meanwhile, large
    left_out: str | None = None  # which folders are left out by default


@dataclass(frozen=True)
class RunSpec:
    """All that was decided about a run. No decision is taken after it, and no secret ever enters it."""

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
    prepare: bool = True  # the environment may be built; else it must be there
    path: tuple[str, ...] = ()  # folders on the target that go before PATH
    container: Container | None = None
    starter: str = "detached"  # what leaves a supervisor behind on the target
    companions: Mapping[str, JsonDict] = field(default_factory=dict)  # name → what the framework tells it
    gpus: str | None = None  # the request; which ones the run got is told by its events
    timeout: float | None = None
    grace: float = 30.0
    tracked: bool = True
    fetch: str = "all"  # outputs that come home by themselves: all, none, or those up to a size
    tags: tuple[str, ...] = ()
    user: str | None = None
    parent: str | None = None  # of a child run: the id of the sweep, or of the run inside which it was
    inside: bool = False  # a child that its parent's script made: no process, no folder of its own
    sweep: JsonDict | None = None  # of a parent: what its children are, how many at a time, what is the best one
    spoken: bool = False  # ``key: value`` lines that the script prints are metrics
    given: Mapping[str, str] = field(default_factory=dict)  # variables of --env, which a rerun says again
    varied: Mapping[str, str] = field(default_factory=dict)  # of a child of a sweep: its value of each axis
    client: str | None = None  # ID of the data folder that it was submitted from
    origin: str | None = None  # of a run that was submitted from another laptop and taken in here: that laptop
    spec: int = SPEC

    @property
    def folder(self) -> str:
        """The name of the folder that holds the run: of a child inside another run, that run's."""
        return self.id.partition(".")[0] if self.inside else self.id

    def to_json(self) -> JsonDict:
        return asdict(self)

    @staticmethod
    def from_json(data: JsonDict) -> RunSpec:
        return RunSpec(
            **{
                **_known(RunSpec, data),
                "compute": _compute(data["compute"]),
                "container": _container(data["container"]) if data.get("container") else None,
                "entry": Entry(**{**_known(Entry, data["entry"]), "arguments": tuple(data["entry"]["arguments"])}),
                "commands": tuple(Command(c["step"], tuple(c["argv"])) for c in data["commands"]),
                "git": Git(**_known(Git, data["git"])) if data.get("git") else None,
                "inherit": tuple(data["inherit"]),
                "secrets": tuple(data["secrets"]),
                "tags": tuple(data.get("tags", ())),
                "path": tuple(data.get("path", ())),
                # Earlier builds knew one companion, by a key of its own.
                "companions": data.get("companions") or ({"spark": data["spark"]} if data.get("spark") else {}),
            }
        )


def _compute(data: JsonDict) -> Compute:
    return Compute(**{**_known(Compute, data), "mounts": tuple(data.get("mounts", ()))})


def _container(data: JsonDict) -> Container:
    gpus = data.get("gpus")
    lists = {
        "mounts": tuple(tuple(mount) for mount in data.get("mounts", ())),
        "resolved": tuple(tuple(pair) for pair in data.get("resolved", ())),
        "options": tuple(data.get("options", ())),
    }
    return Container(**{**_known(Container, data), **lists, "gpus": None if gpus is None else tuple(gpus)})


def _known(kind: Any, data: JsonDict) -> JsonDict:
    """Without what only a newer version knows."""
    return {key: data[key] for key in kind.__dataclass_fields__ if key in data}


# -- what happened ---------------------------------------------------------------------------------


IN_CONTACT = "in contact"
_MLFLOW = "mlflow."


class Status(str, Enum):
    """The original's words."""

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
    """One line of a run's journal; (writer, seq) is its identity."""

    writer: str
    seq: int
    time: float
    kind: str
    data: JsonDict


class Span(NamedTuple):
    """What a series of numbers amounts to, as far as it was read."""

    length: int
    least: float | None  # None: there was no finite number
    most: float | None
    time: float  # of the last one
    step: int | None  # of the last one


@dataclass(frozen=True)
class Noted:
    """What people wrote on a run afterwards. It lies in a file of its own in the run's folder at home."""

    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()  # added
    untagged: tuple[str, ...] = ()  # taken away from those that it was given before
    archived: bool = False


@dataclass(frozen=True, repr=False)
class Run:
    """A run as it is known here: a fold over its events. No other code computes a state."""

    spec: RunSpec
    status: Status = Status.SUBMITTING
    detail: str | None = None  # what is happening within the status: "stopping", "interrupted"
    ending: str | None = None
    exit: int | None = None
    signal: int | None = None
    cause: str | None = None  # the failure as one text
    failure: Failure | None = None  # None also for a run that an earlier version ended: see report.failures
    accepted: float | None = None
    root: str | None = None  # ID of the root folder on the target that took it on
    started: float | None = None
    ended: float | None = None
    outputs: int | None = None
    output_bytes: int | None = None
    uncollected: int = 0  # entries of the list of outputs that are no outputs, such as links to folders
    log_size: int | None = None
    leftovers: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()  # what the script recorded and is not read or checked: "metrics/x: not a file"
    contact: str = IN_CONTACT  # as text
    no_contact: JsonDict | None = None  # since, why, attached: whether the machine was
    gpu: JsonDict | None = None  # what it got, a warning, the verdict: as the target told, within bounds
    spark: JsonDict | None = None  # the application, how far it is, what it lost: as the target told, within bounds
    metrics: Mapping[str, Any] = field(default_factory=dict)  # the latest value of each name
    spans: Mapping[str, Span] = field(default_factory=dict)  # of the names that have numbers
    params: Mapping[str, Any] = field(default_factory=dict)  # as the script told; see history.parameters.of_run
    told_tags: Mapping[str, Any] = field(default_factory=dict)  # by the script: name → value
    files: Mapping[str, JsonDict] = field(default_factory=dict)  # below outputs → as: image, table, model, …
    children: Mapping[str, JsonDict] = field(default_factory=dict)  # inside: id → what the script told of it
    noted: Noted = field(default_factory=Noted)
    over_limit: Mapping[str, int] = field(default_factory=dict)  # kind → how much the run recorded beyond its limits

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.status.value}>"  # all of it is kilobytes, and a notebook shows lists of them

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def name(self) -> str | None:
        """For people; the newest one that it was given."""
        if self.noted.name is not None:
            return self.noted.name
        told = self.told_tags.get(_MLFLOW + "runName")
        return self.spec.name or (told if isinstance(told, str) and told != self.id else None)

    @property
    def tags(self) -> tuple[str, ...]:
        """``best``, ``team=vision``: from the submit, from the script, from people, less those taken away."""
        told = (
            name if value in ("", True) else f"{name}={value}"
            for name, value in self.told_tags.items()
            if not name.startswith(_MLFLOW)  # what MLflow writes down for itself
        )
        given = dict.fromkeys((*self.spec.tags, *told))
        return tuple(dict.fromkeys((*(tag for tag in given if tag not in self.noted.untagged), *self.noted.tags)))

    @property
    def duration(self) -> float | None:
        if self.started is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.started)
