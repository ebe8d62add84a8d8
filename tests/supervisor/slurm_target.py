"""A target whose runs are jobs of a real Slurm cluster, without a client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlworkbench.remote.shared.untrusted_json import parse_json
from mlworkbench.testing.target_folder import PROGRAM, TargetFolder
from mlworkbench.testing.waiting import wait_until
from tests.machines.slurm import LONG, USERS, SlurmCluster

SLEEPING = "import time; print('up', flush=True); time.sleep(1000)"
_STATUSES = """
import sys, json
sys.path.insert(0, sys.argv[1])
from remote.shared.layout import Root
from remote.starters.starter import read_statuses
print(json.dumps(read_statuses(Root(sys.argv[2]), sys.argv[3:])))
"""


class SlurmTarget(TargetFolder):
    """The folder of user ada on the cluster. The program on the target runs on the login machine."""

    def __init__(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm
        folder = slurm.homes.home("ada") / "target"
        super().__init__(folder)
        self.python = "/usr/bin/python3"
        self.program = folder / "lib" / "remote"
        shutil.copytree(PROGRAM, self.program, ignore=shutil.ignore_patterns("__pycache__"))
        self.root.mkdir()
        self.hand_over()

    def hand_over(self) -> None:
        subprocess.run(["chown", "-R", str(USERS["ada"]), str(self.root.parent)], check=True)

    def add(self, run_id: str, script: str = SLEEPING, *, lock: Any = None, **scheduler: Any) -> Path:
        """Write a run for Slurm. ``scheduler``: what the run requests, and the keys of the spec in ``spec``."""
        changes = {"python": self.python, "grace": 5.0, **scheduler.pop("spec", {})}
        return self.add_run(run_id, script, starter="slurm", scheduler=scheduler, lock=lock, **changes)

    def submit(self, run_id: str, script: str = SLEEPING, **scheduler: Any) -> Path:
        """Write a run and start it."""
        run = self.add(run_id, script, **scheduler)
        assert self.start(run_id) == {"ok": True, "claimed": True}
        return run

    def call(self, verb: str, run_id: str, *words: str, **more: Any) -> dict[str, Any]:
        variables = [f"{name}={value}" for name, value in more.get("env", {}).items()]
        program = [self.python, "-I", "-S", str(self.program / "__main__.py")]
        message = json.dumps(more.get("message") or {})
        done = self.slurm.run(
            "env", *variables, *program, verb, str(self.root), run_id, *words, text=message, check=False
        )
        assert done.stdout, done.stderr
        return dict(parse_json(done.stdout))

    def statuses(self, *run_ids: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the status of runs, as one request of a client gets it."""
        arguments = [str(self.program.parent), str(self.root), *run_ids]
        variables = [f"{name}={value}" for name, value in (env or {}).items()]
        done = self.slurm.run("env", *variables, self.python, "-I", "-S", "-c", _STATUSES, *arguments)
        return dict(parse_json(done.stdout))

    def impatient(self) -> dict[str, str]:
        """Return variables with which Slurm's programs soon give up when the controller does not respond."""
        conf = self.root.parent / "slurm.conf"
        conf.write_text((self.slurm.login.root / "etc/slurm/slurm.conf").read_text() + "MessageTimeout=1\n")
        return {"SLURM_CONF": str(conf)}

    def status(self, run: Path) -> dict[str, Any]:
        return dict(self.statuses(run.name)[run.name])

    def adopt(self, run: Path) -> str:
        """Ask about a run until there is nothing left to ask."""
        return str(wait_until(lambda: self._conclude(run), LONG))

    def _conclude(self, run: Path) -> str | None:
        state = self.call("adopt", run.name)["state"]
        return state if state in ("adopted", "finished") else None

    def job(self, run: Path) -> str:
        return str(parse_json((run / "slurm.json").read_bytes())["job"])

    def wait_running(self, *runs: Path) -> None:
        """Wait until the scripts have started."""
        for run in runs:
            wait_until(lambda run=run: "up" in read(run / "log"), LONG)  # type: ignore[misc]

    def restart(self, run: Path, node: str) -> None:
        """Wait until Slurm has requeued the job of a run, and let it start on another node without delay.

        The same node would refuse it until the credential of the first start has expired.
        """
        job = self.job(run)
        wait_until(lambda: (fields := self.slurm.job(job))["Restarts"] == "1" and fields["JobState"] == "PENDING", LONG)
        self.slurm.admin("scontrol", "update", f"JobId={job}", f"ReqNodeList={node}", "StartTime=now")

    def node(self, run: Path) -> str:
        nodes = self.status(run)["nodes"]
        assert len(nodes) == 1
        return str(nodes[0])

    def end(self, run: Path) -> tuple[str, str | None]:
        """Wait for the end of a run and return its ending and cause."""
        finished = self.wait_for_end(run, LONG)
        return finished["ending"], finished["cause"]

    def attempts(self, run: Path) -> list[tuple[int, str]]:
        """Return the number and ending of each attempt that another one follows."""
        ended = [event["data"] for event in self.events(run) if event["kind"] == "attempt_ended"]
        return [(data["attempt"], data["ending"]) for data in ended]

    def secrets_left(self, secret: bytes) -> list[str]:
        """Return the files below the target's folder that contain a secret."""
        files = [path for path in self.root.parent.rglob("*") if path.is_file() and not path.is_symlink()]
        return [os.path.relpath(path, self.root) for path in files if secret in path.read_bytes()]


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
