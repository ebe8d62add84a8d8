"""Builds an environment here from its lock: one builder at a time, found whole by all others or not at all.

May be killed at any moment: what counts is the note that appears at the end, and the next builder begins anew.
"""

from __future__ import annotations

import errno
import json
import os
import time
import urllib.request

from ..shared.environment_layout import digest_of, prefix_of, python_home, python_of
from ..shared.failpoint import failpoint
from ..shared.files import read_json
from ..shared.layout import Root
from ..shared.programs import is_noexec
from ..shared.tree import make_private, remove
from ..shared.unpacking_limits import Bounds, most_for, written
from .built_in import is_for_image, set_aside
from .bytecode import borrow, compile_all, drop_compiled
from .conda_guard import check_links, fetch_missing, library_of, write_interpreter
from .environment import damage, describe, discard, hold_caches, is_sound, note_of, protect, publish, unprotect
from .md5_packages import with_sha256
from .mirrors import index_variables, python_variables, refuse_archive
from .program_errors import full, meaning_of, without_advice
from .running import LOOK, run_program
from .sources import ImageBuilds, check_place, file_name, sources_of
from .tools import (
    AGAIN,
    RESOLVE,
    NoEnvironment,
    building_environment,
    get,
    locked,
    no_python,
    own_python,
    provide,
    uv_program,
    version_of,
    why_no_python,
)

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Lock = Dict[str, Any]
    Say = Callable[[str], None]

_MUCH = 10**7  # bytes: who wrote less does not download
SILENCE = 10.0  # seconds after which the user hears that something is going on
_WAITING = "another run is building the same environment; waiting for it"


class Cancelled(Exception):
    """Somebody asked for the end of the run that the environment was for."""


def ensure(
    root: Root,
    lock: Lock,
    log: str,
    say: Say,
    cancelled: Callable[[], bool] = lambda: False,
    container: Optional[Dict[str, Any]] = None,
    password: Optional[str] = None,
) -> str:
    """The environment's folder, built if it is not there or not sound. Raises NoEnvironment, Cancelled or OSError.

    ``log``: file that the programs' output is appended to. ``say``: told in a few words what is going on.
    ``container``: of the run, in whose image source packages are built; ``password``: of the image's registry.
    """
    prefix = prefix_of(root, lock)
    if is_sound(root, lock) and is_for_image(root, lock, container):
        return prefix
    if digest_of(lock) != lock["digest"]:
        raise NoEnvironment("the lock file was modified: its digest does not match", AGAIN)
    check_place(lock, container["image"] if container else None)
    for place in (os.path.dirname(prefix), root.tools):
        if is_noexec(place):
            raise NoEnvironment(
                "%s is on a disk mounted noexec, so an environment's programs cannot be started" % place, _MOVE
            )
    holder = take_lock(prefix + ".lock", say, cancelled)
    try:
        image = ImageBuilds(root, lock, container, password, log, say) if container else None
        if image and lock.get("built_in"):
            image.pull()
        if not is_sound(root, lock) or not is_for_image(root, lock, container):  # it may have been built meanwhile
            _Builder(root, lock, log, say, cancelled, holder, image).build()
    finally:
        os.close(holder)
    return prefix


def take_lock(path: str, say: Say, cancelled: Callable[[], bool], waiting: str = _WAITING) -> int:
    told = False
    while True:
        holder = locked(path)
        if holder is not None:
            return holder
        if not told:
            say(waiting)
            told = True
        if cancelled():
            raise Cancelled
        time.sleep(LOOK)


class _Builder:
    """One build. Programs that it starts hold its lock too: if it is killed, nobody builds while they still write."""

    def __init__(
        self,
        root: Root,
        lock: Lock,
        log: str,
        say: Say,
        cancelled: Callable[[], bool],
        holder: int,
        image: Optional[ImageBuilds],
    ) -> None:
        """``image``: where source packages are built and the Python of conda packages runs; None: here."""
        self._root = root
        self._lock = lock
        self._log = log
        self._say = say
        self._cancelled = cancelled
        self._holder = holder
        self._image = image
        self._prefix = prefix_of(root, lock)
        self._env = building_environment(root)
        self._scratch = self._prefix + ".tmp"

    def build(self) -> None:
        image = self._image
        begun = time.monotonic()
        caches = hold_caches(self._root)
        self._clear()
        failpoint("env-cleared")
        try:
            os.mkdir(self._scratch, 0o700)
            self._install()
            seconds = round(time.monotonic() - begun, 1)
            facts: Dict[str, Any] = {"built": time.time(), "seconds": seconds}
            facts.update(image=image.image if image else None, image_id=image.image_id if image else None)
            publish(self._root, self._lock, facts)
        except BaseException as error:
            discard(self._prefix)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise full(self._root.path) from None
            raise
        finally:
            remove(self._scratch)
            os.close(caches)
        failpoint("env-published")
        self._say("environment ready after %.1f s" % (time.monotonic() - begun))

    def _install(self) -> None:
        image = self._image
        if self._lock["conda"]:
            library_of(self._lock)
            self._conda(check=image is not None)
            if image:
                check_links(self._prefix)
            failpoint("env-conda")
        else:
            self._venv()
            failpoint("env-venv")
        if self._lock["pip"]:
            self._pip()
            failpoint("env-pip")
        self._say("compiling bytecode")
        self._compile()
        failpoint("env-compiled")
        protect(self._prefix)
        failpoint("env-protected")

    def _clear(self) -> None:
        """Away with what an earlier builder left, and with a damaged one: said, because somebody changed it."""
        if is_sound(self._root, self._lock):
            self._say("rebuilding the environment: image %s has changed" % self._lock["built_in"])
            set_aside(self._prefix)
        elif os.path.exists(note_of(self._prefix)):
            wrong = damage(self._root, self._lock)
            self._say("rebuilding the damaged environment: %s" % (describe(wrong) or "its record does not match"))
            # Its files may be the caches' too (hard links): what was changed here was changed there.
            for path in (os.path.join(self._root.caches, "uv"), self._root.conda_packages):
                remove(path)
        discard(self._prefix)
        remove(self._scratch)
        make_private(self._root.envs, self._root.caches)

    def _compile(self) -> None:
        image = self._image
        if image and self._lock["conda"]:
            return image.compile(library_of(self._lock), self._scratch, self._run)
        if image:
            drop_compiled(self._prefix)
        borrow(self._root, self._lock, self._prefix)
        home = python_home(self._root, self._lock)
        # Where possible not by the environment's own program: a wheel may have replaced it.
        compile_all(self._prefix, self._run, os.path.join(home, "bin", "python3") if home else python_of(self._prefix))

    # -- its parts ---------------------------------------------------------------------------------

    def _conda(self, check: bool) -> None:
        """``check``: refuse packages that write outside the environment."""
        packages = self._lock["conda"]
        self._say("conda: %d packages" % len(packages))
        if check:
            fetch_missing(packages, self._root, self._named)
        else:
            packages = with_sha256(self._root, packages)
        entries = [dict(one, url=one.get("url") or _SENT % (one["subdir"], one["file"])) for one in packages]
        for one in entries:
            if os.path.isdir(os.path.join(self._root.conda_packages, one["sha256"])):
                continue  # unpacked already: its archive may be gone
            if "file" in one or os.path.isfile(self._root.package(one["sha256"])):
                one["from"] = self._named(one)
        request = {
            "path": provide(self._root, self._lock, "py-rattler"),
            "prefix": self._prefix,
            "cache": self._root.conda_packages,
            "work": os.path.join(self._root.conda_packages, "build-%s" % self._lock["digest"]),
            "packages": entries,
            "check": check,
            "library": library_of(self._lock),
        }
        path = os.path.join(self._scratch, "conda.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(request, file)
        failpoint("env-installing")
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rattle.py")
        try:
            self._run([*own_python(), program, path])
        except NoEnvironment as error:
            told = read_json(path + ".failure", "message", "hint")
            if told is None:
                raise
            raise NoEnvironment(without_advice(str(told["message"])), told["hint"]) from error

    def _venv(self) -> None:
        python = self._lock["python"]
        interpreter = python.get("path")
        if python["source"] == "uv":
            interpreter = self._own_python()
        self._say("Python %s" % python["version"])
        uv = self._uv()
        self._run([uv, "venv", "--quiet", "--no-project", "--python", str(interpreter), self._prefix])
        found = version_of(python_of(self._prefix))
        if found != python["version"]:
            text = "%s is Python %s, but the lock file requires %s"
            raise NoEnvironment(text % (interpreter, found or "unknown", python["version"]), RESOLVE)

    def _own_python(self) -> str:
        """A Python of uv's under tools/, shared by all environments that want this version."""
        home = str(python_home(self._root, self._lock))
        program = os.path.join(home, "bin", "python3")
        holder = take_lock(home + ".lock", self._say, self._cancelled)
        try:
            ready = home + ".ready"  # for the next: an install that was killed leaves the folder
            if not os.path.exists(ready) or not os.path.exists(program):
                self._say("fetching Python %s" % self._lock["python"]["version"])
                if os.path.isdir(home):
                    unprotect(home)
                self._fetch_python(os.path.dirname(home))
                failpoint("env-python")
                compile_all(home, self._run, program)
                protect(home)
                with open(ready, "w", encoding="ascii"):
                    pass
        finally:
            os.close(holder)
        return program

    def _fetch_python(self, folder: str) -> None:
        words = [self._uv(), "python", "install", "--no-bin", "--reinstall", "--install-dir", folder]
        settings = dict(python_variables(self._root, self._lock, self._scratch), UV_PYTHON_DOWNLOADS="manual")
        try:
            self._run([*words, str(self._lock["python"]["key"])], settings)
        except NoEnvironment as error:
            why = why_no_python(error)
            if why is None:
                raise
            refuse_archive(self._root, self._lock)
            in_image = self._image.python() if self._image else None
            raise no_python(self._lock, why, in_image) from None

    def _pip(self) -> None:
        image = self._image
        packages = self._lock["pip"]
        self._say("pip: %d packages" % len(packages))
        path = os.path.join(self._scratch, "requirements.txt")
        built = image.wheels(self._scratch, self._uv, self._run) if image else {}
        with open(path, "w", encoding="utf-8") as file:
            # uv replaces ${NAME} by this machine's variables, and an index may have put such a name into an address.
            file.writelines(self._requirement(one, built).replace("${", "%24{") + "\n" for one in packages)
        guarded = image and self._lock["conda"]
        python = write_interpreter(self._scratch, self._prefix, self._lock) if guarded else python_of(self._prefix)
        words = [self._uv(), "pip", "install", "--python", python, "--break-system-packages"]
        failpoint("env-installing")
        builds = bool(sources_of(self._lock)) and not built
        words += [] if builds else ["--no-build"]
        self._run([*words, "--no-deps", "-r", path], index_variables(self._lock) if builds else None)

    def _requirement(self, one: Dict[str, Any], built: Dict[str, str]) -> str:
        """By its address: what uv has fetched from there before it takes from its cache, without asking again."""
        if one["name"] in built:
            return "%s @ file://%s" % (one["name"], urllib.request.pathname2url(built[str(one["name"])]))
        if one.get("git"):
            folder = "#subdirectory=%s" % one["folder"] if one.get("folder") else ""
            return "%s @ git+%s@%s%s" % (one["name"], one["git"], one["commit"], folder)
        address = one.get("url")
        if not address or os.path.isfile(self._root.package(str(one["sha256"]))):
            address = "file://" + urllib.request.pathname2url(self._named(one))
        return "%s @ %s --hash=sha256:%s" % (one["name"], address, one["sha256"])

    def _named(self, one: Dict[str, Any]) -> str:
        """A package that was sent along, under its own name, which says what it is for.

        Always at the same path: by that uv finds again in its cache what it has unpacked for another environment.
        """
        folder = os.path.join(self._root.packages, "named", str(one["sha256"]))
        path = os.path.join(folder, file_name(one))
        make_private(folder)
        get(self._root, one)
        try:
            os.symlink(os.path.join("..", "..", str(one["sha256"])), path)
        except FileExistsError:
            pass
        return path

    def _uv(self) -> str:
        return uv_program(provide(self._root, self._lock, "uv"))

    # -- programs ----------------------------------------------------------------------------------

    def _run(
        self,
        words: List[str],
        extra: Optional[Dict[str, str]] = None,
        check: bool = True,
        environ: Optional[Dict[str, str]] = None,
    ) -> None:
        """Run a program with its output in the log; its last words are the reason if it fails."""
        environ = environ or dict(self._env, **extra or {})
        told = [time.monotonic()]

        def look(pid: int) -> None:
            if self._cancelled():
                raise Cancelled
            if time.monotonic() > told[0] + SILENCE:
                told[0] = time.monotonic()
                self._tell_how_far(pid)

        bounds = Bounds(most_for([*self._lock["conda"], *self._lock["pip"]]), self._root.path)
        said = run_program(words, environ, self._scratch, self._log, self._holder, bounds, look)
        if said is not None and check:
            raise meaning_of(said, self._root.path)

    def _tell_how_far(self, pid: int) -> None:
        """uv says when a large package begins and when it is there, which may be many minutes apart."""
        much = written(pid)
        if much > _MUCH:
            self._say("… %.0f MB written so far" % (much / 1e6))


_SENT = "file:///sent/%s/%s"  # an address for what has none; nothing is fetched from there
_MOVE = (
    "make ~/.mlw on the target a link to a folder on another disk, or ask the administrator to mount the disk without"
    " noexec"
)
