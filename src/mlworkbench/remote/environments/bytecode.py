"""Bytecode of an environment: taken over from one that has the same files, the rest compiled.

An environment is read-only, so what is not compiled now would be compiled again by every run.
"""

from __future__ import annotations

import os

from ..folder import Root
from .environment import CACHE, environments, python_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

# By the environment's own Python, 3.5 to the newest. Each worker takes every n-th file: compileall's own pool hands out
# one at a time, which costs a sixth more.
_COMPILE = """
import compileall, os, sys
every = [os.path.join(folder, name) for folder, _, names in os.walk(sys.argv[1]) for name in names]
found = [path for path in every if path.endswith(".py")]
count = int(sys.argv[2])
pids = []
for part in range(count):
    pid = os.fork()
    if pid == 0:
        for path in found[part::count]:
            try:
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
    others = [one for one in environments(root) if one["digest"] != lock["digest"]]
    same = [one for one in others if one.get("python") == lock["python"]]
    return sum(_Lender(prefix, root.environment(str(one["digest"]))).lend() for one in same[:_FROM])


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


def compile_all(prefix: str, run: Callable[..., None]) -> None:
    """What is compiled already is only looked at. Files that are no Python of this version are left as they are."""
    folder = library(prefix)
    if folder:
        workers = str(min(16, os.cpu_count() or 1))
        run([python_of(prefix), "-I", "-S", "-W", "ignore", "-c", _COMPILE, folder, workers], None, False)


def library(prefix: str) -> Optional[str]:
    """``lib/python3.x``."""
    base = os.path.join(prefix, "lib")
    names = sorted(name for name in os.listdir(base) if name.startswith("python"))
    return next((os.path.join(base, name) for name in names if os.path.isdir(os.path.join(base, name))), None)
