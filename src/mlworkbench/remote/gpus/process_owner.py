"""Find the run or user that a process belongs to. NVML reports only PIDs, as seen by the host.

A process belongs to a run if it descends from a process of the run, is in the control group of the
run's container, has the run's variables in its environment, or is an executor of the run's Spark
application. Scripts can set these variables, so descent and control group are checked first. Container
IDs are not parsed, because engines write them in too many ways.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

_HOST_PID_NAMESPACE = "pid:[4026531836]"  # inode of the initial PID namespace, a Linux constant
_MAX_DEPTH = 64
_APPLICATION_OPTION = b"--app-id"  # option in the command line of a Spark executor


class Owner:
    """Criteria that identify the processes of a run.

    ``roots`` contains the run's child process, or the first process of its container, which is also
    ``init``. ``application`` returns the ID of its Spark application, once there is one: executors on
    this machine are children of a Spark worker, and their command lines contain the ID.
    """

    def __init__(
        self,
        run: str,
        folder: str,
        roots: "Iterable[Optional[int]]" = (),
        init: Optional[int] = None,
        application: "Callable[[], Optional[str]]" = lambda: None,
    ) -> None:
        self.run = run
        self.folder = folder
        self.roots: Set[int] = {pid for pid in roots if pid}
        self.init = init
        self.application = application
        if init:
            self.roots.add(init)


class ProcessTable:
    """Process information from /proc, or from a folder with the same structure."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def stat(self, pid: int) -> "Optional[Tuple[int, int, str]]":
        """Return parent, start time, and state of a living process."""
        text = self._read(pid, "stat")
        close = text.rfind(b")")
        fields = text[close + 2 :].split()
        if close < 0 or len(fields) < 20 or fields[0] in (b"Z", b"X"):
            return None
        return int(fields[1]), int(fields[19]), fields[0].decode("ascii", "replace")

    def ancestors(self, pid: int) -> Iterator[int]:
        """Yield the process itself, then its ancestors."""
        for _ in range(_MAX_DEPTH):
            facts = self.stat(pid)
            if facts is None:
                return
            yield pid
            pid = facts[0]
            if pid <= 1:
                return

    def application(self, pid: int) -> Optional[str]:
        """Return the ID of the Spark application if the process is an executor."""
        arguments = self._read(pid, "cmdline").split(b"\0")
        index = arguments.index(_APPLICATION_OPTION) + 1 if _APPLICATION_OPTION in arguments else len(arguments)
        return arguments[index].decode("utf-8", "replace") if index < len(arguments) else None

    def cgroups(self, pid: int) -> str:
        return self._read(pid, "cgroup").decode("utf-8", "replace")

    def name(self, pid: int) -> Optional[str]:
        """Return a display name: the script for an interpreter, otherwise the program."""
        arguments = [
            argument.decode("utf-8", "replace") for argument in self._read(pid, "cmdline").split(b"\0") if argument
        ]
        if arguments:
            return display_name(arguments)
        return self._read(pid, "comm").decode("utf-8", "replace").strip() or None

    def user(self, pid: int) -> Optional[str]:
        """Return the user name, or the user ID if there is no name."""
        for line in self._read(pid, "status").splitlines():
            if line.startswith(b"Uid:"):
                return user_name(int(line.split()[1]))
        return None

    def innermost_pid(self, pid: int) -> Optional[int]:
        """Return the ID of a process in its own PID namespace; None if that is the one of this process."""
        for line in self._read(pid, "status").splitlines():
            if line.startswith(b"NSpid:"):
                numbers = line.split()[1:]
                return int(numbers[-1]) if len(numbers) > 1 else None
        return None

    def run_variables(self, pid: int) -> "Dict[str, str]":
        """Return the variables that mlw sets in the environment.

        The result is empty if another user owns the process and its environment is not readable.
        """
        variables = {}
        for entry in self._read(pid, "environ").split(b"\0"):
            if entry.startswith((b"MLW_RUN_ID=", b"MLW_RUN_FOLDER=", b"MLW_SUPERVISOR=")):
                name, _, value = os.fsdecode(entry).partition("=")
                variables[name] = value
        return variables

    def pid_namespace(self, pid: "Union[int, str]") -> Optional[str]:
        """Return the PID namespace of a process; None if it is not readable."""
        try:
            return os.readlink("%s/%s/ns/pid" % (self._proc, pid))
        except OSError:
            return None

    def _read(self, pid: int, name: str) -> bytes:
        try:
            with open("%s/%d/%s" % (self._proc, pid, name), "rb") as file:
                return file.read(1 << 20)
        except OSError:
            return b""


def find_owner(pid: int, owners: Sequence[Owner], processes: Optional[ProcessTable] = None) -> Optional[str]:
    """Return the ID of the run in ``owners`` that a process belongs to; None if there is none."""
    table = processes or ProcessTable()
    ancestors = list(table.ancestors(pid))
    for ancestor in ancestors:  # nearest first: a run may have been started by the script of another run
        for owner in owners:
            if ancestor in owner.roots:
                return owner.run
    run = _owner_by_cgroup(pid, owners, table) or _owner_by_variables(pid, ancestors, owners, table)
    return run or _owner_by_application(ancestors, owners, table)


def _owner_by_variables(
    pid: int, ancestors: "Iterable[int]", owners: Sequence[Owner], table: ProcessTable
) -> Optional[str]:
    """Find the run by the variables of the ancestor that is closest to the supervisor.

    The variables of other ancestors are less reliable, because the script can change them.
    """
    variables: Dict[str, str] = {}
    for ancestor in ancestors:
        own_variables = table.run_variables(ancestor)
        if own_variables.get("MLW_SUPERVISOR"):
            break  # ancestors of a supervisor do not belong to the run
        variables = own_variables or variables
    folder, run = variables.get("MLW_RUN_FOLDER"), variables.get("MLW_RUN_ID")
    owner = next((owner for owner in owners if owner.folder == folder), None)
    owner = owner or next((ancestor for ancestor in owners if ancestor.run == run), None)
    # A process in the container of another run has a different PID namespace.
    if owner is None or table.pid_namespace(pid) != table.pid_namespace(owner.init or "self"):
        return None
    return owner.run


def _owner_by_application(ancestors: "Iterable[int]", owners: Sequence[Owner], table: ProcessTable) -> Optional[str]:
    runs = {owner.application(): owner.run for owner in owners}
    if not any(runs):
        return None
    applications = [table.application(pid) for pid in ancestors]
    return next((runs[application] for application in applications if application and application in runs), None)


def _owner_by_cgroup(pid: int, owners: Sequence[Owner], table: ProcessTable) -> Optional[str]:
    groups = table.cgroups(pid)
    if not groups:
        return None
    for owner in owners:
        if not owner.init:
            continue
        init = table.stat(owner.init)
        if init and is_in_cgroup(groups, table.cgroups(owner.init), table.cgroups(init[0])):
            return owner.run
    return None


def is_in_cgroup(groups: str, inside: str, outside: str) -> bool:
    """Return whether a process with the control groups ``groups`` is in a container.

    ``inside`` contains the groups of the container's first process, and ``outside`` those of the engine
    process that started it. If the engine creates no group (rootless without delegation), both are the
    same, and the result is False.
    """
    process_paths, container_paths, engine_paths = (
        _parse_cgroups(groups),
        _parse_cgroups(inside),
        _parse_cgroups(outside),
    )
    for hierarchy, path in container_paths.items():
        if path == "/" or path == engine_paths.get(hierarchy):
            continue
        process_path = process_paths.get(hierarchy, "")
        if process_path == path or process_path.startswith(path + "/"):
            return True
    return False


def _parse_cgroups(text: str) -> "Dict[str, str]":
    """Parse ``4:memory:/docker/3f…`` to {"memory": "/docker/3f…"}.

    In version 2 of control groups, the only hierarchy has no name.
    """
    paths = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            # podman places the container in a subgroup of the group that it creates
            paths[parts[1]] = parts[2][: -len("/container")] if parts[2].endswith("/container") else parts[2]
    return paths


def display_name(arguments: List[str]) -> str:
    """Return a short name for a command: ``/usr/bin/python3 -u train.py --lr 1`` becomes ``train.py``."""
    program = os.path.basename(arguments[0])
    if program.startswith("python"):
        rest = iter(arguments[1:])
        for argument in rest:
            if argument in ("-W", "-X"):
                next(rest, None)
            elif argument in ("-m", "-c"):
                return "%s %s" % (program, argument) if argument == "-c" else next(rest, program)
            elif not argument.startswith("-"):
                return os.path.basename(argument)
    return program


def user_name(uid: int) -> str:
    try:
        import pwd  # noqa: PLC0415 - not available on Windows

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def sees_host_pids(proc: str = "/proc") -> "Optional[bool]":
    """Return whether NVML's PIDs are valid for this process; None if unknown.

    They are not valid in a container with its own PID namespace.
    """
    try:
        return os.readlink("%s/self/ns/pid" % proc) == _HOST_PID_NAMESPACE
    except OSError:
        return None


def add_owners(processes: "Optional[List[Dict[str, Any]]]", owners: Sequence[Owner]) -> None:
    """Add run, user, and name to each process of a GPU. Values that are not known are None."""
    table = ProcessTable()
    for process in processes or ():
        process["run"] = find_owner(process["pid"], owners, table)
        process["user"] = table.user(process["pid"])
        process["name"] = table.name(process["pid"])
