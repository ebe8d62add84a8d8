"""Bytecode of an environment: linked from environments with the same files, otherwise compiled.

If Python comes from conda packages and the run uses a container, Python also compiles in a
container, and writes to a separate folder. The host moves the files from there to the environment.
Such bytecode is never shared with other environments.

An environment is read-only. Without bytecode, every run would compile the sources again.
"""

from __future__ import annotations

import os
import stat

from ..shared.layout import Root
from .build_tools import NoEnvironment
from .environment_state import CACHE, list_environments, list_folders, walk

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

# Runs with the environment's own Python, 3.5 or newer. Each worker compiles every n-th file: compileall's own pool
# hands out single files, which takes a sixth longer. With a third argument, bytecode is written below that folder.
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

paths = [os.path.join(folder, name) for folder, _, names in os.walk(sys.argv[1]) for name in names]
sources = [path for path in paths if path.endswith(".py")]
count = int(sys.argv[2])
pids = []
for part in range(count):
    pid = os.fork()
    if pid == 0:
        for path in sources[part::count]:
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
_MAX_SOURCES = 3  # maximum number of environments to link from


def link_compiled(root: Root, lock: Dict[str, Any], prefix: str) -> int:
    """Link bytecode of environments with the same Python and source files; return the number of files.

    Bytecode identifies its source by time and size, so it is valid wherever the source file is
    hard-linked.
    """
    others = [
        note for note in list_environments(root) if note["digest"] != lock["digest"] and _can_share_bytecode(note)
    ]
    same = [note for note in others if note.get("python") == lock["python"]]
    return sum(_BytecodeSource(prefix, root.environment(str(note["digest"]))).link() for note in same[:_MAX_SOURCES])


def _can_share_bytecode(note: Dict[str, Any]) -> bool:
    """Return whether bytecode may be shared.

    It must not be shared if an untrusted Python compiled it in a container, or may have done so.
    """
    return "image" in note and not (note["image"] and note["python"]["source"] == "conda")


def remove_compiled(prefix: str) -> None:
    """Remove bytecode that packages contain.

    It may differ from the source, and would be shared with other environments.
    """
    for path, _ in walk(prefix):
        if path.endswith(".pyc") and os.path.basename(os.path.dirname(path)) == CACHE:
            os.unlink(path)


class _BytecodeSource:
    """Another environment whose bytecode can be linked."""

    def __init__(self, prefix: str, other: str) -> None:
        self._prefix = prefix
        self._other = other

    def link(self) -> int:
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
                count += self._link_folder(folder, sources)
        return count

    def _link_folder(self, folder: str, sources: List[os.DirEntry[str]]) -> int:
        """Link the bytecode of one folder, unless another environment already provided it."""
        twin = self._other + folder[len(self._prefix) :]
        compiled, existing = _list_compiled(os.path.join(twin, CACHE)), _list_compiled(os.path.join(folder, CACHE))
        count = 0
        for entry in sources if compiled else ():
            if entry.name[:-3] in existing:
                continue
            for name in compiled.get(entry.name[:-3], ()):
                try:
                    if not _is_same_file(entry.stat(follow_symlinks=False), os.lstat(os.path.join(twin, entry.name))):
                        break
                    if not count:
                        os.makedirs(os.path.join(folder, CACHE), exist_ok=True)
                    os.link(os.path.join(twin, CACHE, name), os.path.join(folder, CACHE, name))
                    count += 1
                except OSError:
                    pass  # this file will be compiled instead
        return count


def _is_same_file(first: os.stat_result, second: os.stat_result) -> bool:
    return (first.st_ino, first.st_dev) == (second.st_ino, second.st_dev)


def _list_compiled(folder: str) -> Dict[str, List[str]]:
    """Return the names of compiled files in a folder, by the name of their source file."""
    names_by_source: Dict[str, List[str]] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return names_by_source
    for name in names:
        if name.endswith(".pyc"):
            names_by_source.setdefault(name.split(".")[0], []).append(name)
    return names_by_source


def compile_all(prefix: str, run: Callable[..., None], python: str) -> None:
    """Compile files without bytecode. Files that are not valid in this Python version are skipped."""
    folder = library(prefix)
    if folder:
        run(compile_command(python, folder), None, False)


def compile_command(python: str, folder: str, *out: str) -> List[str]:
    """Return the command that compiles all files below a folder, in place or to the folder ``out``."""
    workers = str(min(16, os.cpu_count() or 1))
    return [python, "-I", "-S", "-W", "ignore", "-c", _COMPILE, folder, workers, *out]


def move_compiled(library: str, out: str) -> None:
    """Move bytecode from ``out``, which a container wrote, to ``library`` without following links."""
    if not stat.S_ISDIR(os.lstat(out).st_mode):
        raise NoEnvironment("cannot compile bytecode with the Python of this environment: expected a folder")
    known_folders = set(list_folders(library))
    for path, status in walk(out):
        folder, name = os.path.split(path[len(out) :])
        if not stat.S_ISREG(status.st_mode) or not name.endswith(".pyc") or os.path.basename(folder) != CACHE:
            continue
        target = library + folder
        if os.path.dirname(target) not in known_folders:
            continue
        if target not in known_folders:
            os.mkdir(target)
            known_folders.add(target)
        os.chmod(path, 0o644)
        os.rename(path, os.path.join(target, name))


def library(prefix: str) -> Optional[str]:
    """Return the folder ``lib/python3.x``."""
    base = os.path.join(prefix, "lib")
    names = sorted(name for name in os.listdir(base) if name.startswith("python"))
    return next((os.path.join(base, name) for name in names if os.path.isdir(os.path.join(base, name))), None)
