"""podman: the laptop's own (as root, with storage of its own), and what a machine needs for its user's rootless one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.machines.image import IMAGE, import_image
from tests.machines.place import Place
from tests.machines.programs import call

# What works where nobody may raise limits, without systemd and without cgroup v2 (crun refuses hybrid ones).
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
    """`env` makes any podman program use this storage: `laptop.env.update(podman.env)`."""

    def __init__(self, place: Place) -> None:
        self.folder = place.folder / "podman"
        self.folder.mkdir()
        (self.folder / "containers.conf").write_text(SETTINGS)
        (self.folder / "storage.conf").write_text(STORAGE.format(folder=self.folder))
        self.env = {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            **place.marked,
        }
        self.image = IMAGE
        import_image(["env", *(f"{name}={value}" for name, value in self.env.items()), "podman"], IMAGE)

    def podman(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return call("env", *(f"{name}={value}" for name, value in self.env.items()), "podman", *words, check=check)

    def containers(self) -> list[str]:
        return self.podman("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def tidy(self) -> None:
        if names := self.containers():
            self.podman("rm", "--force", "--time", "0", *names)


def write_rootless(etc: Path, user: str) -> None:
    """On a machine: the user's ids, and the settings."""
    (etc / "containers").mkdir()
    (etc / "containers" / "containers.conf").write_text(SETTINGS)
    for name in ("subuid", "subgid"):
        (etc / name).write_text(IDS.format(user=user))
