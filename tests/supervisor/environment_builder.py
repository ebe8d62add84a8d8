"""A target on which the real builder builds environments as a separate process, from packages created by the tests."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import mlworkbench.remote as remote
from mlworkbench.environments.pinned_tools import Installer, find_tools
from mlworkbench.environments.platforms import Platform
from mlworkbench.remote.environments.build_tools import provide_tool, store_package
from mlworkbench.remote.environments.environment_state import discard
from mlworkbench.remote.shared.environment_layout import digest_of
from mlworkbench.remote.shared.layout import Root
from tests.machines.channel import Channel

PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
VERSION = "{}.{}.{}".format(*sys.version_info[:3])
# Runs only the build step of the supervisor.
_DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from remote.environments.build import ensure
from remote.shared.layout import Root
from remote.environments.build_tools import NoEnvironment
with open(sys.argv[3]) as file:
    lock = json.load(file)
def say(text):
    print(text, flush=True)
try:
    print("prefix", ensure(Root(sys.argv[2]), lock, sys.argv[4], say))
except NoEnvironment as error:
    print("failed:", error)
    sys.exit(3)
"""


class EnvironmentBuilder:
    """A target's root folder with the build tools. Tests write their lock files themselves."""

    def __init__(self, folder: Path, toolbox: Path) -> None:
        self.folder = folder
        self.toolbox = toolbox
        self.root = folder / "root"
        self.root.mkdir(mode=0o700)
        (self.root / "tools").symlink_to(toolbox / "tools")
        self._tools = json.loads((toolbox / "tools.json").read_text())
        self.log = folder / "build.log"
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}

    def wheel(self, name: str, files: dict[str, str], version: str = "1.0", scripts: str = "") -> dict[str, Any]:
        """Create and upload a wheel, and return its entry for a lock file."""
        path = self.folder / f"{name}-{version}-py3-none-any.whl"
        info = f"{name}-{version}.dist-info"
        content = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        if scripts:
            content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n"
        rows = [f"{one},sha256={_digest(text)},{len(text.encode())}" for one, text in content.items()]
        with zipfile.ZipFile(path, "w") as wheel:
            for one, text in content.items():
                wheel.writestr(one, text)
            wheel.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
        return {"name": name, "version": version, "file": path.name, **self._sent(path)}

    def channel(self, channel: Channel) -> list[dict[str, Any]]:
        """Upload all packages of a channel, and return their entries for a lock file."""
        packages = []
        for subdir in ("linux-64", "noarch"):
            data = json.loads((channel.folder / subdir / "repodata.json").read_text())
            for file, record in {**data["packages"], **data["packages.conda"]}.items():
                packages.append({**record, "file": file, **self._sent(channel.folder / subdir / file)})
        return packages

    def _sent(self, path: Path) -> dict[str, Any]:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        store_package(Root(str(self.root)), sha256, str(path))
        return {"sha256": sha256, "size": path.stat().st_size}

    def own_tools(self) -> None:
        """Replace the shared tools folder with a copy that the test can extend. The copied files are hard links."""
        (self.root / "tools").unlink()
        shutil.copytree(self.toolbox / "tools", self.root / "tools", copy_function=os.link, symlinks=True)

    def discard(self) -> None:
        """Remove all environments. pytest cannot, because they are write-protected."""
        for prefix in [*(self.root / "envs").glob("*")] if (self.root / "envs").exists() else ():
            if prefix.is_dir():
                discard(str(prefix))

    def lock(self, pip: Any = (), conda: Any = (), **python: Any) -> dict[str, Any]:
        given = python or ({"source": "conda"} if conda else {"source": "host", "path": PYTHON})
        lock: dict[str, Any] = {
            "kind": "managed",
            "format": 1,
            "platform": "linux-64",
            "python": {"version": VERSION, **given},
            "conda": list(conda),
            "pip": list(pip),
            "tools": self._tools,
        }
        lock["digest"] = digest_of(lock)
        (self.folder / f"{lock['digest']}.json").write_text(json.dumps(lock))
        return lock

    def replace_uv(self, script: str) -> None:
        """Replace uv with a script of the test."""
        uv = next(tool for tool in self._tools if tool["name"] == "uv")
        folder = self.root / "tools" / f"uv-{uv['version']}-{uv['sha256'][:32]}"
        (self.root / "tools").unlink()
        folder.mkdir(parents=True)
        (folder / "uv").write_text(script)
        (folder / "uv").chmod(0o755)

    def prefix(self, lock: dict[str, Any]) -> Path:
        return self.root / "envs" / str(lock["digest"])

    def start(self, lock: dict[str, Any], **more: Any) -> subprocess.Popen[str]:
        path = self.folder / f"{lock['digest']}.json"
        arguments = ["-c", _DRIVER, str(Path(remote.__file__).parents[1]), str(self.root), str(path), str(self.log)]
        python = more.pop("python", PYTHON)
        wrapper = more.pop("wrapper", ())
        return subprocess.Popen(
            [*wrapper, python, "-I", "-S", *arguments],
            env={**self.env, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def build(self, lock: dict[str, Any], **more: Any) -> tuple[int, str]:
        """Build an environment and return the exit code and the output."""
        process = self.start(lock, **more)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def python(self, lock: dict[str, Any], code: str) -> str:
        done = subprocess.run([self.prefix(lock) / "bin" / "python", "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def leftovers(self) -> list[str]:
        """Return the names in envs/ that belong to no complete environment and are not lock files."""
        names = sorted(os.listdir(self.root / "envs"))
        whole = {name[:-5] for name in names if name.endswith(".json")}
        return [name for name in names if not name.endswith((".lock", ".use")) and name.split(".")[0] not in whole]


def make_toolbox(folder: Path) -> Path:
    """Fetch uv and py-rattler as on a target, once for all tests."""
    environ = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    where = Installer(Platform("linux-64", "2.28"), VERSION)
    tools, files = find_tools(where, conda=True, cache=folder, environ=environ, report=print)
    for sha256, path in files.items():
        store_package(Root(str(folder)), sha256, str(path))
    for tool in tools:
        provide_tool(Root(str(folder)), {"tools": tools}, tool["name"])
    (folder / "tools.json").write_text(json.dumps(tools))
    return folder


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
