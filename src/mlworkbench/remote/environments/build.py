"""Build an environment on this machine from its lock file.

Only one builder at a time works on an environment, which is published only when complete. The
builder may be killed at any moment: an environment is complete once its record exists, and the next
builder starts over.
"""

from __future__ import annotations

import errno
import json
import os
import time
import urllib.request

from ..shared.atomic_files import read_json
from ..shared.environment_layout import digest_of, prefix_of, python_home, python_of
from ..shared.failpoint import failpoint
from ..shared.folder_tree import make_private, remove
from ..shared.layout import Root
from ..shared.program_lookup import is_noexec
from ..shared.unpacking_limits import UnpackingLimits, bytes_written, max_bytes_for
from .build_errors import disk_full_error, parse_build_error, without_hint
from .build_process import POLL_INTERVAL, run_program
from .build_tools import (
    RESOLVE,
    SUBMIT_AGAIN,
    NoEnvironment,
    build_variables,
    find_download_error,
    get_package,
    isolated_python,
    provide_tool,
    python_not_fetched,
    python_version,
    try_build_lock,
    uv_program,
)
from .bytecode import compile_all, link_compiled, remove_compiled
from .environment_state import (
    describe,
    discard,
    find_damage,
    hold_caches,
    is_intact,
    protect,
    publish,
    record_path,
    unprotect,
)
from .image_environments import is_for_image, set_aside
from .md5_packages import with_sha256
from .mirrors import index_variables, python_variables, reject_archive
from .source_builds import ImageBuilds, check_build_location, file_name, sources_of
from .untrusted_conda import check_links, fetch_missing, library_of, write_interpreter

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Lock = Dict[str, Any]
    Report = Callable[[str], None]

_MIN_REPORTED = 10**7  # bytes; fewer are not worth a progress report
REPORT_INTERVAL = 10.0  # seconds between progress reports to the user
_WAITING_MESSAGE = "another run is building the same environment; waiting for it"


class Cancelled(Exception):
    """Exception raised if the run that needs the environment is canceled."""


def ensure(
    root: Root,
    lock: Lock,
    log: str,
    report: Report,
    cancelled: Callable[[], bool] = lambda: False,
    container: Optional[Dict[str, Any]] = None,
    password: Optional[str] = None,
) -> str:
    """Return the environment's folder; build it if it is missing or damaged.

    Raises NoEnvironment, Cancelled, or OSError. The output of programs is appended to the file ``log``.
    ``report`` receives progress messages. Source packages are built in the image of ``container``, the
    run's container. ``password`` is for the registry of that image.
    """
    prefix = prefix_of(root, lock)
    if is_intact(root, lock) and is_for_image(root, lock, container):
        return prefix
    if digest_of(lock) != lock["digest"]:
        raise NoEnvironment("the lock file was modified: its digest does not match", SUBMIT_AGAIN)
    check_build_location(lock, container["image"] if container else None)
    for folder in (os.path.dirname(prefix), root.tools):
        if is_noexec(folder):
            raise NoEnvironment(
                "%s is on a disk mounted noexec, so an environment's programs cannot be started" % folder, _MOVE_HINT
            )
    holder = take_lock(prefix + ".lock", report, cancelled)
    try:
        image = ImageBuilds(root, lock, container, password, log, report) if container else None
        if image and lock.get("built_in"):
            image.pull()
        if not is_intact(root, lock) or not is_for_image(root, lock, container):  # another run may have built it
            _Builder(root, lock, log, report, cancelled, holder, image).build()
    finally:
        os.close(holder)
    return prefix


def take_lock(path: str, report: Report, cancelled: Callable[[], bool], waiting: str = _WAITING_MESSAGE) -> int:
    reported = False
    while True:
        holder = try_build_lock(path)
        if holder is not None:
            return holder
        if not reported:
            report(waiting)
            reported = True
        if cancelled():
            raise Cancelled
        time.sleep(POLL_INTERVAL)


class _Builder:
    """A build of one environment, whose programs inherit the build lock.

    If the builder is killed, no other build starts while these programs are still writing.
    """

    def __init__(
        self,
        root: Root,
        lock: Lock,
        log: str,
        report: Report,
        cancelled: Callable[[], bool],
        holder: int,
        image: Optional[ImageBuilds],
    ) -> None:
        """Create a build. Without ``image``, the host builds sources and runs conda's Python."""
        self._root = root
        self._lock = lock
        self._log = log
        self._report = report
        self._cancelled = cancelled
        self._holder = holder
        self._image = image
        self._prefix = prefix_of(root, lock)
        self._env = build_variables(root)
        self._scratch = self._prefix + ".tmp"

    def build(self) -> None:
        image = self._image
        started = time.monotonic()
        caches = hold_caches(self._root)
        self._remove_old()
        failpoint("env-cleared")
        try:
            os.mkdir(self._scratch, 0o700)
            self._install()
            seconds = round(time.monotonic() - started, 1)
            facts: Dict[str, Any] = {"built": time.time(), "seconds": seconds}
            facts.update(image=image.image if image else None, image_id=image.image_id if image else None)
            publish(self._root, self._lock, facts)
        except BaseException as error:
            discard(self._prefix)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise disk_full_error(self._root.path) from None
            raise
        finally:
            remove(self._scratch)
            os.close(caches)
        failpoint("env-published")
        self._report("environment ready after %.1f s" % (time.monotonic() - started))

    def _install(self) -> None:
        image = self._image
        if self._lock["conda"]:
            library_of(self._lock)
            self._install_conda(check=image is not None)
            if image:
                check_links(self._prefix)
            failpoint("env-conda")
        else:
            self._create_venv()
            failpoint("env-venv")
        if self._lock["pip"]:
            self._install_pip()
            failpoint("env-pip")
        self._report("compiling bytecode")
        self._compile()
        failpoint("env-compiled")
        protect(self._prefix)
        failpoint("env-protected")

    def _remove_old(self) -> None:
        """Remove an outdated or damaged environment, or the leftovers of an earlier build.

        Damage is reported, because mlw itself never changes a complete environment.
        """
        if is_intact(self._root, self._lock):
            self._report("rebuilding the environment: image %s has changed" % self._lock["built_in"])
            set_aside(self._prefix)
        elif os.path.exists(record_path(self._prefix)):
            problems = find_damage(self._root, self._lock)
            self._report("rebuilding the damaged environment: %s" % (describe(problems) or "its record does not match"))
            # Its files may be hard links to files in the caches, which were then changed as well.
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
            remove_compiled(self._prefix)
        link_compiled(self._root, self._lock, self._prefix)
        home = python_home(self._root, self._lock)
        # Avoid the environment's own interpreter if possible: a wheel may have replaced it.
        compile_all(self._prefix, self._run, os.path.join(home, "bin", "python3") if home else python_of(self._prefix))

    # -- steps -------------------------------------------------------------------------------------

    def _install_conda(self, check: bool) -> None:
        """Install conda packages. With ``check``, reject packages that write outside the environment."""
        packages = self._lock["conda"]
        self._report("conda: %d packages" % len(packages))
        if check:
            fetch_missing(packages, self._root, self._package_link)
        else:
            packages = with_sha256(self._root, packages)
        entries = [
            dict(entry, url=entry.get("url") or _UPLOADED_URL % (entry["subdir"], entry["file"])) for entry in packages
        ]
        for entry in entries:
            if os.path.isdir(os.path.join(self._root.conda_packages, entry["sha256"])):
                continue  # already unpacked; its archive may have been removed
            if "file" in entry or os.path.isfile(self._root.package(entry["sha256"])):
                entry["from"] = self._package_link(entry)
        request = {
            "path": provide_tool(self._root, self._lock, "py-rattler"),
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
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conda_install.py")
        try:
            self._run([*isolated_python(), program, path])
        except NoEnvironment as error:
            failure = read_json(path + ".failure", "message", "hint")
            if failure is None:
                raise
            raise NoEnvironment(without_hint(str(failure["message"])), failure["hint"]) from error

    def _create_venv(self) -> None:
        python = self._lock["python"]
        interpreter = python.get("path")
        if python["source"] == "uv":
            interpreter = self._provide_python()
        self._report("Python %s" % python["version"])
        uv = self._uv()
        self._run([uv, "venv", "--quiet", "--no-project", "--python", str(interpreter), self._prefix])
        version = python_version(python_of(self._prefix))
        if version != python["version"]:
            text = "%s is Python %s, but the lock file requires %s"
            raise NoEnvironment(text % (interpreter, version or "unknown", python["version"]), RESOLVE)

    def _provide_python(self) -> str:
        """Return the uv-installed Python below tools/; fetch it if it is missing.

        All environments with this Python version share it.
        """
        home = str(python_home(self._root, self._lock))
        program = os.path.join(home, "bin", "python3")
        holder = take_lock(home + ".lock", self._report, self._cancelled)
        try:
            ready = home + ".ready"  # marks a complete installation; a killed one leaves only the folder
            if not os.path.exists(ready) or not os.path.exists(program):
                self._report("fetching Python %s" % self._lock["python"]["version"])
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
        command = [self._uv(), "python", "install", "--no-bin", "--reinstall", "--install-dir", folder]
        settings = dict(python_variables(self._root, self._lock, self._scratch), UV_PYTHON_DOWNLOADS="manual")
        try:
            self._run([*command, str(self._lock["python"]["key"])], settings)
        except NoEnvironment as error:
            why = find_download_error(error)
            if why is None:
                raise
            reject_archive(self._root, self._lock)
            in_image = self._image.python() if self._image else None
            raise python_not_fetched(self._lock, why, in_image) from None

    def _install_pip(self) -> None:
        image = self._image
        packages = self._lock["pip"]
        self._report("pip: %d packages" % len(packages))
        path = os.path.join(self._scratch, "requirements.txt")
        built = image.wheels(self._scratch, self._uv, self._run) if image else {}
        with open(path, "w", encoding="utf-8") as file:
            # uv expands ${NAME} with this machine's variables, and an index may have put such a name in a URL.
            file.writelines(self._requirement(package, built).replace("${", "%24{") + "\n" for package in packages)
        guarded = image and self._lock["conda"]
        python = write_interpreter(self._scratch, self._prefix, self._lock) if guarded else python_of(self._prefix)
        command = [self._uv(), "pip", "install", "--python", python, "--break-system-packages"]
        failpoint("env-installing")
        builds = bool(sources_of(self._lock)) and not built
        command += [] if builds else ["--no-build"]
        self._run([*command, "--no-deps", "-r", path], index_variables(self._lock) if builds else None)

    def _requirement(self, package: Dict[str, Any], built: Dict[str, str]) -> str:
        """Return a requirement by URL, so that uv can use its cache without sending a request."""
        if package["name"] in built:
            return "%s @ file://%s" % (package["name"], urllib.request.pathname2url(built[str(package["name"])]))
        if package.get("git"):
            folder = "#subdirectory=%s" % package["folder"] if package.get("folder") else ""
            return "%s @ git+%s@%s%s" % (package["name"], package["git"], package["commit"], folder)
        address = package.get("url")
        if not address or os.path.isfile(self._root.package(str(package["sha256"]))):
            address = "file://" + urllib.request.pathname2url(self._package_link(package))
        return "%s @ %s --hash=sha256:%s" % (package["name"], address, package["sha256"])

    def _package_link(self, package: Dict[str, Any]) -> str:
        """Return a link to a stored package under the package's file name, which pip requires.

        The path depends only on the package, so that uv can reuse a package that it unpacked for another
        environment.
        """
        folder = os.path.join(self._root.packages, "named", str(package["sha256"]))
        path = os.path.join(folder, file_name(package))
        make_private(folder)
        get_package(self._root, package)
        try:
            os.symlink(os.path.join("..", "..", str(package["sha256"])), path)
        except FileExistsError:
            pass
        return path

    def _uv(self) -> str:
        return uv_program(provide_tool(self._root, self._lock, "uv"))

    # -- programs ----------------------------------------------------------------------------------

    def _run(
        self,
        command: List[str],
        extra: Optional[Dict[str, str]] = None,
        check: bool = True,
        environ: Optional[Dict[str, str]] = None,
    ) -> None:
        """Run a program and log its output. If it fails, report its last lines as the reason."""
        environ = environ or dict(self._env, **extra or {})
        last_report = [time.monotonic()]

        def check_progress(pid: int) -> None:
            if self._cancelled():
                raise Cancelled
            if time.monotonic() > last_report[0] + REPORT_INTERVAL:
                last_report[0] = time.monotonic()
                self._report_progress(pid)

        bounds = UnpackingLimits(max_bytes_for([*self._lock["conda"], *self._lock["pip"]]), self._root.path)
        output = run_program(command, environ, self._scratch, self._log, self._holder, bounds, check_progress)
        if output is not None and check:
            raise parse_build_error(output, self._root.path)

    def _report_progress(self, pid: int) -> None:
        """Report the bytes written, because uv prints nothing during a download that takes minutes."""
        size = bytes_written(pid)
        if size > _MIN_REPORTED:
            self._report("… %.0f MB written so far" % (size / 1e6))


_UPLOADED_URL = "file:///sent/%s/%s"  # placeholder URL for uploaded packages; nothing is fetched from it
_MOVE_HINT = (
    "make ~/.mlw on the target a link to a folder on another disk, or ask the administrator to mount the disk without"
    " noexec"
)
