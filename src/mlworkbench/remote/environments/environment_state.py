"""Environments on this machine: whether they exist and are intact, their files, locks, and removal.

An environment is built in its final folder, because its scripts contain that path. It is complete
once its record, ``<digest>.json``, is renamed into place next to it. Without that file, it is the
leftover of an incomplete build.

There are two lock files next to it. They are kept when the environment is removed: if a lock file
were deleted and created again, two processes could hold the lock. The builder holds
``<digest>.lock`` exclusively. Runs share ``<digest>.use``, each from before it looks for the
environment until it ends (``hold_environment_lock``); a removal holds it exclusively and briefly
(``garbage_collection.py``). So a run finds a complete environment, or builds it if there is none.
The lines of ``<digest>.use`` list these runs, and its modification time is the last use.
``caches.use`` does the same for the caches, tools, and packages that builds share.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
import time

from ..shared import machine
from ..shared.atomic_files import read_json, write_atomic
from ..shared.environment_layout import pack_path, prefix_of, python_home, python_of
from ..shared.folder_tree import make_private, remove
from ..shared.layout import Root

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

    Lock = Dict[str, Any]
    Entry = Tuple[str, os.stat_result]

CACHE = "__pycache__"
# Kinds of lines in the file list, which is sorted. The lines that ``is_intact`` checks come first.
FOLDER, CHECKED, OTHER = "a", "b", "c"
_MAX_NAMED = 5
_POLL_INTERVAL = 0.005


# -- integrity ---------------------------------------------------------------------------------------


def record_path(prefix: str) -> str:
    return prefix + ".json"


def file_list_path(prefix: str) -> str:
    """Return the path of the environment's file list."""
    return prefix + ".files"


def is_intact(root: Root, lock: Lock) -> bool:
    """Return whether an environment exists and is unchanged.

    This runs before each start, so it checks only what can break a run: all sources, libraries, and
    programs, and the times of all folders, which show whether files were added, removed, or replaced.
    """
    prefix = prefix_of(root, lock)
    record = read_json(record_path(prefix), "digest", "listed")
    if not record or record["digest"] != lock["digest"]:
        return False
    try:
        if not os.access(python_of(prefix), os.X_OK):  # often a link whose target may have been removed
            return False
        if os.path.getsize(file_list_path(prefix)) != record["listed"]:
            return False
        with open(file_list_path(prefix), encoding="utf-8", errors="surrogateescape") as file:
            return _matches(prefix, file)
    except (OSError, ValueError):
        return False


def _matches(prefix: str, lines: Iterable[str]) -> bool:
    for line in lines:
        kind, size, changed, path = line.rstrip("\n").split(" ", 3)
        if kind == OTHER:
            return True
        status = os.lstat(prefix + "/" + path)
        if status.st_mtime_ns != int(changed) or (kind != FOLDER and status.st_size != int(size)):
            return False
    return True


def listing(prefix: str) -> str:
    """Return the file list: kind, size, modification time, and path.

    The lines that ``is_intact`` needs come first.
    """
    base = len(prefix) + 1
    lines = [
        "%s %d %d %s" % (_line_kind(path[base:], facts), facts.st_size, facts.st_mtime_ns, path[base:])
        for path, facts in walk(prefix)
    ]
    for folder in list_folders(prefix):
        if os.path.basename(folder) != CACHE:
            lines.append("%s 0 %d %s" % (FOLDER, os.lstat(folder).st_mtime_ns, folder[base:]))
    lines.sort()
    return "\n".join(lines)


def _line_kind(path: str, status: os.stat_result) -> str:
    name = path.rsplit("/", 1)[-1]
    if name.endswith((".py", ".pth")) or ".so" in name or path.startswith("bin/"):
        return CHECKED
    return OTHER


def walk(folder: str) -> Iterator[Entry]:
    """Yield files and links below a folder with their status, without following links."""
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)


def find_damage(root: Root, lock: Lock) -> List[str]:
    """Return the missing, added, and changed files, according to the file list and the packages' digests."""
    prefix = prefix_of(root, lock)
    try:
        with open(file_list_path(prefix), encoding="utf-8", errors="surrogateescape") as file:
            recorded = _parse_listing(file.read())
        actual = _parse_listing(listing(prefix))
    except (OSError, ValueError) as error:
        return ["its file list cannot be read: %s" % error]
    problems = ["%s is missing" % path for path in sorted(set(recorded) - set(actual))]
    problems += ["%s was added" % path for path in sorted(set(actual) - set(recorded))]
    changed = {path for path in set(recorded) & set(actual) if recorded[path] != actual[path]}
    for path, sha256 in recorded_digests(prefix):
        if path in actual and path not in changed and _digest(os.path.join(prefix, path)) != sha256:
            changed.add(path)
    return problems + ["%s was changed" % path for path in sorted(changed)]


def _parse_listing(text: str) -> Dict[str, str]:
    """Return the size and time of each file by path, without folders and bytecode, which a run may add."""
    lines = (line.split(" ", 3) for line in text.split("\n"))
    return {path: size + " " + changed for kind, size, changed, path in lines if kind != FOLDER and CACHE not in path}


def recorded_digests(prefix: str) -> Iterator[Tuple[str, str]]:
    """Yield path and SHA-256 of files as recorded by their packages."""
    for path, _ in walk(prefix):
        folder, name = os.path.split(path)
        if name == "RECORD" and folder.endswith(".dist-info"):
            yield from _record(prefix, path)
        elif name.endswith(".json") and os.path.basename(folder) == "conda-meta":
            for entry in (read_json(path) or {}).get("paths_data", {}).get("paths", []):
                if entry.get("sha256_in_prefix") and entry.get("path_type") == "hardlink":
                    yield entry["_path"], entry["sha256_in_prefix"]


def _record(prefix: str, path: str) -> Iterator[Tuple[str, str]]:
    base = os.path.dirname(os.path.dirname(path))
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            if len(row) == 3 and row[1].startswith("sha256="):
                sha256 = base64.urlsafe_b64decode(row[1][7:] + "==").hex()
                yield os.path.relpath(os.path.join(base, row[0]), prefix), sha256


def _digest(path: str) -> str:
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            sha256.update(block)
    return sha256.hexdigest()


def publish(root: Root, lock: Lock, facts: Dict[str, Any]) -> None:
    """Write the file list and the record. From then on, the environment is complete."""
    prefix = prefix_of(root, lock)
    text = listing(prefix)
    content = text.encode("utf-8", "surrogateescape")
    part = file_list_path(prefix) + ".part"
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, file_list_path(prefix))
    record = dict(
        facts,
        digest=lock["digest"],
        python=lock["python"],
        home=python_home(root, lock),
        packages=len(lock["conda"]) + len(lock["pip"]),
        bytes=sum(int(line.split(" ", 2)[1]) for line in text.split("\n")),
        listed=len(content),
        lock=lock,
    )
    write_atomic(record_path(prefix), record)


# -- locks against removal ---------------------------------------------------------------------------


def use_lock_path(prefix: str) -> str:
    """Return the path of the lock file that runs share while they use the environment, and that lists them."""
    return prefix + ".use"


def hold_environment_lock(root: Root, lock: Lock, run: str = "") -> int:
    """Return a descriptor that protects the environment from removal until it is closed.

    The protection also ends when the process dies. Call this before looking for or building the
    environment. ``run`` is recorded, so that the environment is kept even if the supervisor dies and
    the script continues.
    """
    make_private(root.envs)
    path = use_lock_path(prefix_of(root, lock))
    holder = _wait_shared(path)
    try:
        if run:
            with open(path, "a", encoding="utf-8") as file:
                file.write(run + "\n")
        os.utime(path)
    except OSError:
        pass  # a full disk must not prevent a run from using the environment
    return holder


def mark_used(root: Root, lock: Lock) -> None:
    """Record that the environment is in use, so that it does not count as idle."""
    with open(use_lock_path(prefix_of(root, lock)), "ab") as file:
        os.utime(file.name)


def caches_lock(root: Root) -> str:
    return os.path.join(root.envs, "caches.use")


def hold_caches(root: Root) -> int:
    """Protect caches, tools, and packages from removal until the returned descriptor is closed."""
    make_private(root.envs)
    return _wait_shared(caches_lock(root))


def _wait_shared(path: str) -> int:
    while True:
        holder = machine.lock_shared(path)
        if holder is not None:
            return holder
        time.sleep(_POLL_INTERVAL)  # a removal is in progress, which takes only a rename


# -- protection and removal --------------------------------------------------------------------------


def protect(prefix: str) -> None:
    """Remove write permissions, so that a run, or pip in it, cannot change files that other runs share.

    Files may be hard links to files in a cache, which are then protected as well.
    """
    for path, status in walk(prefix):
        if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o222:
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~0o222)
    for folder in list_folders(prefix):
        os.chmod(folder, stat.S_IMODE(os.lstat(folder).st_mode) & ~0o222)


def list_folders(prefix: str) -> List[str]:
    """Return the prefix and all folders below it, parents first."""
    result = [prefix]
    for folder in result:
        with os.scandir(folder) as listing:
            result += [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]
    return result


def discard(prefix: str) -> None:
    """Remove an environment, which may be incomplete.

    The record is removed first, so that no run uses the environment anymore.
    """
    for path in (record_path(prefix), file_list_path(prefix), pack_path(prefix)):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    if os.path.isdir(prefix) and not os.path.islink(prefix):
        unprotect(prefix)
    remove(prefix)


def unprotect(prefix: str) -> None:
    """Restore write permissions, so that the owner can remove the environment."""
    pending = [prefix]
    while pending:
        folder = pending.pop()
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if not mode & 0o200:
            os.chmod(folder, mode | 0o700)
        with os.scandir(folder) as listing:
            pending += [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]


# -- listing -----------------------------------------------------------------------------------------


def list_environments(root: Root) -> List[Dict[str, Any]]:
    """Return the records of complete environments, newest first: digest, python, packages, bytes, built."""
    records = []
    for name in _list_names(root.envs):
        if name.endswith(".json"):
            record = read_json(os.path.join(root.envs, name), "digest", "bytes", "built")
            if record:
                records.append(record)
    return sorted(records, key=lambda record: -float(record["built"]))


def list_leftovers(root: Root) -> List[str]:
    """Return the leftovers of incomplete builds and replaced environments."""
    names = _list_names(root.envs)
    complete = {name[: -len(".json")] for name in names if name.endswith(".json")}
    paths = [os.path.join(root.envs, name) for name in names if name not in complete]
    return [path for path in paths if os.path.isdir(path) or _is_partial_pack(path, complete)]


def _is_partial_pack(path: str, complete: Set[str]) -> bool:
    """Return whether a file is an incomplete archive, or one without a complete environment."""
    name = os.path.basename(path)
    return name.endswith(pack_path("") + ".part") or (
        name.endswith(pack_path("")) and name[: -len(pack_path(""))] not in complete
    )


def describe(problems: List[str]) -> str:
    suffix = "" if len(problems) <= _MAX_NAMED else "; and %d more" % (len(problems) - _MAX_NAMED)
    return "; ".join(problems[:_MAX_NAMED]) + suffix


def _list_names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
