"""Sources of bind mounts: resolve their paths, and check them right before calling the engine.

The engine resolves a path again, as root, and follows symbolic links. The path passed to it must
therefore contain no links, and no parent folder may be writable by a container. ``container_consents.py`` on
the client enforces the latter.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys

from .shared.atomic_files import read_json
from .shared.failure import Failed
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

_CONTAINER_FOLDERS = ("runs", "homes", "share", "envs", "tools", "lib")  # folders in the root that containers use
_MAX_LINKS = 40  # the same limit as in Linux
_OPEN_FLAGS = (os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) if sys.platform == "linux" else 0  # O_PATH: Linux only

# Default sockets of container engines; %d is the user ID.
_SOCKETS = (
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/user/%d/docker.sock",
    "/run/user/%d/podman/podman.sock",
)
_SOCKET_NAMES = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock")


class MountRefused(Failed):
    """Error for a path that cannot be mounted."""

    code, explain = "mount-refused", "mounts"


# -- resolving paths -------------------------------------------------------------------------------------------


def resolve_mounts(root: str, home: str, paths: Iterable[str]) -> Dict[str, Any]:
    """Resolve the standard folders and ``paths``.

    Links in the path of a standard folder are the user's own, because no container can write there.
    For ``paths``, see ``resolve``.
    """
    standard_folders = [
        home,
        root,
        *(os.path.join(root, name) for name in _CONTAINER_FOLDERS),
        os.path.join(home, ".azureml", "share"),
    ]
    results: Dict[str, Dict[str, Any]] = {}
    for path in paths:
        try:
            results[path] = {"real": resolve(path)}
            if sys.platform == "linux":
                check_sources([results[path]["real"]], lenient=True)
        except MountRefused as error:
            results[path] = {"problem": str(error), "failure": error.failure}
    return {"ok": True, "places": {path: os.path.realpath(path) for path in standard_folders}, "paths": results}


def resolve(path: str) -> str:
    """Resolve a path, following only links that the administrator owns.

    A container may have created any other link. If this user is root, no link is followed at all,
    because a container may then have created links that root owns.
    """
    resolved, parts, links = "/", _components(path), 0
    while parts:
        name = parts.pop(0)
        if name == "..":  # part of a link target
            resolved = os.path.dirname(resolved)
            continue
        current = os.path.join(resolved, name)
        try:
            status = os.lstat(current)
        except FileNotFoundError:
            return os.path.normpath(os.path.join(current, *parts))
        except OSError as error:
            raise MountRefused("%s cannot be mounted: %s: %s" % (path, current, error.strerror)) from None
        if not stat.S_ISLNK(status.st_mode):
            resolved = current
            continue
        links += 1
        target = os.readlink(current)
        if status.st_uid != 0 or os.geteuid() == 0 or links > _MAX_LINKS:
            raise MountRefused(
                "%s is a link to %s that a container may have created" % (current, target),
                "mount the folder itself if containers are allowed to use it",
            )
        resolved, parts = ("/" if target.startswith("/") else resolved), _components(target) + parts
    return resolved


def translate(path: str, resolved: Sequence[Sequence[str]]) -> str:
    """Replace the longest recorded prefix of a path with its resolved folder."""
    matches = [pair for pair in resolved if path == pair[0] or path.startswith(pair[0].rstrip("/") + "/")]
    if not matches:
        return path
    prefix, real = max(matches, key=lambda pair: len(pair[0]))
    return (real.rstrip("/") + path[len(prefix.rstrip("/")) :]) or "/"


# -- checks before the mount -----------------------------------------------------------------------------------


def check_mounts(mounts: Sequence[Sequence[str]], engine_socket: Optional[str]) -> List[List[str]]:
    """Raise MountRefused unless all sources can be mounted. Return additional mounts that are needed.

    These are file systems mounted below a read-only source, because many engines leave them writable.
    """
    check_sources([mount[0] for mount in mounts], engine_socket)
    mount_points = _mount_points()
    inner = []
    for source, target, mode in mounts:
        below = [point for point in mount_points if point.startswith(source.rstrip("/") + "/")]
        # Lenient, because the container cannot reach what this user cannot reach.
        checked = check_sources(below, engine_socket, lenient=True)
        if mode == "ro":
            inner += [[point, target.rstrip("/") + point[len(source.rstrip("/")) :], mode] for point in checked]
    return inner


def check_sources(sources: Iterable[str], engine_socket: Optional[str] = None, lenient: bool = False) -> List[str]:
    """Raise MountRefused unless every source can be mounted. Return the sources that were checked.

    If ``lenient`` is set, sources that cannot be inspected are skipped.
    """
    sockets, checked = None, []
    for source in sources:
        try:
            status = _stat_source(source)
        except OSError as error:
            if lenient:
                continue
            if error.errno == errno.ENOENT:
                raise MountRefused("mount source does not exist on the target: %s" % source) from None
            raise MountRefused("%s cannot be mounted: %s" % (source, error.strerror)) from None
        if sockets is None:
            sockets = _socket_folders(engine_socket)
        _check_kind(source, status, sockets)
        checked.append(source)
    return checked


def refuse_writable(sources: Iterable[str], runs: str, own_run: str) -> None:
    """Raise MountRefused for a source below a folder to which another run's container can write now.

    Each run has its own writable folders, and an active run may have write access that this run lacks.
    """
    source_list = list(sources)
    for name in os.listdir(runs) if source_list else ():
        run = RunFolder(os.path.join(runs, name))
        if name == os.path.basename(own_run) or not os.path.exists(run.container):
            continue
        container = (read_json(run.spec, "container") or {}).get("container") or {}
        for writable, _, mode in container.get("mounts") or ():
            writable = translate(writable, container.get("resolved") or ())
            for source in source_list:
                if mode == "rw" and source.startswith(writable.rstrip("/") + "/"):
                    raise MountRefused(
                        "%s cannot be mounted: the container of run %s can write to %s" % (source, name, writable),
                        "wait until that run ends, or mount that folder itself",
                    )


def make_folder(path: str) -> None:
    """Create a folder and its parents without following links."""
    handle = os.open("/", _OPEN_FLAGS)
    try:
        for name in _components(path):
            try:
                os.mkdir(name, 0o700, dir_fd=handle)
            except FileExistsError:
                pass  # mkdir on an existing folder may also fail with EROFS or EACCES; it is opened next
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                    raise
            handle = _open_component(handle, name, path)
    finally:
        os.close(handle)


def _stat_source(path: str) -> os.stat_result:
    handle = os.open("/", _OPEN_FLAGS)
    try:
        for name in _components(path):
            handle = _open_component(handle, name, path)
        return os.fstat(handle)
    finally:
        os.close(handle)


def _open_component(handle: int, name: str, path: str) -> int:
    """Open the next path component and close ``handle``. Raise MountRefused if it is a link."""
    child = os.open(name, _OPEN_FLAGS, dir_fd=handle)
    if stat.S_ISLNK(os.fstat(child).st_mode):
        os.close(child)
        raise MountRefused(
            "%s cannot be mounted: %s in it is a link, and links are not followed" % (path, name),
            "mount the folder itself, or, if you moved folders of ML Workbench, run 'mlw computetarget update' for the"
            " target",
        )
    os.close(handle)
    return child


def _check_kind(source: str, status: os.stat_result, sockets: Set[Tuple[int, int]]) -> None:
    mode = status.st_mode
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
        kind = "socket" if stat.S_ISSOCK(mode) else "device"
        raise MountRefused("%s cannot be mounted: it is a %s" % (source, kind), "mount folders and files only")
    if (status.st_dev, status.st_ino) in sockets:
        raise MountRefused(
            "%s cannot be mounted: it contains the socket of a container engine, which gives root access" % source,
            "mount a folder without it",
        )
    if status.st_dev == _device_number("/proc"):
        raise MountRefused(
            "%s cannot be mounted: /proc gives access to all files of this user" % source,
            "mount only what is needed",
        )


def _device_number(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def _socket_folders(engine_socket: Optional[str]) -> Set[Tuple[int, int]]:
    """Return the device and inode of each folder above an engine socket.

    They identify a folder under any name.
    """
    identities = set()
    user = os.getuid()
    for path in [
        *(pattern % user if "%" in pattern else pattern for pattern in _SOCKETS),
        engine_socket,
        *_listening_sockets(),
    ]:
        current = os.path.realpath(path) if path else "/"
        while True:
            try:
                status = os.stat(current)
                identities.add((status.st_dev, status.st_ino))
            except OSError:
                pass  # the path does not exist, but its parent folders may
            if current == "/":
                break
            current = os.path.dirname(current)
    return identities


def _mount_points() -> List[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split(" ")[4] for line in file]
    return sorted({re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field) for field in fields})


def _listening_sockets() -> Iterator[str]:
    """Yield the paths of engine sockets found in ``/proc/net/unix``, which may be non-default."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines[1:]:
        path = line.split(None, 7)[-1]
        if path.startswith("/") and os.path.basename(path) in _SOCKET_NAMES:
            yield path


def _components(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
