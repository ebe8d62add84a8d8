"""Source packages: building one runs its own code. For a run in a container that happens inside the run's image.

The same holds for the Python of conda packages, which the project chooses: it compiles bytecode inside the image.

Each package is built in a container of its own, to a wheel in a folder of its own; the wheel is then installed like any
other, without running anything. The container sees the environment's Python and uv, both read-only, and that folder:
no run, no home, no shared folder, and no cache, because a build that could change the files in there, which are hard
links, would change the environments of other projects.
"""

from __future__ import annotations

import os
import re
import shutil
import stat

from ..engine import Engine, build_command
from ..images import python_in as python_of_image
from ..shared.environment_layout import prefix_of, python_home, python_of
from ..shared.failpoint import failpoint
from ..shared.layout import Root
from ..shared.tree import FOLDER, NOFOLLOW, READ
from .built_in import image_id
from .bytecode import adopt, compile_command
from .mirrors import index_variables
from .pulling import pull_image
from .tools import AGAIN, CERTIFICATES, NoEnvironment, get

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Lock = Dict[str, Any]
    Run = Callable[..., None]
    Say = Callable[[str], None]

_UNLOCKED = "submit again without --locked"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_WHEEL = re.compile(r"([A-Za-z0-9._]+)-[A-Za-z0-9._!+]+-[A-Za-z0-9._]+-[A-Za-z0-9._]+-[A-Za-z0-9._]+\.whl")


def sources_of(lock: Lock) -> "List[Dict[str, Any]]":
    """The pip packages that have to be built."""
    return [one for one in lock["pip"] if one.get("git") or not file_name(one).endswith(".whl")]


def file_name(one: "Dict[str, Any]") -> str:
    address = str(one.get("url") or "").split("?")[0].split("#")[0]
    return os.path.basename(str(one.get("file") or address.rsplit("/", 1)[-1].replace("%2B", "+")))


def check_place(lock: Lock, image: "Optional[str]") -> None:
    """Raise NoEnvironment unless the lock says that its own code runs where this run is: in its image, or here."""
    python = lock["python"]
    if image and python["source"] == "host":
        text = "the lock file uses %s, a program on this machine, which containers cannot start"
        raise NoEnvironment(text % python.get("path"), _UNLOCKED)
    if lock.get("built_in") == image:
        return
    names = ", ".join(str(one["name"]) for one in sources_of(lock))
    where = "image %s" % image if image else "this machine"
    if names:
        text = "%s must be built from source, and the lock file was not created for %s"
        raise NoEnvironment(text % (names, where), _UNLOCKED)
    if lock["conda"]:
        text = "the environment uses Python from conda, and the lock file was not created for %s"
        raise NoEnvironment(text % where, _UNLOCKED)


class ImageBuilds:
    """The builds for one environment in the image of a container; ``password``: of the image's registry."""

    def __init__(
        self, root: Root, lock: Lock, container: "Dict[str, Any]", password: "Optional[str]", log: str, say: Say
    ) -> None:
        self._root = root
        self._lock = lock
        self.image = str(container["image"])
        self.image_id: Optional[str] = None  # known once it was pulled
        self._engine = Engine(dict(container, name="mlw-build-%s" % str(lock["digest"])[:32]))
        self._password = password
        self._log = log
        self._say = say

    def wheels(self, scratch: str, uv: "Callable[[], str]", run: Run) -> "Dict[str, str]":
        """Wheels of the source packages by name. To be had before others are installed: a build must not see those.

        ``run`` runs a program with its output in the log.
        """
        found: Dict[str, str] = {}
        for number, one in enumerate(sources_of(self._lock)):
            self._say("building %s from source in image %s" % (one["name"], self.image))
            found[str(one["name"])] = self._wheel(os.path.join(scratch, "source-%d" % number), one, uv(), run)
            failpoint("env-source")
        return found

    def pull(self) -> None:
        """Have the image, and hold on to its content: all builds run in the image of this ID. To be called first."""
        problem = pull_image(self._engine.container, self._log, self._say, self._password)
        if problem:
            raise NoEnvironment(**problem)
        self.image_id = image_id(self._engine.container)
        if not self.image_id:
            raise NoEnvironment("the container engine returned no ID for image %s" % self.image)
        self._engine = Engine(dict(self._engine.container, image=self.image_id))

    def python(self) -> "Optional[str]":
        """Version of the Python that the image has of its own; None: the image is not here, or has none."""
        return python_of_image(self._engine, self.image_id or self.image)

    def _wheel(self, place: str, one: "Dict[str, Any]", uv: str, run: Run) -> str:
        for name in ("in", "out", "home", "cache", "tmp"):
            os.makedirs(os.path.join(place, name), 0o700)
        source = self._source(one, os.path.join(place, "in"), run)
        container, prefix = self._engine.container, prefix_of(self._root, self._lock)
        seen = [prefix, python_home(self._root, self._lock), os.path.dirname(uv)]
        mounts = [[folder, folder, "ro"] for folder in seen if folder] + [[place, place, "rw"]]
        words = [uv, "build", "--wheel", "--no-config", "--no-create-gitignore", "--python", python_of(prefix)]
        words += ["--out-dir", os.path.join(place, "out"), source]
        environment = dict(_environment(place), **index_variables(self._lock))
        try:
            self._run_inside(place, build_command(container, mounts, environment, words), run)
        except NoEnvironment as error:
            text = "%s cannot be built from source in image %s: %s"
            inner = error.failure
            raise NoEnvironment(text % (one["name"], self.image, inner["message"]), inner["hint"]) from None
        return _take(one, os.path.join(place, "out"), place + ".wheel")

    def compile(self, library: str, scratch: str, run: Run) -> None:
        """Compile the environment by its own Python, which sees it read-only; ``library``: its ``lib/python3.x``.

        Its files are hard links of the cache's, so the container must not be able to write to them.
        """
        place, prefix = os.path.join(scratch, "bytecode"), prefix_of(self._root, self._lock)
        out, folder = os.path.join(place, "out"), os.path.join(prefix, library)
        for name in ("out", "home", "tmp"):
            os.makedirs(os.path.join(place, name), 0o700)
        mounts = [[prefix, prefix, "ro"], [place, place, "rw"]]
        words = compile_command(python_of(prefix), folder, out)
        command = build_command(self._engine.container, mounts, _environment(place), words, network="none")
        self._run_inside(place, command, run, check=False)
        adopt(folder, out)

    def _run_inside(self, place: str, command: "List[str]", run: Run, check: bool = True) -> None:
        """``place``: the folder that the container can write."""
        self._engine.remove()  # of a builder that was killed
        try:
            run(command, environ=self._engine.environment(), check=check)
        finally:
            gone = self._engine.remove()
            if gone:
                _open_folders(place)
        if not gone:  # what still runs could change its files while they are read
            raise NoEnvironment("the container engine does not respond", AGAIN)

    def _source(self, one: "Dict[str, Any]", folder: str, run: Run) -> str:
        """The archive, or a checkout: fetched out here, where no code of it runs."""
        if not one.get("git"):
            path = os.path.join(folder, file_name(one))
            shutil.copyfile(get(self._root, one), path)
            return path
        path = os.path.join(folder, "checkout")
        git = ["git", "-c", "core.hooksPath=/dev/null"]
        run([*git, "clone", "--quiet", "--no-checkout", "--", str(one["git"]), path])
        run([*git, "-C", path, "checkout", "--quiet", "--detach", str(one["commit"])])
        run([*git, "-C", path, "submodule", "--quiet", "update", "--init", "--recursive"])
        return os.path.join(path, str(one["folder"])) if one.get("folder") else path


def _take(one: "Dict[str, Any]", folder: str, target: str) -> str:
    """The wheel out of a folder that the build could write: a plain file with a proper name, copied."""
    handle = os.open(folder, FOLDER | NOFOLLOW)
    try:
        names = [name for name in os.listdir(handle) if name.endswith(".whl")]
        found = _WHEEL.fullmatch(names[0]) if len(names) == 1 else None
        if not found or re.sub(r"[-_.]+", "-", found.group(1)).lower() != one["name"]:
            raise NoEnvironment("building %s produced no wheel" % one["name"])
        os.mkdir(target, 0o700)
        with os.fdopen(os.open(names[0], READ | os.O_NONBLOCK, dir_fd=handle), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise NoEnvironment("building %s produced no wheel" % one["name"])
            with open(os.path.join(target, names[0]), "xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
    finally:
        os.close(handle)
    return os.path.join(target, names[0])


def _environment(place: str) -> "Dict[str, str]":
    """Variables inside. A proxy with a password is not for the eyes of a build."""
    found = {
        "HOME": os.path.join(place, "home"),
        "TMPDIR": os.path.join(place, "tmp"),
        "UV_CACHE_DIR": os.path.join(place, "cache"),
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
    }
    for name in _PROXIES:
        value = os.environ.get(name) or os.environ.get(name.upper()) or ""
        if value and "@" not in value:
            found[name] = value
    bundle = os.environ.get("SSL_CERT_FILE") or next((path for path in CERTIFICATES if os.path.exists(path)), None)
    if bundle and os.path.isfile(bundle):  # images often have none
        found["SSL_CERT_FILE"] = os.path.join(place, "certificates.pem")
        shutil.copyfile(bundle, found["SSL_CERT_FILE"])
    return found


def _open_folders(folder: str) -> None:
    """A build may have taken away our right to look into what it made, and to remove it."""
    pending = [folder]
    while pending:
        path = pending.pop()
        os.chmod(path, 0o700)
        with os.scandir(path) as listing:
            pending += [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]
