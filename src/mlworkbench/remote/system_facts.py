"""Facts about this machine as plain data: system, user, disk, memory, engines, and sessions.

This runs on every host with the host's own Python (3.8 or newer). Unknown values are None, and
unusual machines do not cause exceptions. Programs run in parallel, each for at most a few seconds.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from .engine_facts import Engines, has_cdi, is_usable
from .parallel_programs import StartedProgram, collect_output, start_program
from .shared.program_lookup import is_noexec, which

TYPE_CHECKING = False  # importing typing would take as long as the rest of the program
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

    Data = Dict[str, Any]

FACTS = 1  # version of this format: clients connect to older and newer hosts
TIMEOUT = 5.0
# Network file systems are slower, and lack shared memory and reliable locks.
NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs fuse.sshfs 9p lustre beegfs gpfs afs ceph glusterfs fuse.glusterfs".split()
)
_LOGIND = ("/usr/lib/systemd", "/lib/systemd", "/run/systemd", "/etc/systemd")  # lowest precedence first
_CONNECT_SCRIPT = (
    "import socket, sys; h, p = (sys.argv[1] + ':443').split(':')[:2]; socket.create_connection((h, p), 3).close()"
)
# Errors that may occur on unusual machines.
_EXPECTED_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    RuntimeError,
    subprocess.SubprocessError,
)


def gather(
    folder: str,
    timeout: float = TIMEOUT,
    python: "Optional[str]" = None,
    reach: "Optional[str]" = None,
    named: bool = False,
) -> Data:
    """Return all facts. ``folder`` is where runs are stored; it need not exist yet.

    ``python`` is the script interpreter to look for. ``reach`` is an external HOST or HOST:PORT to
    connect to. If the project names the interpreter (``named``), it is located but not started, because
    it may be any program.
    """
    programs = {
        "linger": start_program("loginctl", "show-user", str(_uid()), "--property=Linger") if _has_logind() else None,
        "script": start_program(os.path.expanduser(python), "--version") if python and not named else None,
        "reach": start_program(sys.executable, "-I", "-S", "-c", _CONNECT_SCRIPT, reach) if reach else None,
    }
    engines = Engines(str((_safely(_user_facts) or {}).get("name")))
    deadline = time.monotonic() + timeout
    facts: Data = {}
    readers: Dict[str, Callable[[], Any]] = {
        "time": time.time,
        "hostname": socket.gethostname,
        "boot_id": lambda: _first_line("/proc/sys/kernel/random/boot_id") or None,
        "os": _system_facts,
        "python": lambda: {"version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable},
        "user": _user_facts,
        "cpu": _cpu_facts,
        "memory": lambda: parse_memory(_read("/proc/meminfo"), _memory_limit()),
        "store": lambda: _store_facts(folder),
        "nvidia": lambda: {
            "driver": parse_driver_version(_read("/proc/driver/nvidia/version")),
            "smi": which("nvidia-smi"),
            "cdi": has_cdi(),
        },
        "cgroup": _cgroup_version,
        "docker": lambda: engines.docker(deadline),
        "podman": lambda: engines.podman(deadline, optional=is_usable(facts["docker"])),
        "logind": lambda: _logind_facts(programs["linger"], deadline),
        "script": lambda: (
            _script_facts(python, named, collect_output(programs["script"], deadline)) if python else None
        ),
        "reach": lambda: _connection_facts(reach, collect_output(programs["reach"], deadline)) if reach else None,
    }
    facts["facts"] = FACTS
    for name, read in readers.items():
        facts[name] = _safely(read)
    _safely(engines.close)
    return facts


def _safely(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except _EXPECTED_ERRORS:
        return None


# -- system and user -------------------------------------------------------------------------------


def _system_facts() -> Data:
    kernel = os.uname() if hasattr(os, "uname") else None
    names = parse_os_release(_read("/etc/os-release") or _read("/usr/lib/os-release"))
    return {
        "system": kernel.sysname if kernel else sys.platform,
        "name": names.get("ID"),
        "version": names.get("VERSION_ID"),
        "title": names.get("PRETTY_NAME"),
        "kernel": kernel.release if kernel else None,
        "arch": kernel.machine if kernel else None,
        "libc": _safely(_libc),
    }


def parse_os_release(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _libc() -> Optional[str]:
    """Return ``glibc 2.36``, or ``musl``, which does not report its version."""
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError, AttributeError):
        version = None
    if version:
        return version
    return "musl" if any(name.startswith("ld-musl-") for name in os.listdir("/lib")) else None


def _user_facts() -> Data:
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


# -- resources -------------------------------------------------------------------------------------


def _cpu_facts() -> Data:
    affinity = getattr(os, "sched_getaffinity", None)
    return {"count": os.cpu_count(), "usable": len(affinity(0)) if affinity else os.cpu_count()}


def parse_memory(text: str, limit: Optional[int]) -> Data:
    """Parse /proc/meminfo. The cgroup limit counts only if it is smaller than the total memory."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and fields[0].isdigit():
            sizes[name] = int(fields[0]) * 1024
    total = sizes.get("MemTotal")
    effective_limit = limit if limit is not None and (total is None or limit < total) else None
    return {"total": total, "available": sizes.get("MemAvailable"), "limit": effective_limit}


def _memory_limit() -> Optional[int]:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _first_line(path)
        if text.isdigit():
            return int(text)
    return None


def _store_facts(folder: str) -> Data:
    existing = folder
    while not os.path.isdir(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)
    usage = _safely(lambda: os.statvfs(existing))
    kind = filesystem_type(_read("/proc/self/mountinfo"), os.path.realpath(existing))
    return {
        "folder": folder,
        "writable": _is_writable(existing),
        "free": usage.f_bavail * usage.f_frsize if usage else None,
        "total": usage.f_blocks * usage.f_frsize if usage else None,
        # File systems that allocate inodes on demand report a total of 0.
        "inodes_free": usage.f_favail if usage and usage.f_files else None,
        "filesystem": kind,
        "network": None if kind is None else kind in NETWORK,
        "noexec": is_noexec(existing),
    }


def filesystem_type(mounts: str, path: str) -> Optional[str]:
    """Return the file system type of a path from /proc/self/mountinfo.

    If several file systems are mounted at the same place, the last one counts.
    """
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split(" ")
        separator = fields.index("-") if "-" in fields else 0
        if not separator or len(fields) < separator + 2:
            continue
        # Whitespace is escaped as octal numbers.
        mount_point = (
            fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        )
        is_below = mount_point == "/" or path == mount_point or path.startswith(mount_point + "/")
        if is_below and len(mount_point) >= len(best):
            best, kind = mount_point, fields[separator + 1]
    return kind


# -- GPUs ------------------------------------------------------------------------------------------


def parse_driver_version(text: str) -> Optional[str]:
    """Return ``535.104.05`` for ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  …``."""
    for word in text.split():
        parts = word.split(".")
        if len(parts) >= 2 and all(part.isdigit() for part in parts):
            return word
    return None


def _cgroup_version() -> Optional[int]:
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return 2
    return 1 if os.path.isdir("/sys/fs/cgroup") and os.listdir("/sys/fs/cgroup") else None


# -- Python and network ----------------------------------------------------------------------------


def _script_facts(python: str, named: bool, output: "Tuple[Optional[str], Optional[int], str, str]") -> Data:
    path = which(os.path.expanduser(python)) if named else None
    return {"executable": path, "version": None, "tried": False} if named else parse_python_version(*output)


def parse_python_version(path: Optional[str], code: Optional[int], out: str, err: str) -> Data:
    """Parse the output of ``python3 --version``. ``path`` is None if the program does not exist."""
    name, _, version = (out.strip() or err.strip()).partition(" ")  # Python before 3.4 prints to stderr
    return {"executable": path, "version": version if name == "Python" and code == 0 else None}


def _connection_facts(host: str, output: "Tuple[Optional[str], Optional[int], str, str]") -> Data:
    """Return whether the external host is reachable, and whether a proxy is configured."""
    _, code, _, err = output
    last_line = (err.strip().splitlines() or ["it took too long"])[-1]
    proxy = any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"))
    return {
        "host": host,
        "way": code == 0,
        "proxy": proxy,
        "error": None if code == 0 else last_line.partition(": ")[2],
    }


# -- sessions --------------------------------------------------------------------------------------


def _has_logind() -> bool:
    return os.path.isdir("/run/systemd/system")


def _logind_facts(linger: Optional[StartedProgram], deadline: float) -> Data:
    """Return whether logind kills processes at the end of a session, and whether lingering is enabled for this user."""
    if not _has_logind():
        return {"running": False, "kill_user_processes": None, "linger": None}
    _, _, out, _ = collect_output(linger, deadline)
    value = out.strip().partition("=")[2]
    lingers = value == "yes" if value else os.path.exists("/var/lib/systemd/linger/%s" % (_user_facts()["name"],))
    return {"running": True, "kill_user_processes": kill_user_processes(_read_logind_files()), "linger": lingers}


def _read_logind_files() -> List[str]:
    """Return the logind configuration, lowest precedence first: the file, then its sorted drop-ins."""
    texts = [_read(base + "/logind.conf") for base in _LOGIND]
    drop_ins: Dict[str, str] = {}
    for base in _LOGIND:
        folder = base + "/logind.conf.d"
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            if name.endswith(".conf"):
                drop_ins[name] = folder + "/" + name
    return texts + [_read(path) for _, path in sorted(drop_ins.items())]


def kill_user_processes(texts: Sequence[str]) -> Optional[bool]:
    """Return whether logind kills the processes of a user at logout, or None if this is unknown.

    The default differs by distribution; the shipped file contains it in a comment.
    """
    default, configured = None, None
    for text in texts:
        for line in text.splitlines():
            name, _, value = line.strip().partition("=")
            enabled = value.strip().lower() in ("yes", "true", "on", "1")
            if name.strip() == "KillUserProcesses":
                configured = enabled
            elif name.lstrip("# ").strip() == "KillUserProcesses" and line.strip().startswith("#"):
                default = enabled
    return configured if configured is not None else default


def _read(path: str) -> str:
    """Return the text of a system file, or "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _first_line(path: str) -> str:
    return (_read(path).splitlines() or [""])[0]
