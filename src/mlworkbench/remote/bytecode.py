"""Bytecode of an environment: taken over from one that has the same files, the rest compiled.

An environment is read-only, so what is not compiled now would be compiled again by every run.
"""

from __future__ import annotations

import os

from .environment import environments, python_of, walk
from .folder import Root

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
        self._folder = ""  # the one that was listed last, and its compiled files by their source's name
        self._names: Dict[str, List[str]] = {}

    def lend(self) -> int:
        sources = [one for one in walk(self._prefix) if one[0].endswith(".py") and one[1].st_nlink > 1]
        return sum(self._link(path, facts) for path, facts in sources)

    def _link(self, path: str, facts: os.stat_result) -> int:
        twin = self._other + path[len(self._prefix) :]
        count = 0
        try:
            there = os.lstat(twin)
            if (there.st_ino, there.st_dev) != (facts.st_ino, facts.st_dev):
                return 0
            folder, name = os.path.split(path)
            for compiled in self._compiled(os.path.dirname(twin), name[:-3]):
                os.makedirs(os.path.join(folder, "__pycache__"), exist_ok=True)
                os.link(os.path.join(self._folder, compiled), os.path.join(folder, "__pycache__", compiled))
                count += 1
        except OSError:
            pass  # it is compiled then
        return count

    def _compiled(self, folder: str, stem: str) -> List[str]:
        """Names of the compiled files of one source; each folder is listed once."""
        folder = os.path.join(folder, "__pycache__")
        if folder != self._folder:
            self._folder, self._names = folder, {}
            for name in os.listdir(folder):
                if name.endswith(".pyc"):
                    self._names.setdefault(name.split(".")[0], []).append(name)
        return self._names.get(stem, [])


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
