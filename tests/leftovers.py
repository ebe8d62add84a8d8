"""What a session of tests could leave on this computer: processes, mounts, interfaces, groups, accounts, files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from tests.machines.place import is_taken, sweep_abandoned

_FOLDERS = Path("/tmp")
_PREFIX = "mlwt-"  # short: sockets in it have names of at most 107 bytes
_ALONE = "MLW_TESTS_ALONE"  # set where nothing else works on this computer: then every new file counts
_GRACE = 10  # seconds in which helpers of a test process notice its end


class SessionFolder:
    """The temporary folder of one session, locked as long as it lives."""

    def __enter__(self) -> Path:
        self.path = _FOLDERS / f"{_PREFIX}{os.getpid()}"
        self.path.mkdir(mode=0o755)
        self._lock = lock(self.path)
        return self.path

    def __exit__(self, *_: object) -> None:
        _remove(self.path)
        os.close(self._lock)


def lock(folder: Path) -> int:
    """Show other sessions that the folder is in use, until the descriptor is closed."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def remove_abandoned() -> None:
    """What sessions left that were killed: their folders, machines and engines."""
    for folder in _FOLDERS.glob(f"{_PREFIX}*"):
        if folder.is_dir() and not _is_locked(folder):
            _remove(folder)
    if os.geteuid() == 0:
        sweep_abandoned()
    for group in Path("/sys/fs").glob("cgroup/**/mlw-costs-*"):
        with contextlib.suppress(OSError):  # another session is in it
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
    """Also what a test made read-only or immovable by its modes."""
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = os.path.join(path, name)
            if not os.path.islink(inner) and not os.access(inner, os.W_OK | os.X_OK):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)


@dataclass(frozen=True)
class State:
    """Names of things of each kind, at one moment."""

    processes: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    interfaces: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def inside(cls) -> State:
        """Of the session's own namespaces."""
        points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
        return cls(processes=frozenset(_processes()), mounts=frozenset(points))

    @classmethod
    def now(cls) -> State:
        """Of the computer, where other sessions may be at work: their names are known by the locks that they hold."""
        return cls(
            interfaces=frozenset(_free(Path("/sys/class/net").glob("mlw*"), "mlw")),
            groups=frozenset(_free(Path("/sys/fs").glob("cgroup/**/mlw-machines-*"), "mlw-machines-")),
            accounts=frozenset(_lines("/etc/passwd", "/etc/group")),
            files=frozenset(_files()) if os.environ.get(_ALONE) else frozenset(),
        )

    def beyond(self, before: State) -> list[str]:
        """Lines for what there is now and was not then."""
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
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words:  # else it has ended and only waits to be taken note of
                    yield f"{words[:200]} ({entry.name})"
            except OSError:
                continue


def _free(paths: Iterator[Path], prefix: str) -> Iterator[str]:
    for path in paths:
        number = path.name.removeprefix(prefix)
        if number.isdigit() and not is_taken(int(number)):
            yield str(path)


def _lines(*files: str) -> Iterator[str]:
    for file in files:
        yield from (f"{file}: {line.partition(':')[0]}" for line in Path(file).read_text().splitlines())


def _files() -> Iterator[str]:
    """Where nothing else works, all that is new was made by the tests."""
    home = Path.home()
    for folder in (_FOLDERS, Path("/var/tmp"), Path("/dev/shm"), Path("/run"), home, home / ".cache", home / ".config"):
        if folder.is_dir():
            names = (path for path in folder.iterdir() if not path.name.startswith(_PREFIX))
            yield from map(str, names)
