"""Leftovers of test sessions: processes, mounts, network interfaces, control groups, accounts, files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from tests.machines.sandbox import clean_up_abandoned, is_in_use

_FOLDERS = Path("/tmp")
_PREFIX = "mlwt-"  # short, because socket paths are limited to 107 bytes
_ALONE = "MLW_TESTS_ALONE"  # set on dedicated computers, where any new file is a leftover
_GRACE = 10  # seconds for helper processes to notice that their test process has ended


class SessionFolder:
    """The temporary folder of a session, locked until the session ends."""

    def __enter__(self) -> Path:
        self.path = _FOLDERS / f"{_PREFIX}{os.getpid()}"
        self.path.mkdir(mode=0o755)
        self._lock = lock(self.path)
        return self.path

    def __exit__(self, *_: object) -> None:
        _remove(self.path)
        os.close(self._lock)


def lock(folder: Path) -> int:
    """Lock the folder against other sessions until the descriptor is closed."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def remove_abandoned() -> None:
    """Remove folders, machines, and engines of killed sessions."""
    for folder in _FOLDERS.glob(f"{_PREFIX}*"):
        if folder.is_dir() and not _is_locked(folder):
            _remove(folder)
    if os.geteuid() == 0:
        clean_up_abandoned()
    for group in Path("/sys/fs").glob("cgroup/**/mlw-costs-*"):
        with contextlib.suppress(OSError):  # in use by another session
            group.rmdir()


def _is_locked(folder: Path) -> bool:
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _remove(folder: Path) -> None:
    """Remove a folder, even if a test removed permissions from its subfolders."""
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = os.path.join(path, name)
            if not os.path.islink(inner) and not os.access(inner, os.W_OK | os.X_OK):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)


@dataclass(frozen=True)
class State:
    """The names of all resources of each kind at one moment."""

    processes: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    interfaces: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def inside(cls) -> State:
        """Take a snapshot of the session's own namespaces."""
        points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
        return cls(processes=frozenset(_processes()), mounts=frozenset(points))

    @classmethod
    def now(cls) -> State:
        """Take a snapshot of the computer. Resources of other active sessions are identified by their locks."""
        return cls(
            interfaces=frozenset(_free(Path("/sys/class/net").glob("mlw*"), "mlw")),
            groups=frozenset(_free(Path("/sys/fs").glob("cgroup/**/mlw-machines-*"), "mlw-machines-")),
            accounts=frozenset(_lines("/etc/passwd", "/etc/group")),
            files=frozenset(_files()) if os.environ.get(_ALONE) else frozenset(),
        )

    def beyond(self, before: State) -> list[str]:
        """Return a line for each new resource."""
        return [
            f"{field.name}: {name}"
            for field in fields(self)
            for name in sorted(getattr(self, field.name) - getattr(before, field.name))
        ]


def wait_for_processes() -> None:
    end = time.monotonic() + _GRACE
    while any(True for _ in _processes()) and time.monotonic() < end:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(0.02)


def _processes() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command:  # otherwise it is a zombie that waits to be reaped
                    yield f"{command[:200]} ({entry.name})"
            except OSError:
                continue


def _free(paths: Iterator[Path], prefix: str) -> Iterator[str]:
    for path in paths:
        number = path.name.removeprefix(prefix)
        if number.isdigit() and not is_in_use(int(number)):
            yield str(path)


def _lines(*files: str) -> Iterator[str]:
    for file in files:
        yield from (f"{file}: {line.partition(':')[0]}" for line in Path(file).read_text().splitlines())


def _files() -> Iterator[str]:
    """Yield the files that tests could leave. Used on dedicated computers, where no other program creates files."""
    home = Path.home()
    for folder in (_FOLDERS, Path("/var/tmp"), Path("/dev/shm"), Path("/run"), home, home / ".cache", home / ".config"):
        if folder.is_dir():
            names = (path for path in folder.iterdir() if not path.name.startswith(_PREFIX))
            yield from map(str, names)
