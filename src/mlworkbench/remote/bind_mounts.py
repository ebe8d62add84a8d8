"""Sources of bind mounts: where their paths lead, and the last check before the engine is called.

The engine resolves a path again, as root and through symbolic links. So the path that it gets has no link in it, and
nothing on the way may be in a folder that a container can write; ``consents.py`` on the client enforces the latter.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys

from .shared.failure import Failed
from .shared.files import read_json
from .shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

_OWN = ("runs", "homes", "share", "envs", "tools", "lib")  # in the root: what containers get something of
_MOST_LINKS = 40  # as Linux has it
_STEP = (os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) if sys.platform == "linux" else 0  # no containers elsewhere

# Where engines listen unless they are configured otherwise; %d is the user.
_SOCKETS = (
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/user/%d/docker.sock",
    "/run/user/%d/podman/podman.sock",
)
_SOCKET_NAMES = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock")


class Refused(Failed):
    """Why a path cannot be mounted."""

    code, explain = "mount-refused", "mounts"


# -- where paths lead ------------------------------------------------------------------------------------------


def survey(root: str, home: str, paths: Iterable[str]) -> Dict[str, Any]:
    """Resolve the standard folders and ``paths``.

    Links on the way to a standard folder are the user's: no container can write there. For ``paths`` see ``resolve``.
    """
    own = [home, root, *(os.path.join(root, name) for name in _OWN), os.path.join(home, ".azureml", "share")]
    found: Dict[str, Dict[str, Any]] = {}
    for path in paths:
        try:
            found[path] = {"real": resolve(path)}
            if sys.platform == "linux":
                check([found[path]["real"]], lenient=True)
        except Refused as reason:
            found[path] = {"problem": str(reason), "failure": reason.failure}
    return {"ok": True, "places": {path: os.path.realpath(path) for path in own}, "paths": found}


def resolve(path: str) -> str:
    """Where a path leads, through links of the administrator only: any other may have been made by a container.

    Containers of root and of rootless engines have capabilities, so root itself follows no link at all.
    """
    done, parts, links = "/", _parts(path), 0
    while parts:
        name = parts.pop(0)
        if name == "..":  # of a link
            done = os.path.dirname(done)
            continue
        place = os.path.join(done, name)
        try:
            facts = os.lstat(place)
        except FileNotFoundError:
            return os.path.normpath(os.path.join(place, *parts))
        except OSError as error:
            raise Refused("%s cannot be mounted: %s: %s" % (path, place, error.strerror)) from None
        if not stat.S_ISLNK(facts.st_mode):
            done = place
            continue
        links += 1
        target = os.readlink(place)
        if facts.st_uid != 0 or os.geteuid() == 0 or links > _MOST_LINKS:
            raise Refused(
                "%s is a link to %s that a container may have created" % (place, target),
                "mount the folder itself if containers are allowed to use it",
            )
        done, parts = ("/" if target.startswith("/") else done), _parts(target) + parts
    return done


def translate(path: str, resolved: Sequence[Sequence[str]]) -> str:
    """The path behind a recorded prefix; the longest prefix counts."""
    fitting = [pair for pair in resolved if path == pair[0] or path.startswith(pair[0].rstrip("/") + "/")]
    if not fitting:
        return path
    spelled, real = max(fitting, key=lambda pair: len(pair[0]))
    return (real.rstrip("/") + path[len(spelled.rstrip("/")) :]) or "/"


# -- the last look ---------------------------------------------------------------------------------------------


def inspect(mounts: Sequence[Sequence[str]], engine_socket: Optional[str]) -> List[List[str]]:
    """Raise Refused unless all can be mounted as they are; what has to be mounted besides.

    That is every file system mounted below a read-only source: many engines leave those writable.
    """
    check([mount[0] for mount in mounts], engine_socket)
    points = _mount_points()
    inner = []
    for source, target, mode in mounts:
        below = [point for point in points if point.startswith(source.rstrip("/") + "/")]
        seen = check(below, engine_socket, lenient=True)  # what this user cannot reach, the container cannot either
        if mode == "ro":
            inner += [[point, target.rstrip("/") + point[len(source.rstrip("/")) :], mode] for point in seen]
    return inner


def check(sources: Iterable[str], engine_socket: Optional[str] = None, lenient: bool = False) -> List[str]:
    """Raise Refused unless each source can be mounted. ``lenient``: those that cannot be inspected are skipped."""
    sockets, seen = None, []
    for source in sources:
        try:
            facts = _look(source)
        except OSError as error:
            if lenient:
                continue
            if error.errno == errno.ENOENT:
                raise Refused("mount source does not exist on the target: %s" % source) from None
            raise Refused("%s cannot be mounted: %s" % (source, error.strerror)) from None
        if sockets is None:
            sockets = _socket_folders(engine_socket)
        _refuse_kind(source, facts, sockets)
        seen.append(source)
    return seen


def refuse_written(sources: Iterable[str], runs: str, own: str) -> None:
    """Raise Refused for a source below a folder that the container of another run can write at this moment.

    What may be written is decided for each run; one that was allowed more may still be running.
    """
    wanted = list(sources)
    for name in os.listdir(runs) if wanted else ():
        run = RunFolder(os.path.join(runs, name))
        if name == os.path.basename(own) or not os.path.exists(run.container):
            continue
        container = (read_json(run.spec, "container") or {}).get("container") or {}
        for place, _, mode in container.get("mounts") or ():
            place = translate(place, container.get("resolved") or ())
            for source in wanted:
                if mode == "rw" and source.startswith(place.rstrip("/") + "/"):
                    raise Refused(
                        "%s cannot be mounted: the container of run %s can write to %s" % (source, name, place),
                        "wait until that run ends, or mount that folder itself",
                    )


def make(path: str) -> None:
    """Make a folder and those above it, through no link."""
    handle = os.open("/", _STEP)
    try:
        for name in _parts(path):
            try:
                os.mkdir(name, 0o700, dir_fd=handle)
            except FileExistsError:
                pass  # or EROFS, EACCES of a folder that is there: the next call decides
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                    raise
            handle = _step(handle, name, path)
    finally:
        os.close(handle)


def _look(path: str) -> os.stat_result:
    handle = os.open("/", _STEP)
    try:
        for name in _parts(path):
            handle = _step(handle, name, path)
        return os.fstat(handle)
    finally:
        os.close(handle)


def _step(handle: int, name: str, path: str) -> int:
    """One component further; the handle before it is closed. Raises Refused at a link."""
    below = os.open(name, _STEP, dir_fd=handle)
    if stat.S_ISLNK(os.fstat(below).st_mode):
        os.close(below)
        raise Refused(
            "%s cannot be mounted: %s in it is a link, and links are not followed" % (path, name),
            "mount the folder itself, or, if you moved folders of ML Workbench, run 'mlw computetarget update' for the"
            " target",
        )
    os.close(handle)
    return below


def _refuse_kind(source: str, facts: os.stat_result, sockets: Set[Tuple[int, int]]) -> None:
    kind = facts.st_mode
    if stat.S_ISSOCK(kind) or stat.S_ISBLK(kind) or stat.S_ISCHR(kind):
        what = "socket" if stat.S_ISSOCK(kind) else "device"
        raise Refused("%s cannot be mounted: it is a %s" % (source, what), "mount folders and files only")
    if (facts.st_dev, facts.st_ino) in sockets:
        raise Refused(
            "%s cannot be mounted: it contains the socket of a container engine, which gives root access" % source,
            "mount a folder without it",
        )
    if facts.st_dev == _device("/proc"):
        raise Refused(
            "%s cannot be mounted: /proc gives access to all files of this user" % source,
            "mount only what is needed",
        )


def _device(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def _socket_folders(engine_socket: Optional[str]) -> Set[Tuple[int, int]]:
    """Each folder above a socket of an engine, by device and inode: whatever name it is mounted by."""
    found = set()
    user = os.getuid()
    for path in [*(one % user if "%" in one else one for one in _SOCKETS), engine_socket, *_listening()]:
        place = os.path.realpath(path) if path else "/"
        while True:
            try:
                facts = os.stat(place)
                found.add((facts.st_dev, facts.st_ino))
            except OSError:
                pass  # it is not there, the folders above it may be
            if place == "/":
                break
            place = os.path.dirname(place)
    return found


def _mount_points() -> List[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split(" ")[4] for line in file]
    return sorted({re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), field) for field in fields})


def _listening() -> Iterator[str]:
    """Engines with another socket path."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines[1:]:
        path = line.split(None, 7)[-1]
        if path.startswith("/") and os.path.basename(path) in _SOCKET_NAMES:
            yield path


def _parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
