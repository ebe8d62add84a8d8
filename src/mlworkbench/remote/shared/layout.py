"""All file names on a host: a user's root folder, and the run folders in it."""

import os
import posixpath


def _join(folder: str, *names: str) -> str:
    """Join path components. A Windows client also handles paths on Linux machines.

    A status query creates the paths of hundreds of runs, so the usual case is simple.
    """
    if folder[:1] == "/" != folder[-1:]:
        return "/".join((folder, *names))
    return posixpath.join(folder, *names) if folder.startswith("/") else os.path.join(folder, *names)


def is_untracked(run_id: str) -> bool:
    """Return whether a script recorded this run without mlw. Such an ID is ``local-20261115-171703-3fa9c1``."""
    return run_id[:6] == "local-" and len(run_id) == 28 and run_id[6:14].isdigit() and run_id[15:21].isdigit()


_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def check_run_id(run_id: str) -> str:
    """Return the run ID if it is a safe folder name. Raise ValueError otherwise."""
    if not run_id or run_id[0] in ".-" or not _ID_CHARACTERS.issuperset(run_id):
        raise ValueError("invalid run ID %a" % run_id[:80])
    return run_id


# Files in metrics/ that a supervisor writes, in the order of precedence. The in-run library writes all other files.
EXTERNAL_METRICS = MLFLOW_METRICS, WANDB_METRICS, TENSORBOARD_METRICS, PRINTED_METRICS = (
    "mlflow",
    "wandb",
    "tensorboard",
    "spoken",
)
MLFLOW_DATABASE = "mlflow/mlflow.db"  # below outputs/: traces and registered models of a script that uses MLflow
CONTAINED = "-contained"  # suffix of a warm copy for containers only


class Root:
    """The folder for all of a user's files on a host (``~/.mlw``, or the client's data folder)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.runs = _join(path, "runs")
        self.untracked_runs = _join(path, "local")  # runs of scripts that were started without mlw
        self.blobs = _join(path, "blobs")
        self.snapshots = _join(path, "snapshots")
        self.warm_copies = _join(path, "spares")
        self.lib = _join(path, "lib")
        self.envs = _join(path, "envs")  # <digest>/, and <digest>.json once it is complete
        self.tools = _join(path, "tools")  # build tools, and interpreters shared by environments
        self.packages = _join(path, "pkgs")  # uploaded files, by SHA-256
        self.caches = _join(path, "cache")
        self.conda_packages = _join(self.caches, "conda-by-sha256")  # unpacked
        self.homes = _join(path, "homes")  # container home folders, one per project
        self.share = _join(path, "share")  # shared folders, one per project
        self.identity = _join(path, "root.json")  # identifies this folder: a replacement has a different ID
        self.clients = _join(path, "clients")  # <client ID>.json: clients that use this folder

    def run(self, run_id: str) -> "RunFolder":
        return RunFolder(_join(self.untracked_runs if is_untracked(run_id) else self.runs, run_id))

    def blob(self, digest: str) -> str:
        return _join(self.blobs, digest[:2], digest[2:])

    def snapshot(self, digest: str) -> str:
        return _join(self.snapshots, digest + ".json")

    def environment(self, digest: str) -> str:
        return _join(self.envs, digest)

    def package(self, sha256: str) -> str:
        return _join(self.packages, sha256)

    def warm_copy(self, project_id: str, contained: bool = False) -> str:
        return _join(self.warm_copies, project_id + (CONTAINED if contained else ""))


class RunFolder:
    """The paths of a run's files. The layout is the same on every target.

    The first attempt has its markers in the run folder itself, as in earlier versions. Each further
    attempt has its own in ``attempts/<number>``. All other files are shared by all attempts.
    """

    def __init__(self, path: str, attempt: int = 1) -> None:
        self.path = path
        self.attempt = attempt
        self.attempts = _join(path, "attempts")
        self._set_markers(path if attempt == 1 else _join(self.attempts, "%d" % attempt))
        self.spec = _join(path, "spec.json")
        self.handle = _join(path, "starter.json")  # only if submitted to a scheduler
        self.lock = _join(path, "lock")
        self.work = _join(path, "work")
        self.outputs = _join(self.work, "outputs")
        self.log = _join(path, "log")
        self.supervisor_log = _join(path, "supervisor.log")
        self.events = _join(path, "events.jsonl")
        self.metrics = _join(path, "metrics")
        self.checkpoints = _join(path, "checkpoints")  # survives attempts
        self.checkpoint_list = _join(path, "checkpoints.json")  # their digests, from the last request
        self.cancel = _join(path, "cancel.json")
        self.heartbeat = _join(path, "heartbeat")
        self.reserve = _join(path, "reserve")
        self.manifest = _join(path, "outputs.json")
        self.placed = _join(path, "placed.json")
        self.git_diff = _join(path, "git.diff")
        self.lease = _join(path, "lease.json")  # GPUs that the run holds
        self.gpu = _join(path, "gpu.jsonl")  # samples of these GPUs
        self.usage_samples = _join(path, "effort.jsonl")  # samples of the run's own processes
        self.spark = _join(path, "spark")  # event log of a Spark application
        self.annotations = _join(path, "noted.json")  # client only: names, tags, and notes of the run and nested runs
        self.children = _join(path, "children.jsonl")  # child runs of a sweep
        self.fetch_marker = _join(path, "home.json")  # client only: all outputs of a remote run were fetched
        self.fetched = _join(path, "fetched")  # target only: <client ID>.json for each client that fetched everything
        self.acknowledged = _join(path, "acknowledged.json")  # client only: the target has recorded the fetch
        # Most of the following files exist only if the command runs in a container.
        self.container = _join(path, "container.json")  # exists if there may be a container
        self.passwd = _join(path, "passwd")  # for Spark applications: Java looks up the user name
        self.pull = _join(path, "pull.json")  # exists while the image is being pulled
        self.build_log = _join(path, "build.log")

    def _set_markers(self, markers: str) -> None:
        self.claim = _join(markers, "claim")
        self.owner = _join(self.claim, "owner.json")
        self.start_decision = _join(markers, "gate.json")
        self.starting = _join(markers, "starting.json")
        self.started = _join(markers, "started.json")
        self.exit = _join(markers, "exit.json")
        self.slot = _join(markers, "exit.slot")  # exit status, if exit.json cannot be written
        self.stopping = _join(markers, "stopping.json")
        self.watcher_lock = _join(markers, "watch")  # a lock, held by the launcher or its replacement
        self.container_process = _join(
            markers, "inside.json"
        )  # first process in the container, with its PID on this machine
        self.start_fifo = _join(markers, "word")  # a FIFO for the start signal
        self.ranks = _join(markers, "ranks")  # how each process of a launcher such as torchrun ended

    def at(self, attempt: int) -> "RunFolder":
        """Return the paths for another attempt of this run."""
        return RunFolder(self.path, attempt)

    @property
    def packages(self) -> str:
        """Path of the list of packages of an existing Python, which has no lock file."""
        return _join(self.metrics, "packages")


def is_claimed(run: RunFolder) -> bool:
    """Return whether a supervisor has claimed the run, or a scheduler has accepted its job."""
    return os.path.exists(run.owner) or os.path.exists(run.handle)
