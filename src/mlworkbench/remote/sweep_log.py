"""The log of a sweep, with a line for each start and end of a child, and the data for these lines."""

from __future__ import annotations

import json
import os
import stat

from .journal import RESERVE, write_with_reserve
from .shared import run_endings
from .shared.failure import EXITED, KILLED, SILENT, failure, parse_failure
from .shared.layout import EXTERNAL_METRICS, RunFolder
from .shared.metric_limits import source_of
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from .shared.failure import Failure

    Facts = Dict[str, Any]

_CHILDREN_FAILED = "children-failed"  # failure code of a sweep
TAIL = 256 * 1024  # bytes at the end of a metric file to search for the last value
MAX_FILES = 64
MAX_NAMED = 5  # maximum children named in a cause
MAX_CAUSE_LENGTH = 4000  # maximum characters of a child's cause
MAX_RELAYED = 1024 * 1024
MAX_EVENT_BYTES = 64 * 1024 * 1024


def append_line(run: RunFolder, text: str) -> None:
    """Append a line to the log, completely or not at all."""
    line = text.encode("utf-8", "replace") + b"\n"
    write_with_reserve(run, lambda: _append(run.log, line))


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


def reported_children(path: str) -> Set[str]:
    """Return the children whose end is in the log. Remove an incomplete line left by a predecessor."""
    try:
        with open(path, "r+b") as file:
            content = file.read()
            end = content.rfind(b"\n") + 1
            if end != len(content):
                file.truncate(end)
    except OSError:
        return set()
    lines = [line.split() for line in content[:end].decode("utf-8", "replace").splitlines()]
    return {fields[-1] for fields in lines if len(fields) > 1 and "/" in fields[0]}


def read_finished(child: RunFolder) -> Optional[Facts]:
    """Return the data of the child's ``finished`` event, or None if the child has not ended."""
    start = max(0, file_size(child.events) - MAX_EVENT_BYTES)  # skip earlier events: the script may have written many
    return _read_event(child, "finished", start)


def read_start_time(child: RunFolder) -> Optional[float]:
    moment = (_read_event(child, "started") or {}).get("time")
    return moment if isinstance(moment, float) else None


def _read_event(child: RunFolder, kind: str, start: int = 0) -> Optional[Facts]:
    """Return the data of the latest event of a kind in the journal after the offset ``start``."""
    pattern = b'"%s"' % kind.encode("ascii")
    from .run_reader import read_regular_file  # noqa: PLC0415 - only for sweeps

    lines = [line for line in read_regular_file(child.events, start, MAX_EVENT_BYTES).splitlines() if pattern in line]
    for line in reversed(lines):
        try:
            event = parse_json(line)
            if event["kind"] == kind:
                return dict(event["data"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return None


def copy_new_bytes(source: str, target: str) -> None:
    """Append new bytes of ``source`` to ``target``, which is a prefix of ``source``."""
    offset = file_size(target)
    if file_size(source) <= offset:
        return
    from .run_reader import read_regular_file  # noqa: PLC0415 - only if there is a build log

    with open(target, "ab") as file:
        file.write(read_regular_file(source, offset, MAX_RELAYED))


def outcome_text(finished: Facts) -> str:
    ending = run_endings.parse_ending(finished)[0]
    if ending == run_endings.SUCCEEDED:
        return "Completed"
    if ending.startswith(run_endings.CANCELLED):
        return "Canceled"
    return "Failed (%s)" % failure_text(finished)


def failure_text(finished: Facts) -> str:
    ending, code, signal = run_endings.parse_ending(finished)
    if ending != run_endings.FAILED:
        return ending
    return "signal %s" % signal if signal is not None else "exit %s" % code


def summarize_failures(failed: List[Tuple[str, Facts]]) -> Failure:
    """Name some of the failed children, and their cause if they share one.

    The cause is omitted if it adds nothing to ``failure_text``.
    """
    names = ", ".join("%s (%s)" % (name, failure_text(finished)) for name, finished in failed[:MAX_NAMED])
    more = ", and %d more" % (len(failed) - MAX_NAMED) if len(failed) > MAX_NAMED else ""
    causes = {str(finished.get("cause") or "")[:MAX_CAUSE_LENGTH] for _, finished in failed}
    cause = causes.pop()
    child_failure = parse_failure(failed[0][1].get("failure")) or failure(EXITED, cause)
    if causes or not cause or child_failure["code"] in (KILLED, SILENT):  # the cause repeats ``failure_text``
        return failure(_CHILDREN_FAILED, names + more)
    message = "%s%s; cause: %s" % (names, more, str(child_failure["message"])[:MAX_CAUSE_LENGTH])
    return failure(
        _CHILDREN_FAILED, message, (child_failure["hint"] or "")[:MAX_CAUSE_LENGTH] or None, child_failure["explain"]
    )


def read_last_value(child: RunFolder, metric: str) -> Optional[str]:
    """Return the latest value of a metric for the progress line. The run history reads all values."""
    newest, value = -1.0, None
    pattern = json.dumps(metric).encode("ascii")
    try:
        names = sorted(os.listdir(child.metrics))[:MAX_FILES]
    except OSError:
        return None
    from .run_reader import read_regular_file  # noqa: PLC0415 - only with a metric

    own = [name for name in names if not source_of(name)]
    for name in own + [name for name in EXTERNAL_METRICS if name in names]:
        if value is not None and name in EXTERNAL_METRICS:
            break  # another source of the same metric, which the run history shows under another name
        path = os.path.join(child.metrics, name)
        for line in read_regular_file(path, max(0, file_size(path) - TAIL), TAIL).splitlines():
            if pattern not in line:
                continue
            try:
                point = parse_json(line)
                if point.get("n") == metric and "run" not in point and float(point["t"]) >= newest:
                    newest, value = float(point["t"]), "%.6g" % float(point["v"])
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
    return value


def is_disk_full(path: str) -> bool:
    """Return whether the disk may be too full for a new run to record its ending."""
    try:
        status = os.statvfs(path)
    except (AttributeError, OSError):  # Windows, or a disk that is not mounted now
        return False
    # The limit is above zero: the released reserve is free again, and writes may fail before the disk is full.
    return status.f_bavail * status.f_frsize < 16 * RESERVE


def file_size(path: str) -> int:
    """Return the size of a regular file, or 0 for anything else."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
