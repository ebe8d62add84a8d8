"""What there is on this machine, as plain data: system, user, disk, memory, engines, sessions. Judges nothing.

Runs on every host with whatever Python is there (3.8). What cannot be found out is None; nothing raises, whatever
the machine is like. Programs that must be asked run side by side, each for a few seconds at most.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from .engine_facts import Engines, has_cdi, is_usable
from .questions import Question, answer, ask
from .shared.programs import is_noexec, which

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

    Data = Dict[str, Any]

FACTS = 1  # version of the data below: a client meets older and newer hosts
PATIENCE = 5.0
# File systems that are somewhere else: slower, and without shared memory or reliable locks.
NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs fuse.sshfs 9p lustre beegfs gpfs afs ceph glusterfs fuse.glusterfs".split()
)
_LOGIND = ("/usr/lib/systemd", "/lib/systemd", "/run/systemd", "/etc/systemd")  # weakest first
_TRY = "import socket, sys; h, p = (sys.argv[1] + ':443').split(':')[:2]; socket.create_connection((h, p), 3).close()"
# All that a strange machine may answer with.
_ODD = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, subprocess.SubprocessError)


def gather(
    folder: str,
    patience: float = PATIENCE,
    python: "Optional[str]" = None,
    reach: "Optional[str]" = None,
    named: bool = False,
) -> Data:
    """Everything, with ``folder`` as the place where runs are kept (it need not exist yet).

    ``python``: the one that would run scripts, to be looked for. ``reach``: HOST or HOST:PORT outside, to be tried.
    ``named``: a project named this Python. It is found and not started, for it may be any program.
    """
    questions = {
        "linger": ask("loginctl", "show-user", str(_uid()), "--property=Linger") if _has_logind() else None,
        "script": ask(os.path.expanduser(python), "--version") if python and not named else None,
        "reach": ask(sys.executable, "-I", "-S", "-c", _TRY, reach) if reach else None,
    }
    engines = Engines(str((_safely(_user) or {}).get("name")))
    until = time.monotonic() + patience
    found: Data = {}
    simple: Dict[str, Callable[[], Any]] = {
        "time": time.time,
        "hostname": socket.gethostname,
        "boot_id": lambda: _first_line("/proc/sys/kernel/random/boot_id") or None,
        "os": _system,
        "python": lambda: {"version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable},
        "user": _user,
        "cpu": _cpu,
        "memory": lambda: memory(_read("/proc/meminfo"), _memory_limit()),
        "store": lambda: _store(folder),
        "nvidia": lambda: {
            "driver": driver(_read("/proc/driver/nvidia/version")),
            "smi": which("nvidia-smi"),
            "cdi": has_cdi(),
        },
        "cgroup": _cgroup,
        "docker": lambda: engines.docker(until),
        "podman": lambda: engines.podman(until, spare=is_usable(found["docker"])),
        "logind": lambda: _logind(questions["linger"], until),
        "script": lambda: _script(python, named, answer(questions["script"], until)) if python else None,
        "reach": lambda: _reach(reach, answer(questions["reach"], until)) if reach else None,
    }
    found["facts"] = FACTS
    for name, find in simple.items():
        found[name] = _safely(find)
    _safely(engines.close)
    return found


def _safely(find: Callable[[], Any]) -> Any:
    try:
        return find()
    except _ODD:
        return None


# -- system and user -------------------------------------------------------------------------------


def _system() -> Data:
    kernel = os.uname() if hasattr(os, "uname") else None
    names = os_release(_read("/etc/os-release") or _read("/usr/lib/os-release"))
    return {
        "system": kernel.sysname if kernel else sys.platform,
        "name": names.get("ID"),
        "version": names.get("VERSION_ID"),
        "title": names.get("PRETTY_NAME"),
        "kernel": kernel.release if kernel else None,
        "arch": kernel.machine if kernel else None,
        "libc": _safely(_libc),
    }


def os_release(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _libc() -> Optional[str]:
    """``glibc 2.36``, or ``musl``, which does not tell its version to programs."""
    try:
        known = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError, AttributeError):
        known = None
    if known:
        return known
    return "musl" if any(name.startswith("ld-musl-") for name in os.listdir("/lib")) else None


def _user() -> Data:
    home = os.path.expanduser("~")
    entry = _safely(_passwd)
    return {
        "name": entry.pw_name if entry else os.environ.get("USER"),
        "uid": _uid(),
        "gid": os.getgid() if hasattr(os, "getgid") else None,
        "home": home,
        "home_writable": _is_writable(home),
        "shell": os.environ.get("SHELL") or (entry.pw_shell if entry else None),
    }


def _passwd() -> Any:
    import pwd  # noqa: PLC0415 - not on Windows

    return pwd.getpwuid(os.getuid())


def _uid() -> Optional[int]:
    return os.getuid() if hasattr(os, "getuid") else None


def _is_writable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


# -- what a run uses up ----------------------------------------------------------------------------


def _cpu() -> Data:
    affinity = getattr(os, "sched_getaffinity", None)
    return {"count": os.cpu_count(), "usable": len(affinity(0)) if affinity else os.cpu_count()}


def memory(text: str, limit: Optional[int]) -> Data:
    """From /proc/meminfo; a limit of our cgroup counts only if there is less of it than of memory."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[name] = int(words[0]) * 1024
    total = sizes.get("MemTotal")
    small = limit if limit is not None and (total is None or limit < total) else None
    return {"total": total, "available": sizes.get("MemAvailable"), "limit": small}


def _memory_limit() -> Optional[int]:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _first_line(path)
        if text.isdigit():
            return int(text)
    return None


def _store(folder: str) -> Data:
    place = folder
    while not os.path.isdir(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    usage = _safely(lambda: os.statvfs(place))
    kind = filesystem(_read("/proc/self/mountinfo"), os.path.realpath(place))
    return {
        "folder": folder,
        "writable": _is_writable(place),
        "free": usage.f_bavail * usage.f_frsize if usage else None,
        "total": usage.f_blocks * usage.f_frsize if usage else None,
        # File systems that make inodes as they need them say 0 of 0.
        "inodes_free": usage.f_favail if usage and usage.f_files else None,
        "filesystem": kind,
        "network": None if kind is None else kind in NETWORK,
        "noexec": is_noexec(place),
    }


def filesystem(mounts: str, path: str) -> Optional[str]:
    """Type of the file system a path is on, from /proc/self/mountinfo; of mounts at one place the last counts."""
    best, kind = "", None
    for line in mounts.splitlines():
        words = line.split(" ")
        dash = words.index("-") if "-" in words else 0
        if not dash or len(words) < dash + 2:
            continue
        # Spaces and the like are written as octal numbers.
        place = words[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = place == "/" or path == place or path.startswith(place + "/")
        if inside and len(place) >= len(best):
            best, kind = place, words[dash + 1]
    return kind


# -- GPUs ------------------------------------------------------------------------------------------


def driver(text: str) -> Optional[str]:
    """``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat …`` → ``535.104.05``."""
    for word in text.split():
        parts = word.split(".")
        if len(parts) >= 2 and all(part.isdigit() for part in parts):
            return word
    return None


def _cgroup() -> Optional[int]:
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return 2
    return 1 if os.path.isdir("/sys/fs/cgroup") and os.listdir("/sys/fs/cgroup") else None


# -- what scripts would meet -----------------------------------------------------------------------


def _script(python: str, named: bool, said: "Tuple[Optional[str], Optional[int], str, str]") -> Data:
    found = which(os.path.expanduser(python)) if named else None
    return {"executable": found, "version": None, "tried": False} if named else script(*said)


def script(path: Optional[str], code: Optional[int], out: str, err: str) -> Data:
    """What ``python3 --version`` said; no executable if there is no such program."""
    name, _, version = (out.strip() or err.strip()).partition(" ")  # before 3.4 it was told as an error
    return {"executable": path, "version": version if name == "Python" and code == 0 else None}


def _reach(host: str, answer: "Tuple[Optional[str], Optional[int], str, str]") -> Data:
    """Whether connections to the world outside are answered; a proxy is told of by its being there only."""
    _, code, _, err = answer
    last = (err.strip().splitlines() or ["it took too long"])[-1]
    proxy = any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"))
    return {"host": host, "way": code == 0, "proxy": proxy, "error": None if code == 0 else last.partition(": ")[2]}


# -- sessions --------------------------------------------------------------------------------------


def _has_logind() -> bool:
    return os.path.isdir("/run/systemd/system")


def _logind(linger: Optional[Question], until: float) -> Data:
    """Whether the end of a session ends its processes, and whether this user is excepted."""
    if not _has_logind():
        return {"running": False, "kill_user_processes": None, "linger": None}
    _, _, out, _ = answer(linger, until)
    value = out.strip().partition("=")[2]
    lingers = value == "yes" if value else os.path.exists("/var/lib/systemd/linger/%s" % (_user()["name"],))
    return {"running": True, "kill_user_processes": kill_user_processes(_logind_texts()), "linger": lingers}


def _logind_texts() -> List[str]:
    """The configuration of logind, what counts least first: the file, then its drop-ins in the order of their names."""
    texts = [_read(base + "/logind.conf") for base in _LOGIND]
    drops: Dict[str, str] = {}
    for base in _LOGIND:
        folder = base + "/logind.conf.d"
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            if name.endswith(".conf"):
                drops[name] = folder + "/" + name
    return texts + [_read(path) for _, path in sorted(drops.items())]


def kill_user_processes(texts: Sequence[str]) -> Optional[bool]:
    """The last word on it. The shipped file names the built-in default in a comment, which differs by distribution."""
    default, said = None, None
    for text in texts:
        for line in text.splitlines():
            name, _, value = line.strip().partition("=")
            yes = value.strip().lower() in ("yes", "true", "on", "1")
            if name.strip() == "KillUserProcesses":
                said = yes
            elif name.lstrip("# ").strip() == "KillUserProcesses" and line.strip().startswith("#"):
                default = yes
    return said if said is not None else default


def _read(path: str) -> str:
    """Text of a file of the system; nothing if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _first_line(path: str) -> str:
    return (_read(path).splitlines() or [""])[0]
