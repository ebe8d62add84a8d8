"""The machine: its description, its load, and a clean environment for measurements."""

from __future__ import annotations

import datetime
import fcntl
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

# Variables that are set in some shells and would change the measurements.
_UNSET = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MLW_HOME")
_FICLONE = 0x40049409
BUSY = 0.25  # share of all cores that other processes may use when a round begins


def interpreter() -> str:
    """Return the real Python behind the virtual environment: not a link, not a pyenv shim."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def environment(**more: str) -> dict[str, str]:
    """Return the current environment without variables that would distort the figures."""
    clean = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return {**clean, **more}


def facts(folder: Path) -> list[str]:
    """Return the facts that a reader needs to compare the figures with others."""
    now = datetime.datetime.now().astimezone()
    return [
        f"{now:%Y-%m-%d %H:%M %Z}; mlw at commit {_commit()}",
        f"{_cpu_model()}, {os.cpu_count()} cores, {_memory() / 1e9:.0f} GB of memory",
        f"{platform.system()} {platform.release()}, {file_system(folder)} "
        f"({'copies by reflink' if reflinks(folder) else 'no reflink'})",
        f"Python {platform.python_version()} ({interpreter()}); scripts run in an empty virtual environment of it",
    ]


def _commit() -> str:
    def git(*arguments: str) -> str:
        place = Path(__file__).parent
        return subprocess.run(
            ["git", *arguments], cwd=place, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = git("status", "--porcelain", "--", "../src")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes in src" if changed else "")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder."""
    best, kind = "", "unknown"
    path = os.path.realpath(folder)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def reflinks(folder: Path) -> bool:
    """Return whether files can be copied here without copying their blocks, by trying it."""
    source, target = folder / ".reflink-from", folder / ".reflink-to"
    source.write_bytes(b"x" * 65536)
    try:
        with open(source, "rb") as one, open(target, "wb") as other:
            fcntl.ioctl(other.fileno(), _FICLONE, one.fileno())
        return True
    except OSError:
        return False
    finally:
        source.unlink()
        target.unlink()


# -- load ----------------------------------------------------------------------------------------------


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def busy(seconds: float = 0.1) -> float:
    """Return the share of all cores in use by any process during a short interval."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    passed = after[1] - before[1]
    return (after[0] - before[0]) / passed if passed else 0.0


def _ticks() -> tuple[int, int]:
    with open("/proc/stat") as file:
        numbers = [int(field) for field in file.readline().split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)  # (all except idle and iowait, all)


class Quiet:
    """Delays each round until the machine is quiet. Once a total time limit is used up, rounds start under load."""

    def __init__(self, patience: float) -> None:
        self.left = patience
        self.noisy = 0
        self.turns = 0

    def wait(self) -> None:
        self.turns += 1
        while busy() > BUSY:
            if self.left <= 0:
                self.noisy += 1
                return
            began = time.monotonic()
            time.sleep(0.2)
            self.left -= time.monotonic() - began + 0.1

    def words(self) -> str:
        return f"{self.noisy} of {self.turns} turns began while other work used more than {BUSY:.0%} of the machine"
