"""Build source packages, which executes their code. For a run in a container, use the run's image.

The same applies to the Python of conda packages, which the project chooses: it compiles bytecode in
the image.

Each package is built in its own container, to a wheel in its own folder. The wheel is then
installed without running any code. The container can access the environment's Python and uv, both
read-only, and that folder. It cannot access runs, the home folder, shared folders, or caches: cache
files are hard links, so changing them would change the environments of other projects.
"""

from __future__ import annotations

import os
import re
import shutil
import stat

from ..engine import Engine, build_command
from ..image_facts import find_python as python_of_image
from ..shared.environment_layout import prefix_of, python_home, python_of
from ..shared.failpoint import failpoint
from ..shared.folder_tree import FOLDER, NOFOLLOW, READ
from ..shared.layout import Root
from .build_tools import CERTIFICATES, SUBMIT_AGAIN, NoEnvironment, get_package
from .bytecode import compile_command, move_compiled
from .image_environments import image_id
from .image_pull import pull_image
from .mirrors import index_variables

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Lock = Dict[str, Any]
    Run = Callable[..., None]
    Report = Callable[[str], None]

_UNLOCKED_HINT = "submit again without --locked"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_WHEEL = re.compile(r"([A-Za-z0-9._]+)-[A-Za-z0-9._!+]+-[A-Za-z0-9._]+-[A-Za-z0-9._]+-[A-Za-z0-9._]+\.whl")


def sources_of(lock: Lock) -> "List[Dict[str, Any]]":
    """Return the pip packages that must be built."""
    return [package for package in lock["pip"] if package.get("git") or not file_name(package).endswith(".whl")]


def file_name(package: "Dict[str, Any]") -> str:
    address = str(package.get("url") or "").split("?")[0].split("#")[0]
    return os.path.basename(str(package.get("file") or address.rsplit("/", 1)[-1].replace("%2B", "+")))


def check_build_location(lock: Lock, image: "Optional[str]") -> None:
    """Raise NoEnvironment unless the lock is for builds in this run's image or on this machine."""
    python = lock["python"]
    if image and python["source"] == "host":
        text = "the lock file uses %s, a program on this machine, which containers cannot start"
        raise NoEnvironment(text % python.get("path"), _UNLOCKED_HINT)
    if lock.get("built_in") == image:
        return
    names = ", ".join(str(package["name"]) for package in sources_of(lock))
    where = "image %s" % image if image else "this machine"
    if names:
        text = "%s must be built from source, and the lock file was not created for %s"
        raise NoEnvironment(text % (names, where), _UNLOCKED_HINT)
    if lock["conda"]:
        text = "the environment uses Python from conda, and the lock file was not created for %s"
        raise NoEnvironment(text % where, _UNLOCKED_HINT)


class ImageBuilds:
    """Builds for one environment in a container's image. ``password`` is for the image's registry."""

    def __init__(
        self, root: Root, lock: Lock, container: "Dict[str, Any]", password: "Optional[str]", log: str, report: Report
    ) -> None:
        self._root = root
        self._lock = lock
        self.image = str(container["image"])
        self.image_id: Optional[str] = None  # set by ``pull``
        self._engine = Engine(dict(container, name="mlw-build-%s" % str(lock["digest"])[:32]))
        self._password = password
        self._log = log
        self._report = report

    def wheels(self, scratch: str, uv: "Callable[[], str]", run: Run) -> "Dict[str, str]":
        """Return the wheels of the source packages by name.

        Call this before the installation, because a build must not see installed packages. ``run`` runs
        a program and logs its output.
        """
        wheels: Dict[str, str] = {}
        for number, package in enumerate(sources_of(self._lock)):
            self._report("building %s from source in image %s" % (package["name"], self.image))
            wheels[str(package["name"])] = self._wheel(os.path.join(scratch, "source-%d" % number), package, uv(), run)
            failpoint("env-source")
        return wheels

    def pull(self) -> None:
        """Pull the image and pin its ID, so that all builds use the same content. Call this before any build."""
        problem = pull_image(self._engine.container, self._log, self._report, self._password)
        if problem:
            raise NoEnvironment(**problem)
        self.image_id = image_id(self._engine.container)
        if not self.image_id:
            raise NoEnvironment("the container engine returned no ID for image %s" % self.image)
        self._engine = Engine(dict(self._engine.container, image=self.image_id))

    def python(self) -> "Optional[str]":
        """Return the Python version in the image; None if the image is not present or has no Python."""
        return python_of_image(self._engine, self.image_id or self.image)

    def _wheel(self, work: str, package: "Dict[str, Any]", uv: str, run: Run) -> str:
        for name in ("in", "out", "home", "cache", "tmp"):
            os.makedirs(os.path.join(work, name), 0o700)
        source = self._source(package, os.path.join(work, "in"), run)
        container, prefix = self._engine.container, prefix_of(self._root, self._lock)
        read_only = [prefix, python_home(self._root, self._lock), os.path.dirname(uv)]
        mounts = [[folder, folder, "ro"] for folder in read_only if folder] + [[work, work, "rw"]]
        command = [uv, "build", "--wheel", "--no-config", "--no-create-gitignore", "--python", python_of(prefix)]
        command += ["--out-dir", os.path.join(work, "out"), source]
        environment = dict(_build_variables(work), **index_variables(self._lock))
        try:
            self._run_inside(work, build_command(container, mounts, environment, command), run)
        except NoEnvironment as error:
            text = "%s cannot be built from source in image %s: %s"
            inner = error.failure
            raise NoEnvironment(text % (package["name"], self.image, inner["message"]), inner["hint"]) from None
        return _copy_wheel(package, os.path.join(work, "out"), work + ".wheel")

    def compile(self, library: str, scratch: str, run: Run) -> None:
        """Compile bytecode with the environment's own Python, in a container that cannot write to it.

        ``library`` is its ``lib/python3.x``. The files are hard links to files in the cache, so the
        container must not be able to write to them.
        """
        work, prefix = os.path.join(scratch, "bytecode"), prefix_of(self._root, self._lock)
        out, folder = os.path.join(work, "out"), os.path.join(prefix, library)
        for name in ("out", "home", "tmp"):
            os.makedirs(os.path.join(work, name), 0o700)
        mounts = [[prefix, prefix, "ro"], [work, work, "rw"]]
        compile_arguments = compile_command(python_of(prefix), folder, out)
        command = build_command(
            self._engine.container, mounts, _build_variables(work), compile_arguments, network="none"
        )
        self._run_inside(work, command, run, check=False)
        move_compiled(folder, out)

    def _run_inside(self, folder: str, command: "List[str]", run: Run, check: bool = True) -> None:
        """Run a command in a container that can write to ``folder``."""
        self._engine.remove()  # a killed builder may have left its container
        try:
            run(command, environ=self._engine.environment(), check=check)
        finally:
            is_removed = self._engine.remove()
            if is_removed:
                _make_readable(folder)
        if not is_removed:  # a running container could change its files while they are read
            raise NoEnvironment("the container engine does not respond", SUBMIT_AGAIN)

    def _source(self, package: "Dict[str, Any]", folder: str, run: Run) -> str:
        """Return the archive or checkout, fetched on the host without running any of its code."""
        if not package.get("git"):
            path = os.path.join(folder, file_name(package))
            shutil.copyfile(get_package(self._root, package), path)
            return path
        path = os.path.join(folder, "checkout")
        git = ["git", "-c", "core.hooksPath=/dev/null"]
        run([*git, "clone", "--quiet", "--no-checkout", "--", str(package["git"]), path])
        run([*git, "-C", path, "checkout", "--quiet", "--detach", str(package["commit"])])
        run([*git, "-C", path, "submodule", "--quiet", "update", "--init", "--recursive"])
        return os.path.join(path, str(package["folder"])) if package.get("folder") else path


def _copy_wheel(package: "Dict[str, Any]", folder: str, target: str) -> str:
    """Copy the wheel from a folder that the build could write to.

    The wheel must be a regular file with a valid name.
    """
    handle = os.open(folder, FOLDER | NOFOLLOW)
    try:
        names = [name for name in os.listdir(handle) if name.endswith(".whl")]
        match = _WHEEL.fullmatch(names[0]) if len(names) == 1 else None
        if not match or re.sub(r"[-_.]+", "-", match.group(1)).lower() != package["name"]:
            raise NoEnvironment("building %s produced no wheel" % package["name"])
        os.mkdir(target, 0o700)
        with os.fdopen(os.open(names[0], READ | os.O_NONBLOCK, dir_fd=handle), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise NoEnvironment("building %s produced no wheel" % package["name"])
            with open(os.path.join(target, names[0]), "xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
    finally:
        os.close(handle)
    return os.path.join(target, names[0])


def _build_variables(folder: str) -> "Dict[str, str]":
    """Return the variables for the container. A proxy URL with a password is omitted."""
    variables = {
        "HOME": os.path.join(folder, "home"),
        "TMPDIR": os.path.join(folder, "tmp"),
        "UV_CACHE_DIR": os.path.join(folder, "cache"),
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
    }
    for name in _PROXIES:
        value = os.environ.get(name) or os.environ.get(name.upper()) or ""
        if value and "@" not in value:
            variables[name] = value
    bundle = os.environ.get("SSL_CERT_FILE") or next((path for path in CERTIFICATES if os.path.exists(path)), None)
    if bundle and os.path.isfile(bundle):  # images often lack certificates
        variables["SSL_CERT_FILE"] = os.path.join(folder, "certificates.pem")
        shutil.copyfile(bundle, variables["SSL_CERT_FILE"])
    return variables


def _make_readable(folder: str) -> None:
    """Restore permissions that a build removed from its files, so that they can be read and removed."""
    pending = [folder]
    while pending:
        path = pending.pop()
        os.chmod(path, 0o700)
        with os.scandir(path) as listing:
            pending += [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]
