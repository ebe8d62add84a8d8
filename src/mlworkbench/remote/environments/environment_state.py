"""Environments on this machine: which one a lock means, whether it is there and sound, what is in them, their end.

An environment is built where it will live, because its own path stands in its scripts. It counts from the moment that
``<digest>.json`` appears beside it, whole, by a rename; without that it is the rest of a build that did not end.

Two locks lie beside it, and stay there when it goes, because a lock that is removed can be held by two:
``<digest>.lock`` is held alone by who builds it. ``<digest>.use`` is shared by the runs that use it, each from before
it looks for the environment until it ends (``hold``), and is held alone by who removes it (``retire.py``), for moments.
So a run finds the environment whole, or not at all and builds it. The lines of ``<digest>.use`` are those runs, and its
time is that of the last use. ``caches.use`` is the same for what builds share: caches, tools and packages.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
import time

from ..shared import machine
from ..shared.environment_layout import packed, prefix_of, python_home, python_of
from ..shared.files import read_json, write_whole
from ..shared.layout import Root
from ..shared.tree import make_private, remove

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

    Lock = Dict[str, Any]
    Found = Tuple[str, os.stat_result]

CACHE = "__pycache__"
# Kinds of lines in the list of files; sorted, so that what is looked at often comes first.
FOLDER, LOOKED_AT, OTHER = "a", "b", "c"
_MOST_NAMED = 5
_LOOK = 0.005


# -- is it there and sound ---------------------------------------------------------------------------


def note_of(prefix: str) -> str:
    return prefix + ".json"


def files_of(prefix: str) -> str:
    """The list of its files, one a line."""
    return prefix + ".files"


def is_sound(root: Root, lock: Lock) -> bool:
    """Whether it is there and looks as it was built. Asked before each start, so it looks at what breaks runs.

    That is every folder (what was added, removed or replaced shows in its time) and every source, library and program.
    """
    prefix = prefix_of(root, lock)
    note = read_json(note_of(prefix), "digest", "listed")
    if not note or note["digest"] != lock["digest"]:
        return False
    try:
        if not os.access(python_of(prefix), os.X_OK):  # often a link: the Python behind it may be gone
            return False
        if os.path.getsize(files_of(prefix)) != note["listed"]:
            return False
        with open(files_of(prefix), encoding="utf-8", errors="surrogateescape") as file:
            return _looks_right(prefix, file)
    except (OSError, ValueError):
        return False


def _looks_right(prefix: str, lines: Iterable[str]) -> bool:
    for line in lines:
        kind, size, changed, path = line.rstrip("\n").split(" ", 3)
        if kind == OTHER:
            return True
        facts = os.lstat(prefix + "/" + path)
        if facts.st_mtime_ns != int(changed) or (kind != FOLDER and facts.st_size != int(size)):
            return False
    return True


def listing(prefix: str) -> str:
    """All that is in it, a line each: kind, size, time of change, path. What ``is_sound`` looks at comes first."""
    base = len(prefix) + 1
    found = [
        "%s %d %d %s" % (_kind(path[base:], facts), facts.st_size, facts.st_mtime_ns, path[base:])
        for path, facts in walk(prefix)
    ]
    for folder in folders(prefix):
        if os.path.basename(folder) != CACHE:
            found.append("%s 0 %d %s" % (FOLDER, os.lstat(folder).st_mtime_ns, folder[base:]))
    found.sort()
    return "\n".join(found)


def _kind(path: str, facts: os.stat_result) -> str:
    name = path.rsplit("/", 1)[-1]
    if name.endswith((".py", ".pth")) or ".so" in name or path.startswith("bin/"):
        return LOOKED_AT
    return OTHER


def walk(folder: str) -> Iterator[Found]:
    """Files and links below a folder, with their facts; no link is followed."""
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)


def damage(root: Root, lock: Lock) -> List[str]:
    """What is wrong with it, file by file: as it was built, and every content as its package has it."""
    prefix = prefix_of(root, lock)
    try:
        with open(files_of(prefix), encoding="utf-8", errors="surrogateescape") as file:
            known = _by_path(file.read())
        found = _by_path(listing(prefix))
    except (OSError, ValueError) as error:
        return ["its file list cannot be read: %s" % error]
    wrong = ["%s is missing" % path for path in sorted(set(known) - set(found))]
    wrong += ["%s was added" % path for path in sorted(set(found) - set(known))]
    changed = {path for path in set(known) & set(found) if known[path] != found[path]}
    for path, sha256 in contents(prefix):
        if path in found and path not in changed and _digest(os.path.join(prefix, path)) != sha256:
            changed.add(path)
    return wrong + ["%s was changed" % path for path in sorted(changed)]


def _by_path(text: str) -> Dict[str, str]:
    """Files without the folders, nor bytecode that a run may have added."""
    lines = (line.split(" ", 3) for line in text.split("\n"))
    return {path: size + " " + changed for kind, size, changed, path in lines if kind != FOLDER and CACHE not in path}


def contents(prefix: str) -> Iterator[Tuple[str, str]]:
    """Path and SHA-256 of what the packages say of their own files."""
    for path, _ in walk(prefix):
        folder, name = os.path.split(path)
        if name == "RECORD" and folder.endswith(".dist-info"):
            yield from _record(prefix, path)
        elif name.endswith(".json") and os.path.basename(folder) == "conda-meta":
            for one in (read_json(path) or {}).get("paths_data", {}).get("paths", []):
                if one.get("sha256_in_prefix") and one.get("path_type") == "hardlink":
                    yield one["_path"], one["sha256_in_prefix"]


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
    """From here on it counts."""
    prefix = prefix_of(root, lock)
    text = listing(prefix)
    content = text.encode("utf-8", "surrogateescape")
    part = files_of(prefix) + ".part"
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, files_of(prefix))
    note = dict(
        facts,
        digest=lock["digest"],
        python=lock["python"],
        home=python_home(root, lock),
        packages=len(lock["conda"]) + len(lock["pip"]),
        bytes=sum(int(line.split(" ", 2)[1]) for line in text.split("\n")),
        listed=len(content),
        lock=lock,
    )
    write_whole(note_of(prefix), note)


# -- nobody removes it -------------------------------------------------------------------------------


def use_of(prefix: str) -> str:
    """Lock of those who use it, and the list of them."""
    return prefix + ".use"


def hold(root: Root, lock: Lock, run: str = "") -> int:
    """A descriptor that keeps the environment from being removed until it is closed or its process dies.

    To be had before the environment is looked for or built. ``run`` is the run that it is for: if its supervisor dies
    and the script goes on, the environment stays all the same.
    """
    make_private(root.envs)
    path = use_of(prefix_of(root, lock))
    holder = _share(path)
    try:
        if run:
            with open(path, "a", encoding="utf-8") as file:
                file.write(run + "\n")
        os.utime(path)
    except OSError:
        pass  # a full disk must not keep a run from what is there
    return holder


def touch(root: Root, lock: Lock) -> None:
    """It is used now: told to those who look for what nobody has used for long."""
    with open(use_of(prefix_of(root, lock)), "ab") as file:
        os.utime(file.name)


def caches_lock(root: Root) -> str:
    return os.path.join(root.envs, "caches.use")


def hold_caches(root: Root) -> int:
    """The same for caches, tools and packages, which every build uses."""
    make_private(root.envs)
    return _share(caches_lock(root))


def _share(path: str) -> int:
    while True:
        holder = machine.share(path)
        if holder is not None:
            return holder
        time.sleep(_LOOK)  # it is just being removed: a matter of a rename


# -- nobody changes it -------------------------------------------------------------------------------


def protect(prefix: str) -> None:
    """Files and folders lose their write bits: a run, or a pip in it, cannot change what other runs share.

    Files may be hard links of a cache's, which is thereby protected too.
    """
    for path, facts in walk(prefix):
        if not stat.S_ISLNK(facts.st_mode) and facts.st_mode & 0o222:
            os.chmod(path, stat.S_IMODE(facts.st_mode) & ~0o222)
    for folder in folders(prefix):
        os.chmod(folder, stat.S_IMODE(os.lstat(folder).st_mode) & ~0o222)


def folders(prefix: str) -> List[str]:
    """With the innermost last."""
    found = [prefix]
    for folder in found:
        with os.scandir(folder) as listing:
            found += [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]
    return found


def discard(prefix: str) -> None:
    """Remove an environment, or what is left of one. The note first: from then on it does not count."""
    for path in (note_of(prefix), files_of(prefix), packed(prefix)):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    if os.path.isdir(prefix) and not os.path.islink(prefix):
        unprotect(prefix)
    remove(prefix)


def unprotect(prefix: str) -> None:
    """So that its owner can remove it."""
    pending = [prefix]
    while pending:
        folder = pending.pop()
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if not mode & 0o200:
            os.chmod(folder, mode | 0o700)
        with os.scandir(folder) as listing:
            pending += [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]


# -- all of them -------------------------------------------------------------------------------------


def environments(root: Root) -> List[Dict[str, Any]]:
    """Those that count, newest first: digest, python, packages, bytes, built."""
    found = []
    for name in _names(root.envs):
        if name.endswith(".json"):
            note = read_json(os.path.join(root.envs, name), "digest", "bytes", "built")
            if note:
                found.append(note)
    return sorted(found, key=lambda note: -float(note["built"]))


def leftovers(root: Root) -> List[str]:
    """What is left of builds that did not end, and of environments that were replaced."""
    names = _names(root.envs)
    complete = {name[: -len(".json")] for name in names if name.endswith(".json")}
    paths = [os.path.join(root.envs, name) for name in names if name not in complete]
    return [path for path in paths if os.path.isdir(path) or _is_half(path, complete)]


def _is_half(path: str, complete: Set[str]) -> bool:
    """A packed environment that was not written to its end, or that has no environment."""
    name = os.path.basename(path)
    return name.endswith(packed("") + ".part") or (
        name.endswith(packed("")) and name[: -len(packed(""))] not in complete
    )


def describe(wrong: List[str]) -> str:
    more = "" if len(wrong) <= _MOST_NAMED else "; and %d more" % (len(wrong) - _MOST_NAMED)
    return "; ".join(wrong[:_MOST_NAMED]) + more


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
