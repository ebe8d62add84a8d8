"""Shared helpers for documentation tests: machines with the names that the pages use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.machines.laptop import Laptop
from tests.machines.machine import Machine
from tests.machines.network import wait_until
from tests.machines.nvml import FakeGpus
from tests.machines.pages import chown

GIB = 1 << 30
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Thu Jan  1 00:00:00 UTC 2026\n"
Test = TypeVar("Test", bound=Callable[..., Any])
INSTALL = 'python3 -m venv ~/mlw && ~/mlw/bin/pip install . && export PATH="$PATH:$HOME/mlw/bin"'
TEAM_EXPORT = "mlw history export --mlflow http://tracking.lab:5000 --experiment team"
YARN = "mlw computetarget attach cluster --name my_yarn --address edge --username ada --master yarn"
# Pages that tests/e2e/test_documentation_pages.py follows from top to bottom.
FOLLOWED_PAGES = (
    "README.md",
    "docs/how-to/attach-by-key.md",
    "docs/how-to/ci.md",
    "docs/how-to/from-azure-ml-workbench.md",
    "docs/how-to/from-mlflow-run.md",
    "docs/how-to/from-skypilot-dstack.md",
    "docs/how-to/gpus.md",
    "docs/how-to/hugging-face-caches.md",
    "docs/how-to/jump-host.md",
    "docs/how-to/metrics.md",
    "docs/how-to/mlflow.md",
    "docs/how-to/move-history.md",
    "docs/how-to/offline-target.md",
    "docs/how-to/plugins.md",
    "docs/how-to/private-registry.md",
    "docs/how-to/shared-data.md",
    "docs/how-to/spark.md",
    "docs/how-to/sweeps.md",
    "docs/how-to/team.md",
    "docs/how-to/upgrade-uninstall.md",
    "docs/how-to/wandb.md",
    "docs/index.md",
    "docs/tutorial/first-gpu-run.md",
    "docs/tutorial/samples.md",
)
# Pages whose commands are run by separate tests.
PAGES_WITH_OWN_TESTS = {
    "docs/api.md": "tests/e2e/test_ui_api.py asks a server as the page says",
    "docs/how-to/add-a-compute-type.md": "tests/e2e/test_sshscript.py does what the page says",
    "docs/how-to/slurm.md": "tests/e2e/test_slurm.py types the commands of the page",
    "docs/how-to/test-a-plugin.md": "tests/e2e/test_examples.py runs the tests of the page",
}


# Commands that are not run: (page, command) → reason.
NOT_RUN = {
    ("README.md", "make demo"): "tests of scripts/demo run it",
    ("README.md", "make test"): "it runs these tests",
    ("README.md", INSTALL): "docs/index.md says the same, and there it is run",
    ("docs/how-to/upgrade-uninstall.md", "~/mlw/bin/pip install --upgrade ."): "docs/index.md installs it the same way",
    ("docs/how-to/team.md", TEAM_EXPORT): "docs/how-to/mlflow.md has a server, and exports to it",
    ("docs/how-to/spark.md", "ssh -L 4040:127.0.0.1:4040 ada@edge"): "a tunnel to a page of Spark's own",
    ("docs/how-to/spark.md", YARN): "there is no YARN",
    ("docs/how-to/spark.md", "mlw computetarget check my_cluster"): "tests/e2e/test_attach_cluster.py checks one",
    (
        "docs/how-to/spark.md",
        "mlw experiment prepare -c my_cluster",
    ): "tests/e2e/test_spark_archive.py prepares for one",
    ("docs/how-to/spark.md", "mlw submit --dry-run sweep.py"): "wants Spark; tests/e2e/test_spark.py has one",
    ("docs/how-to/from-azure-ml-workbench.md", "mlw …"): "stands for all commands",
}


def follows_page(name: str) -> Callable[[Test], Test]:
    """Mark a test that follows this page from top to bottom."""

    def mark(test: Test) -> Test:
        test.follows = name  # type: ignore[attr-defined]
        return test

    return mark


def add_ssh_alias(laptop: Laptop, name: str, host: Machine) -> None:
    """Add a host to the user's ssh configuration, so that ssh reaches the machine by this name with its key."""
    path = laptop.ssh_folder / "config"
    before = path.read_text() if path.exists() else ""
    lines = [f"Host {name}", f"  HostName {host.address}", f"  User {host.user}", f"  IdentityFile {host.key}"]
    lines += [f"  UserKnownHostsFile {laptop.ssh_folder}/known_hosts", ""]
    laptop.ssh_config(before + "\n".join(lines))


def add_fake_gpus(host: Machine, count: int) -> FakeGpus:
    """Give the machine simulated GPUs, visible through its driver library."""
    gpus = FakeGpus(host.home)
    for _ in range(count):
        gpus.add(f"GPU-{os.urandom(6).hex()}", memory=(140 * GIB, 0), name="NVIDIA H200", utilisation=0)
    chown(gpus.folder, host.uid)
    start_file = host.home / ".bashrc"
    exports = "".join(f"export {name}={value}\n" for name, value in gpus.env_nvml_only.items())
    start_file.write_text(exports + (start_file.read_text() if start_file.exists() else ""))
    where = "/proc/driver/nvidia"  # the kernel reports the loaded driver in this folder
    host.run("sh", "-c", f"mount -t tmpfs none /proc/driver && mkdir {where} && cat >{where}/version", text=DRIVER)
    return gpus


@contextmanager
def mlflow_server(python: Path, place: Path) -> Iterator[str]:
    """Run a real MLflow server with its own database and yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    arguments = [
        "--backend-store-uri",
        f"sqlite:///{place}/store.db",
        "--artifacts-destination",
        str(place / "artifacts"),
    ]
    with (place / "log").open("wb") as log:
        started = subprocess.Popen(
            [python, "-m", "mlflow", "server", *arguments, "--port", str(port), "--workers", "1"],
            stdout=log,
            stderr=log,
            cwd=place,
            env={
                "PATH": f"{python.parent}:/usr/bin:/bin",
                "HOME": str(place),
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves nine processes that no test needs
            },
            start_new_session=True,
        )
    try:
        wait_until(lambda: started.poll() is not None or _is_healthy(port), "MLflow", 300)
        assert started.poll() is None, (place / "log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
