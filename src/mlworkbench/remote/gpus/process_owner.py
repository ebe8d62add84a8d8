"""Whose process is that: a run's of ours, or another user's. NVML tells pids only, those of the host.

A process belongs to a run if it descends from a process of the run, is in the control group of the run's container, or
carries the run's mark in its environment. A script writes any mark it likes, so marks come last.
Container ids are not parsed: engines write them in too many ways.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

_HOST_TABLE = "pid:[4026531836]"  # the process table that a machine is born with: a constant of Linux
_DEEPEST = 64
_APPLICATION = b"--app-id"  # a word of the command that starts an executor


class Owner:
    """A run, as far as processes are concerned.

    ``roots``: its child, or the first process of its container, which is then also ``init``. ``application``: id of its
    Spark application, once there is one: executors on this machine are processes of a worker, and say whose they are.
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


class Processes:
    """/proc, or a folder that looks like it."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def facts(self, pid: int) -> "Optional[Tuple[int, int, str]]":
        """Parent, start time and state of a living process."""
        text = self._read(pid, "stat")
        close = text.rfind(b")")
        fields = text[close + 2 :].split()
        if close < 0 or len(fields) < 20 or fields[0] in (b"Z", b"X"):
            return None
        return int(fields[1]), int(fields[19]), fields[0].decode("ascii", "replace")

    def ancestors(self, pid: int) -> Iterator[int]:
        """The process itself first."""
        for _ in range(_DEEPEST):
            facts = self.facts(pid)
            if facts is None:
                return
            yield pid
            pid = facts[0]
            if pid <= 1:
                return

    def application(self, pid: int) -> Optional[str]:
        """Of an executor of Spark: the application that it works for."""
        words = self._read(pid, "cmdline").split(b"\0")
        at = words.index(_APPLICATION) + 1 if _APPLICATION in words else len(words)
        return words[at].decode("utf-8", "replace") if at < len(words) else None

    def groups(self, pid: int) -> str:
        return self._read(pid, "cgroup").decode("utf-8", "replace")

    def name(self, pid: int) -> Optional[str]:
        """What its user would call it: the script of an interpreter, else the program."""
        words = [one.decode("utf-8", "replace") for one in self._read(pid, "cmdline").split(b"\0") if one]
        if words:
            return called(words)
        return self._read(pid, "comm").decode("utf-8", "replace").strip() or None

    def user(self, pid: int) -> Optional[str]:
        """Name of the user, or the number where it has none."""
        for line in self._read(pid, "status").splitlines():
            if line.startswith(b"Uid:"):
                return user_name(int(line.split()[1]))
        return None

    def marks(self, pid: int) -> "Dict[str, str]":
        """What mlw put into its environment; empty for other users' processes, which do not show theirs."""
        found = {}
        for one in self._read(pid, "environ").split(b"\0"):
            if one.startswith((b"MLW_RUN_ID=", b"MLW_RUN_FOLDER=", b"MLW_SUPERVISOR=")):
                name, _, value = os.fsdecode(one).partition("=")
                found[name] = value
        return found

    def process_table(self, pid: "Union[int, str]") -> Optional[str]:
        """Name of the process table (namespace) that it is in; None where this machine does not show it."""
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


def owner_of(pid: int, owners: Sequence[Owner], processes: Optional[Processes] = None) -> Optional[str]:
    """Id of the run that a process belongs to; None if it is nobody's of these."""
    table = processes or Processes()
    above = list(table.ancestors(pid))
    for one in above:  # the nearest first: a run may have been started by a script of another
        for owner in owners:
            if one in owner.roots:
                return owner.run
    found = _by_group(pid, owners, table) or _by_mark(pid, above, owners, table)
    return found or _by_application(above, owners, table)


def _by_mark(pid: int, above: "Iterable[int]", owners: Sequence[Owner], table: Processes) -> Optional[str]:
    """By the mark that is nearest to the supervisor: those below are what the script made of it."""
    marks: Dict[str, str] = {}
    for one in above:
        found = table.marks(one)
        if found.get("MLW_SUPERVISOR"):
            break  # above it there is nothing of the run
        marks = found or marks
    folder, run = marks.get("MLW_RUN_FOLDER"), marks.get("MLW_RUN_ID")
    owner = next((one for one in owners if one.folder == folder), None)
    owner = owner or next((one for one in owners if one.run == run), None)
    # A process in the container of another run has another process table.
    if owner is None or table.process_table(pid) != table.process_table(owner.init or "self"):
        return None
    return owner.run


def _by_application(above: "Iterable[int]", owners: Sequence[Owner], table: Processes) -> Optional[str]:
    known = {owner.application(): owner.run for owner in owners}
    if not any(known):
        return None
    found = [table.application(pid) for pid in above]
    return next((known[one] for one in found if one and one in known), None)


def _by_group(pid: int, owners: Sequence[Owner], table: Processes) -> Optional[str]:
    groups = table.groups(pid)
    if not groups:
        return None
    for owner in owners:
        if not owner.init:
            continue
        init = table.facts(owner.init)
        if init and in_group(groups, table.groups(owner.init), table.groups(init[0])):
            return owner.run
    return None


def in_group(groups: str, inside: str, outside: str) -> bool:
    """Whether a process with these control groups is in the container of another.

    ``inside`` are the groups of the container's first process, ``outside`` those of the engine's process that started
    it: an engine that makes no group (rootless without delegation) leaves both the same, and then it says nothing.
    """
    own, ours, others = _paths(groups), _paths(inside), _paths(outside)
    for hierarchy, path in ours.items():
        if path == "/" or path == others.get(hierarchy):
            continue
        there = own.get(hierarchy, "")
        if there == path or there.startswith(path + "/"):
            return True
    return False


def _paths(text: str) -> "Dict[str, str]":
    """``4:memory:/docker/3f…`` → {"memory": "/docker/3f…"}; the one hierarchy of version 2 has no name."""
    found = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            # podman puts the container into a group below the one that it makes for it
            found[parts[1]] = parts[2][: -len("/container")] if parts[2].endswith("/container") else parts[2]
    return found


def called(words: List[str]) -> str:
    """``/usr/bin/python3 -u train.py --lr 1`` → ``train.py``."""
    program = os.path.basename(words[0])
    if program.startswith("python"):
        rest = iter(words[1:])
        for word in rest:
            if word in ("-W", "-X"):
                next(rest, None)
            elif word in ("-m", "-c"):
                return "%s %s" % (program, word) if word == "-c" else next(rest, program)
            elif not word.startswith("-"):
                return os.path.basename(word)
    return program


def user_name(uid: int) -> str:
    try:
        import pwd  # noqa: PLC0415 - not on Windows

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def sees_host(proc: str = "/proc") -> "Optional[bool]":
    """Whether the pids that NVML tells mean something here: not in a container with a process table of its own."""
    try:
        return os.readlink("%s/self/ns/pid" % proc) == _HOST_TABLE
    except OSError:
        return None


def explain(processes: "Optional[List[Dict[str, Any]]]", owners: Sequence[Owner]) -> None:
    """Add to each process of a GPU: run, user, name; None where this machine does not show it."""
    table = Processes()
    for one in processes or ():
        one["run"] = owner_of(one["pid"], owners, table)
        one["user"] = table.user(one["pid"])
        one["name"] = table.name(one["pid"])
