"""The log of a sweep, a line for each child, and what its conductor reads of the children to write it."""

from __future__ import annotations

import json
import os
import stat

from .journal import RESERVE, spare_room
from .shared import endings
from .shared.failure import EXITED, KILLED, SILENT, checked, failure
from .shared.layout import RunFolder
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from .shared.failure import Failure

    Facts = Dict[str, Any]

_CHILDREN = "children-failed"  # code of a sweep
TAIL = 256 * 1024  # bytes of a metric file in which the last value of a metric is looked for
MOST_FILES = 64
NAMED = 5  # children in a cause
LONGEST_CAUSE = 4000  # characters of what a child tells
MOST_RELAYED = 1024 * 1024
MOST_EVENTS = 64 * 1024 * 1024


def say(run: RunFolder, text: str) -> None:
    """A line of the log: there whole, or not at all."""
    line = text.encode("utf-8", "replace") + b"\n"
    spare_room(run, lambda: _append(run.log, line))


def _append(path: str, line: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(28, "No space left on device")
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def told_in(path: str) -> Set[str]:
    """The children of whose end the log tells. A line that a predecessor did not finish is taken away."""
    try:
        with open(path, "r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole != len(content):
                file.truncate(whole)
    except OSError:
        return set()
    lines = [line.split() for line in content[:whole].decode("utf-8", "replace").splitlines()]
    return {words[-1] for words in lines if len(words) > 1 and "/" in words[0]}


def how_ended(child: RunFolder) -> Optional[Facts]:
    """What the child's last event tells, if that is its end."""
    return _event(child, "finished", max(0, size(child.events) - MOST_EVENTS))  # its script may have written before it


def when_started(child: RunFolder) -> Optional[float]:
    moment = (_event(child, "started") or {}).get("time")
    return moment if isinstance(moment, float) else None


def _event(child: RunFolder, kind: str, start: int = 0) -> Optional[Facts]:
    """The latest event of a kind in the part of the journal that begins there."""
    mark = b'"%s"' % kind.encode("ascii")
    from .serve import read_plain  # noqa: PLC0415 - only a sweep needs it

    lines = [line for line in read_plain(child.events, start, MOST_EVENTS).splitlines() if mark in line]
    for line in reversed(lines):
        try:
            event = parse_json(line)
            if event["kind"] == kind:
                return dict(event["data"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return None


def relay(source: str, goal: str) -> None:
    """What is new in one file, at the end of another that has the same beginning."""
    done = size(goal)
    if size(source) <= done:
        return
    from .serve import read_plain  # noqa: PLC0415 - only with a preparation that says something

    with open(goal, "ab") as file:
        file.write(read_plain(source, done, MOST_RELAYED))


def outcome(told: Facts) -> str:
    ending = endings.told(told)[0]
    if ending == endings.SUCCEEDED:
        return "Completed"
    if ending.startswith(endings.CANCELLED):
        return "Canceled"
    return "Failed (%s)" % why(told)


def why(told: Facts) -> str:
    ending, code, signal = endings.told(told)
    if ending != endings.FAILED:
        return ending
    return "signal %s" % signal if signal is not None else "exit %s" % code


def failures(failed: List[Tuple[str, Facts]]) -> Failure:
    """Some of the children that failed; and why, where that is the same of all and more than ``why`` says."""
    words = ", ".join("%s (%s)" % (name, why(told)) for name, told in failed[:NAMED])
    more = ", and %d more" % (len(failed) - NAMED) if len(failed) > NAMED else ""
    causes = {str(told.get("cause") or "")[:LONGEST_CAUSE] for _, told in failed}
    cause = causes.pop()
    known = checked(failed[0][1].get("failure")) or failure(EXITED, cause)
    if causes or not cause or known["code"] in (KILLED, SILENT):  # ``why`` has the signal and the exit code
        return failure(_CHILDREN, words + more)
    message = "%s%s; cause: %s" % (words, more, str(known["message"])[:LONGEST_CAUSE])
    return failure(_CHILDREN, message, (known["hint"] or "")[:LONGEST_CAUSE] or None, known["explain"])


def last_value(child: RunFolder, metric: str) -> Optional[str]:
    """The newest number of this name, for the progress line; the history reads all of them."""
    newest, value = -1.0, None
    mark = json.dumps(metric).encode("ascii")
    try:
        names = sorted(os.listdir(child.metrics))[:MOST_FILES]
    except OSError:
        return None
    from .serve import read_plain  # noqa: PLC0415 - only with a metric

    for name in names:
        path = os.path.join(child.metrics, name)
        for line in read_plain(path, max(0, size(path) - TAIL), TAIL).splitlines():
            if mark not in line:
                continue
            try:
                point = parse_json(line)
                if point.get("n") == metric and "run" not in point and float(point["t"]) >= newest:
                    newest, value = float(point["t"]), "%.6g" % float(point["v"])
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
    return value


def is_full(path: str) -> bool:
    """Whether what is started now would have no room to say how it ended."""
    try:
        facts = os.statvfs(path)
    except (AttributeError, OSError):  # Windows; a disk that is not mounted at the moment
        return False
    # Not zero: the reserve was given back, and file systems refuse a write while a little is left.
    return facts.f_bavail * facts.f_frsize < 16 * RESERVE


def size(path: str) -> int:
    """Of a plain file, the only kind that is handed out."""
    try:
        facts = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
