"""Bytecode of an environment: taken over from one that has the same files, the rest compiled.

Where the Python comes from conda packages and the run is in a container, it compiles in a container, too, to a folder
of its own. The host moves the files from there into the environment. Such bytecode is never lent to others.

An environment is read-only, so what is not compiled now would be compiled again by every run.
"""

from __future__ import annotations

import os
import stat

from ..shared.layout import Root
from .environment import CACHE, environments, folders, walk
from .tools import NoEnvironment

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

# By the environment's own Python, 3.5 to the newest. Each worker takes every n-th file: compileall's own pool hands out
# one at a time, which costs a sixth more. With a third argument the bytecode is written below that folder.
_COMPILE = """
import compileall, importlib.util, os, py_compile, struct, sys

def compile_to(out, path):
    cache = importlib.util.cache_from_source(path)
    head = struct.pack("<4sLL", importlib.util.MAGIC_NUMBER, 0, int(os.stat(path).st_mtime) & 0xFFFFFFFF)
    if os.path.exists(cache):
        with open(cache, "rb") as file:
            if file.read(12) == head:
                return
    py_compile.compile(path, os.path.join(out, os.path.relpath(cache, sys.argv[1])), path, True)

every = [os.path.join(folder, name) for folder, _, names in os.walk(sys.argv[1]) for name in names]
found = [path for path in every if path.endswith(".py")]
count = int(sys.argv[2])
pids = []
for part in range(count):
    pid = os.fork()
    if pid == 0:
        for path in found[part::count]:
            try:
                if sys.argv[3:]:
                    compile_to(sys.argv[3], path)
                else:
                    compileall.compile_file(path, quiet=2)
            except Exception:
                pass
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
"""
_FROM = 3  # how many other environments are asked


def borrow(root: Root, lock: Dict[str, Any], prefix: str) -> int:
    """Link compiled files of environments with the same Python whose sources are the very same files; how many.

    Bytecode names its source by time and size, so that one source's bytecode serves wherever the source is linked.
    """
    others = [one for one in environments(root) if one["digest"] != lock["digest"] and _may_lend(one)]
    same = [one for one in others if one.get("python") == lock["python"]]
    return sum(_Lender(prefix, root.environment(str(one["digest"]))).lend() for one in same[:_FROM])


def _may_lend(note: Dict[str, Any]) -> bool:
    """Not if its Python ran in a container: that one may be any program. Notes of older versions do not say it."""
    return "image" in note and not (note["image"] and note["python"]["source"] == "conda")


def drop_compiled(prefix: str) -> None:
    """Remove bytecode that packages brought along. It may differ from the source, and would be lent to others."""
    for path, _ in walk(prefix):
        if path.endswith(".pyc") and os.path.basename(os.path.dirname(path)) == CACHE:
            os.unlink(path)


class _Lender:
    """Another environment, whose bytecode may serve here."""

    def __init__(self, prefix: str, other: str) -> None:
        self._prefix = prefix
        self._other = other

    def lend(self) -> int:
        count = 0
        pending = [self._prefix]
        while pending:
            folder = pending.pop()
            sources = []
            with os.scandir(folder) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != CACHE:
                            pending.append(entry.path)
                    elif entry.name.endswith(".py"):
                        sources.append(entry)
            if sources:
                count += self._lend(folder, sources)
        return count

    def _lend(self, folder: str, sources: List[os.DirEntry[str]]) -> int:
        """The bytecode of one folder, but for what another environment has lent already."""
        twin = self._other + folder[len(self._prefix) :]
        compiled, here = _compiled(os.path.join(twin, CACHE)), _compiled(os.path.join(folder, CACHE))
        count = 0
        for entry in sources if compiled else ():
            if entry.name[:-3] in here:
                continue
            for name in compiled.get(entry.name[:-3], ()):
                try:
                    if not _same(entry.stat(follow_symlinks=False), os.lstat(os.path.join(twin, entry.name))):
                        break
                    if not count:
                        os.makedirs(os.path.join(folder, CACHE), exist_ok=True)
                    os.link(os.path.join(twin, CACHE, name), os.path.join(folder, CACHE, name))
                    count += 1
                except OSError:
                    pass  # it is compiled then
        return count


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_dev) == (other.st_ino, other.st_dev)


def _compiled(folder: str) -> Dict[str, List[str]]:
    """Names of the compiled files in a folder, by their source's name."""
    found: Dict[str, List[str]] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        if name.endswith(".pyc"):
            found.setdefault(name.split(".")[0], []).append(name)
    return found


def compile_all(prefix: str, run: Callable[..., None], python: str) -> None:
    """What is compiled already is only looked at. Files that are no Python of this version are left as they are."""
    folder = library(prefix)
    if folder:
        run(compile_command(python, folder), None, False)


def compile_command(python: str, folder: str, *out: str) -> List[str]:
    """Compile all below a folder: in place, or to the folder ``out``."""
    workers = str(min(16, os.cpu_count() or 1))
    return [python, "-I", "-S", "-W", "ignore", "-c", _COMPILE, folder, workers, *out]


def adopt(library: str, out: str) -> None:
    """Move bytecode from ``out``, which a container wrote, to its place below ``library``. No link is followed."""
    if not stat.S_ISDIR(os.lstat(out).st_mode):
        raise NoEnvironment("cannot compile bytecode with the Python of this environment: expected a folder")
    known = set(folders(library))
    for path, facts in walk(out):
        folder, name = os.path.split(path[len(out) :])
        if not stat.S_ISREG(facts.st_mode) or not name.endswith(".pyc") or os.path.basename(folder) != CACHE:
            continue
        target = library + folder
        if os.path.dirname(target) not in known:
            continue
        if target not in known:
            os.mkdir(target)
            known.add(target)
        os.chmod(path, 0o644)
        os.rename(path, os.path.join(target, name))


def library(prefix: str) -> Optional[str]:
    """``lib/python3.x``."""
    base = os.path.join(prefix, "lib")
    names = sorted(name for name in os.listdir(base) if name.startswith("python"))
    return next((os.path.join(base, name) for name in names if os.path.isdir(os.path.join(base, name))), None)
