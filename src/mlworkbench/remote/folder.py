"""Every file name on a host, once: the root folder of a user and the folder of a run in it."""

import os


class Root:
    """The folder that holds everything of one user on one host (``~/.mlw``, or the data folder here)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.runs = os.path.join(path, "runs")
        self.blobs = os.path.join(path, "blobs")
        self.snapshots = os.path.join(path, "snapshots")
        self.spares = os.path.join(path, "spares")
        self.lib = os.path.join(path, "lib")

    def run(self, run_id: str) -> "RunFolder":
        return RunFolder(os.path.join(self.runs, run_id))

    def blob(self, digest: str) -> str:
        return os.path.join(self.blobs, digest[:2], digest[2:])

    def snapshot(self, digest: str) -> str:
        return os.path.join(self.snapshots, digest + ".json")

    def spare(self, project_id: str) -> str:
        return os.path.join(self.spares, project_id)


class RunFolder:
    """One run on disk; the same on every target."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.spec = os.path.join(path, "spec.json")
        self.claim = os.path.join(path, "claim")
        self.owner = os.path.join(self.claim, "owner.json")
        self.lock = os.path.join(path, "lock")
        self.work = os.path.join(path, "work")
        self.outputs = os.path.join(self.work, "outputs")
        self.log = os.path.join(path, "log")
        self.supervisor_log = os.path.join(path, "supervisor.log")
        self.events = os.path.join(path, "events.jsonl")
        self.metrics = os.path.join(path, "metrics")
        self.gate = os.path.join(path, "gate.json")
        self.starting = os.path.join(path, "starting.json")
        self.started = os.path.join(path, "started.json")
        self.exit = os.path.join(path, "exit.json")
        self.cancel = os.path.join(path, "cancel.json")
        self.stopping = os.path.join(path, "stopping.json")
        self.heartbeat = os.path.join(path, "heartbeat")
        self.reserve = os.path.join(path, "reserve")
        self.manifest = os.path.join(path, "outputs.json")
        self.placed = os.path.join(path, "placed.json")
        self.git_diff = os.path.join(path, "git.diff")
