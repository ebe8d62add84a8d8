"""podman: on the laptop (as root, with separate storage), and the setup of rootless podman on a machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.machines.image import IMAGE, import_image
from tests.machines.programs import call
from tests.machines.sandbox import Sandbox

# These settings need no systemd, no cgroup v2 (crun refuses hybrid cgroups), and no permission to raise limits.
SETTINGS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
IDS = "{user}:300000:65536\n"


class Podman:
    """podman with separate storage. With `env`, any program uses it: `laptop.env.update(podman.env)`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.folder = sandbox.folder / "podman"
        self.folder.mkdir()
        (self.folder / "containers.conf").write_text(SETTINGS)
        (self.folder / "storage.conf").write_text(STORAGE.format(folder=self.folder))
        self.env = {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            **sandbox.marked,
        }
        self.image = IMAGE
        import_image(["env", *(f"{name}={value}" for name, value in self.env.items()), "podman"], IMAGE)

    def podman(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return call("env", *(f"{name}={value}" for name, value in self.env.items()), "podman", *arguments, check=check)

    def containers(self) -> list[str]:
        return self.podman("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def clean_up(self) -> None:
        if names := self.containers():
            self.podman("rm", "--force", "--time", "0", *names)


def write_rootless(etc: Path, user: str) -> None:
    """Write the user's subordinate IDs and the settings on a machine."""
    (etc / "containers").mkdir()
    (etc / "containers" / "containers.conf").write_text(SETTINGS)
    for name in ("subuid", "subgid"):
        (etc / name).write_text(IDS.format(user=user))
