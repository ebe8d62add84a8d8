"""Every file name on a host, once: the root folder of a user and the folder of a run in it."""

import os
import posixpath


def _join(folder: str, *names: str) -> str:
    """A Windows client also speaks of folders on Linux machines."""
    return posixpath.join(folder, *names) if folder.startswith("/") else os.path.join(folder, *names)


def is_outside(run_id: str) -> bool:
    """Whether a script made it that ran outside a run: ``local-20261115-171703-3fa9c1``."""
    return run_id[:6] == "local-" and len(run_id) == 28 and run_id[6:14].isdigit() and run_id[15:21].isdigit()


_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def check_run_id(run_id: str) -> str:
    """The run ID, if it cannot lead out of the folder of runs; else ValueError."""
    if not run_id or run_id[0] in ".-" or not _LETTERS.issuperset(run_id):
        raise ValueError("invalid run ID %a" % run_id[:80])
    return run_id


CONTAINED = "-contained"  # at the end of the name of a spare that serves containers only


class Root:
    """The folder that holds everything of one user on one host (``~/.mlw``, or the data folder here)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.runs = _join(path, "runs")
        self.outside = _join(path, "local")  # what scripts recorded that ran outside a run
        self.blobs = _join(path, "blobs")
        self.snapshots = _join(path, "snapshots")
        self.spares = _join(path, "spares")
        self.lib = _join(path, "lib")
        self.envs = _join(path, "envs")  # <digest>/, and beside it <digest>.json, without which it does not count
        self.tools = _join(path, "tools")  # what builds environments, and Pythons that several of them share
        self.packages = _join(path, "pkgs")  # files that were sent along, by their SHA-256
        self.caches = _join(path, "cache")
        self.conda_packages = _join(self.caches, "conda-by-sha256")  # unpacked
        self.homes = _join(path, "homes")  # home folders of containers, one per project
        self.share = _join(path, "share")  # shared folders, one per project
        self.identity = _join(path, "root.json")  # names this folder: one in its place has another name
        self.clients = _join(path, "clients")  # <client ID>.json: who uses this folder

    def run(self, run_id: str) -> "RunFolder":
        return RunFolder(_join(self.outside if is_outside(run_id) else self.runs, run_id))

    def blob(self, digest: str) -> str:
        return _join(self.blobs, digest[:2], digest[2:])

    def snapshot(self, digest: str) -> str:
        return _join(self.snapshots, digest + ".json")

    def environment(self, digest: str) -> str:
        return _join(self.envs, digest)

    def package(self, sha256: str) -> str:
        return _join(self.packages, sha256)

    def spare(self, project_id: str, contained: bool = False) -> str:
        return _join(self.spares, project_id + (CONTAINED if contained else ""))


class RunFolder:
    """One run on disk; the same on every target."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.spec = _join(path, "spec.json")
        self.claim = _join(path, "claim")
        self.owner = _join(self.claim, "owner.json")
        self.handle = _join(path, "starter.json")  # of a run that was given to a scheduler
        self.lock = _join(path, "lock")
        self.work = _join(path, "work")
        self.outputs = _join(self.work, "outputs")
        self.log = _join(path, "log")
        self.supervisor_log = _join(path, "supervisor.log")
        self.events = _join(path, "events.jsonl")
        self.metrics = _join(path, "metrics")
        self.gate = _join(path, "gate.json")
        self.starting = _join(path, "starting.json")
        self.started = _join(path, "started.json")
        self.exit = _join(path, "exit.json")
        self.slot = _join(path, "exit.slot")  # takes the exit status where exit.json cannot be written
        self.cancel = _join(path, "cancel.json")
        self.stopping = _join(path, "stopping.json")
        self.heartbeat = _join(path, "heartbeat")
        self.reserve = _join(path, "reserve")
        self.manifest = _join(path, "outputs.json")
        self.placed = _join(path, "placed.json")
        self.git_diff = _join(path, "git.diff")
        self.lease = _join(path, "lease.json")  # the GPUs that it holds
        self.gpu = _join(path, "gpu.jsonl")  # what they did, sample by sample
        self.effort = _join(path, "effort.jsonl")  # what the run's own processes did, sample by sample
        self.spark = _join(path, "spark")  # what a Spark application tells of itself
        self.noted = _join(path, "noted.json")  # at home only: what people wrote on it and on the runs inside it
        self.children = _join(path, "children.jsonl")  # of a sweep: what each of its runs is
        self.home = _join(path, "home.json")  # all outputs of a run elsewhere have been brought here
        self.fetched = _join(path, "fetched")  # on the target: <client ID>.json of each client that has everything
        self.acknowledged = _join(path, "acknowledged.json")  # at home: the target has recorded the fetch
        # only where the command runs in a container
        self.container = _join(path, "container.json")  # there may be one
        self.inside = _join(path, "inside.json")  # its first process, as this machine numbers it
        self.word = _join(path, "word")  # a FIFO
        self.users = _join(path, "passwd")  # of a Spark application: Java wants to know its user's name
        self.watch = _join(path, "watch")  # a lock: held by the launcher, or by who watches in its place
        self.pull = _join(path, "pull.json")  # the image is being fetched
        self.build_log = _join(path, "build.log")


def is_taken(run: RunFolder) -> bool:
    """Whether a supervisor has claimed the run, or a scheduler has its job."""
    return os.path.exists(run.owner) or os.path.exists(run.handle)
