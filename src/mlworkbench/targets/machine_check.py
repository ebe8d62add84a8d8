"""Derive findings with remedies from facts about a machine, without side effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import MlwError
from ..failure import Failure
from ..hosts.host_facts import Engine, Facts, Store
from ..model import Compute, Interpreter
from ..remote.shared.containers import NO_IDS, NO_NAMESPACES, NO_RESPONSE, NO_UIDMAP
from .types import type_of

OK, WARNING, ERROR = "ok", "warning", "error"

MB, GB = 10**6, 10**9
SCARCE, FULL = GB, 100 * MB  # bytes; less free space is a warning, or an error
FEW_INODES = 10_000
LITTLE_MEMORY = 256 * MB
SKEW = 120.0  # maximum clock difference in seconds
UNTESTED = ("Darwin", "win32", "Windows")


@dataclass(frozen=True)
class Finding:
    """The result of a check. ``hint``: remedy if it failed; ``more``: page for ``mlw explain``."""

    what: str
    state: str
    found: str
    hint: str | None = None
    more: str | None = None


@dataclass(frozen=True)
class Link:
    """The connection to another machine."""

    identity: str
    round_trip: float  # round trip in seconds
    skew: float  # seconds by which its clock is ahead
    library: str  # digest of the mlw code that was uploaded to the machine


_PODMAN_REMEDIES = {
    NO_IDS: "on the target, run: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
    NO_NAMESPACES: "ask the administrator to allow user namespaces: user.max_user_namespaces in sysctl",
    NO_UIDMAP: "on the target, run: sudo apt install uidmap (on Fedora and RHEL, install shadow-utils)",
}
# Names of ``mlw explain`` pages.
_NOT_PERMITTED, _NOT_RUNNING, _NO_GPU = "docker-not-permitted", "docker-not-running", "no-gpu-in-container"

Size = Callable[[float], str]


def machine_findings(
    facts: Facts, compute: Compute, python: Interpreter | MlwError | None, size: Size, link: Link | None = None
) -> list[Finding]:
    """Return all findings about a machine for a target of this type.

    ``size`` formats bytes. ``python`` is the interpreter for scripts on this machine. For another
    machine, ``facts`` contains the interpreter, and ``link`` is set.
    """
    return [
        *_link(link),
        _system(facts),
        *([] if link is None else [_clock(link), _agent(facts, link)]),
        *(_script(facts, compute) if python is None else [_python(python)]),
        _store(facts, size, link is not None),
        _processors(facts),
        _memory(facts, size),
        *_gpu(facts),
        *_engines(facts, compute),
        *_sessions(facts),
        *_reach(facts),
    ]


def is_fit(findings: list[Finding]) -> bool:
    """Return whether the machine can execute runs, that is, nothing required is missing."""
    return all(finding.state != ERROR for finding in findings)


def _link(link: Link | None) -> list[Finding]:
    if link is None:
        return []
    return [Finding("connection", OK, f"{link.identity}, {link.round_trip * 1000:.1f} ms round trip")]


def _clock(link: Link) -> Finding:
    ahead = "ahead of" if link.skew > 0 else "behind"
    if abs(link.skew) <= SKEW:
        exact = abs(link.skew) < 1 + link.round_trip
        return Finding("clock", OK, "in sync" if exact else f"{abs(link.skew):.0f} s {ahead} this machine's")
    text = f"its clock is {_duration(abs(link.skew))} {ahead} this machine's"
    return Finding(
        "clock", WARNING, text, "synchronize it with 'sudo timedatectl set-ntp true', or correct this machine's clock"
    )


def _duration(seconds: float) -> str:
    for name, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"


def _agent(facts: Facts, link: Link) -> Finding:
    """Check the mlw installation on the machine and the Python interpreter that runs it."""
    return Finding("agent", OK, f"library {link.library}, Python {facts.python.version}, {facts.python.executable}")


def _script(facts: Facts, compute: Compute) -> list[Finding]:
    """Check the Python interpreter for scripts on another machine, but not the one in an image."""
    if type_of(compute).contained or facts.script is None:
        return []
    name = compute.python_location or "python3"
    hint = f"set pythonLocation in {compute.name}.compute to a Python that exists on the target"
    if facts.python.executable:
        hint += f", such as {facts.python.executable}"
    if not facts.script.executable:
        return [Finding("python", ERROR, f"{name} not found on the PATH of the machine", hint)]
    if facts.script.tried is False:
        return [Finding("python", OK, f"{facts.script.executable} (runs scripts; from pythonLocation, not tested)")]
    if not facts.script.version:
        return [Finding("python", ERROR, f"{facts.script.executable} does not start", hint)]
    return [Finding("python", OK, f"{facts.script.version}, {facts.script.executable} (runs scripts)")]


def _reach(facts: Facts) -> list[Finding]:
    """Check the result of the internet access test, if there was one."""
    reach = facts.reach
    if reach is None:
        return []
    if reach.way:
        return [Finding("network", OK, f"{reach.host} is reachable")]
    if reach.proxy:
        return [Finding("network", OK, f"{reach.host} is not directly reachable; a proxy is set on the target")]
    why = f" ({reach.error.rpartition('] ')[2]})" if reach.error else ""
    return [
        Finding(
            "network",
            WARNING,
            f"cannot reach {reach.host}{why}",
            "images must be present, and scripts may be unable to download data; allow access, or set https_proxy on"
            " the target",
            "no-internet-there",
        )
    ]


def _system(facts: Facts) -> Finding:
    system = facts.os
    parts = [
        system.title or system.name or system.system or "unknown",
        f"kernel {system.kernel}" if system.kernel else None,
        system.arch,
        system.libc,
    ]
    text = ", ".join(part for part in parts if part)
    if system.system in UNTESTED:
        return Finding("system", WARNING, text, "mlw is tested only on Linux; report what does not work")
    return Finding("system", OK, text)


def _python(python: Interpreter | MlwError) -> Finding:
    if isinstance(python, MlwError):
        return Finding("python", ERROR, python.message, python.hint)
    version = f"{'.'.join(map(str, python.version))}, " if any(python.version) else ""
    return Finding("python", OK, f"{version}{python.path} ({python.reason})")


def _store(facts: Facts, size: Size, elsewhere: bool) -> Finding:
    store = facts.store
    text = f"{size(store.free)} free" if store.free is not None else "space unknown"
    if store.total:
        text += f" of {size(store.total)}"
    text += f" in {store.folder}" + (f" ({store.filesystem})" if store.filesystem else "")
    which = " -t NAME" if elsewhere else ""
    room = f"free disk space on the target; 'mlw experiment clean{which}' lists what mlw can delete"
    if store.writable is False:
        hint = "your user must be able to write to it" if elsewhere else "set MLW_HOME to a writable folder"
        return Finding("store", ERROR, f"{store.folder} is not writable", hint)
    scarce = scarcity("store", store, text, room)
    if scarce:
        return scarce
    if store.noexec:
        return _noexec(store, elsewhere)
    if store.network:
        local = "network file systems are slow; "
        local += (
            "link ~/.mlw to a local disk on the target" if elsewhere else "set MLW_HOME to a folder on a local disk"
        )
        return Finding("store", WARNING, text, local)
    return Finding("store", OK, text)


def _noexec(store: Store, elsewhere: bool) -> Finding:
    """Return the finding for a folder on a file system that is mounted noexec.

    This is only a warning: a script may use the Python of the machine or the image.
    """
    text = f"{store.folder} is mounted noexec: programs in it cannot start, so environments cannot be used"
    move = (
        "link it to another disk on the target: ln -s /DISK/mlw ~/.mlw" if elsewhere else "set MLW_HOME to another disk"
    )
    return Finding("store", WARNING, text, f"{move}; or ask the administrator to mount this one without noexec")


def scarcity(what: str, store: Store, text: str, room: str) -> Finding | None:
    """Check free space and free inodes. ``room``: hint for freeing disk space."""
    if store.free is not None and store.free < FULL:
        return Finding(what, ERROR, text, room, "disk-full")
    if store.inodes_free is not None and store.inodes_free < FEW_INODES:
        few = f"{text}, but room for only {store.inodes_free} more files"
        return Finding(what, ERROR if store.inodes_free == 0 else WARNING, few, room, "disk-full")
    if store.free is not None and store.free < SCARCE:
        return Finding(what, WARNING, text, room, "disk-full")
    return None


def _processors(facts: Facts) -> Finding:
    usable, count = facts.cpu.usable, facts.cpu.count
    if usable is None:
        return Finding("processors", OK, "unknown")
    return Finding("processors", OK, f"{usable}" if usable == count or count is None else f"{usable} of {count}")


def _memory(facts: Facts, size: Size) -> Finding:
    memory = facts.memory
    if memory.total is None or memory.available is None:
        return Finding("memory", OK, "unknown")
    text = f"{size(memory.available)} free of {size(memory.total)}"
    if memory.limit is not None:
        text += f", limited to {size(memory.limit)}"
    if memory.available < LITTLE_MEMORY:
        return Finding(
            "memory", WARNING, text, "stop programs that are not needed; the system kills a run that uses more"
        )
    return Finding("memory", OK, text)


def _gpu(facts: Facts) -> list[Finding]:
    """Check the driver and whether its tool exists, without starting any program."""
    driver, smi = facts.nvidia.driver, facts.nvidia.smi
    if driver:
        return [Finding("gpu", OK, f"NVIDIA driver {driver}" + (f", {smi}" if smi else ""))]
    if smi:
        hint = "load or install the NVIDIA driver; nvidia-smi prints the cause"
        return [Finding("gpu", WARNING, f"{smi} is installed, but the driver is not loaded", hint)]
    return []


def _engines(facts: Facts, compute: Compute) -> list[Finding]:
    engines = {
        name: engine for name, engine in (("docker", facts.docker), ("podman", facts.podman)) if engine is not None
    }
    needed = type_of(compute).contained
    if needed and not engines:
        hint = "install Docker Engine or podman on the target, or use a target without a container"
        return [Finding("docker", ERROR, "neither docker nor podman is installed", hint, "docker-not-running")]
    findings = []
    for name, engine in engines.items():
        spare = name == "podman" and "docker" in engines  # Docker takes precedence, even if it has an error
        trouble = engine_error(engine, gpus=compute.nvidia_docker)
        if trouble is None:
            findings.append(Finding(name, OK, _engine(name, engine)))
        else:
            findings.append(_engine_error(name, trouble, compute, spare))
    return findings


def _engine_error(name: str, trouble: Failure, compute: Compute, spare: bool) -> Finding:
    text = trouble.message
    if not type_of(compute).contained:
        return Finding(name, OK, f"not needed by a target of type {compute.type} ({text})")
    return Finding(name, WARNING if spare else ERROR, text, trouble.hint, trouble.explain)


def _engine(name: str, engine: Engine) -> str:
    alias = "podman " if name == "docker" and engine.program == "podman" else ""
    parts = [f"{alias}{engine.version}", engine.os, engine.arch]
    parts += ["rootless"] if engine.rootless else []
    parts += ["NVIDIA GPUs"] if engine.nvidia else []
    return ", ".join(part for part in parts if part)


def engine_error(engine: Engine, *, gpus: bool) -> Failure | None:
    """Return the reason why containers cannot run, with a remedy. ``gpus``: containers need NVIDIA GPUs."""
    if engine.error:
        page, remedy = _remedy(engine, engine.error.lower())
        return Failure(page, f"{engine.path} cannot be used: {engine.error}", remedy, page)
    if engine.os not in (None, "linux"):
        message = f"{engine.version} runs {engine.os} containers"
        return Failure(_NOT_RUNNING, message, "switch the engine to Linux containers", _NOT_RUNNING)
    if gpus and not engine.nvidia:
        hint = "install the NVIDIA Container Toolkit, run 'sudo nvidia-ctk runtime configure', and restart the engine"
        message = f"{engine.program or 'the engine'} {engine.version} has no support for NVIDIA GPUs"
        return Failure(_NO_GPU, message, hint, _NO_GPU)
    return None


def _remedy(engine: Engine, message: str) -> tuple[str, str]:
    """Return the explain page and remedy for an engine error, by its code or by its message."""
    if engine.code in _PODMAN_REMEDIES:
        return _NOT_PERMITTED, _PODMAN_REMEDIES[engine.code]
    if "permission denied" in message:
        return _NOT_PERMITTED, (
            "allow your user to access it: sudo usermod -aG docker $USER, then log in again; or install rootless Docker"
        )
    if "cannot connect" in message or "is the docker daemon running" in message or "connection refused" in message:
        return _NOT_RUNNING, "start the engine, for example: sudo systemctl start docker"
    if engine.code == NO_RESPONSE:
        return _NOT_RUNNING, "check the engine: it does not respond"
    return _NOT_RUNNING, f"run: {engine.path} info"


def _sessions(facts: Facts) -> list[Finding]:
    logind = facts.logind
    if not logind.running or not logind.kill_user_processes:
        return []
    if logind.linger:
        return [Finding("sessions", OK, "logging out ends user processes, but lingering is enabled for your user")]
    return [
        Finding(
            "sessions",
            WARNING,
            "logging out ends all your processes, including runs (KillUserProcesses in logind.conf)",
            "enable lingering: loginctl enable-linger",
        )
    ]
