"""Slurm's job states and reasons: what they mean for a run."""

from __future__ import annotations

import re
import time

from ..shared import run_endings
from ..shared.starter_names import ENDED, QUEUED, RUNNING, UNKNOWN

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_QUEUED = frozenset(
    "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD POWER_UP_NODE".split()
)
_RUNNING = frozenset(
    "RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING UPDATE_DB EXPEDITING LAUNCH_FAILED".split()
)
# State → ending of a run whose supervisor recorded none, and the reason.
_ENDINGS = {
    "COMPLETED": (run_endings.EXIT_UNKNOWN, "the job completed, but recorded no exit status"),
    "FAILED": (run_endings.EXIT_UNKNOWN, "the job failed"),
    "TIMEOUT": (run_endings.TIMEOUT, "stopped by Slurm at the job's time limit"),
    "DEADLINE": (run_endings.TIMEOUT, "stopped by Slurm at the job's deadline"),
    "OUT_OF_MEMORY": (run_endings.OUT_OF_MEMORY, "the job exceeded its memory limit, and Slurm stopped it"),
    "NODE_FAIL": (run_endings.NODE_FAILURE, "a node of the job failed"),
    "BOOT_FAIL": (run_endings.NODE_FAILURE, "a node of the job failed to boot"),
    "PREEMPTED": (run_endings.PREEMPTED, "preempted by a job with a higher priority"),
    "CANCELLED": (run_endings.CANCELLED, "canceled in Slurm"),
    "REVOKED": (run_endings.CANCELLED, "revoked by Slurm: the job runs in another cluster of the federation"),
}
# Reasons why a job waits that only a person can remove, with what to do.
_ADVICE = {
    "JobHeldUser": "it is held: release it with 'scontrol release JOB'",
    "JobHeldAdmin": "an administrator holds it: ask them to release it",
    "launch failed requeued held": "its start failed, and Slurm holds it: check with 'scontrol show job JOB'",
    "job requeued in held state": "it was requeued and is held: release it with 'scontrol release JOB'",
    "DependencyNeverSatisfied": "it depends on a job that failed, so it never starts: cancel the run",
    "PartitionTimeLimit": "its time limit exceeds the partition's, so it never starts: reduce 'time'",
    "PartitionNodeLimit": "it needs more nodes than the partition has, so it never starts: cancel the run",
    "PartitionConfig": "it does not fit the partition, so it never starts: cancel the run",
    "PartitionDown": "the partition is down: ask an administrator",
    "PartitionInactive": "the partition is inactive: ask an administrator",
    "BadConstraints": "no node fits its constraint: cancel the run, and check 'constraint'",
    "NodeDown": "a node that it needs is down",
    "ReqNodeNotAvail": "a node that it needs is down, drained, or reserved",
    "AssocMaxJobsLimit": "your account has reached its limit of running jobs",
    "QOSMaxJobsPerUserLimit": "you have reached the limit of running jobs of the QoS",
    "AssocGrpGRES": "your account has reached its limit of GPUs",
    "QOSMaxGRESPerUser": "you have reached the limit of GPUs of the QoS",
    "InvalidAccount": "its account is not valid: cancel the run, and check 'account'",
    "InvalidQOS": "its QoS is not valid: cancel the run, and check 'qos'",
    "AssocGrpCPUMinutesLimit": "your account has used up its CPU time",
    "AssocMaxWallDurationPerJobLimit": "its time limit exceeds that of your account: reduce 'time', or cancel the run",
    "QOSMaxWallDurationPerJobLimit": "its time limit exceeds that of the QoS: reduce 'time', or cancel the run",
}
_STATE = re.compile(r"([A-Z][A-Z_]{0,30})\+?(?: by (\d{1,10}))?")
_NO_TEXT = ("", "None", "(null)", "N/A", "Unknown")
_HOSTS = re.compile(r"([^\[\],]*)\[([0-9,-]+)\]([^\[\],]*)|([^\[\],]+)")
_MAX_NODES = 1000


def parse_state(text: str) -> Optional[Tuple[str, Optional[int]]]:
    """Return the state and, for a canceled job, the UID of who canceled it. Return None for other text."""
    match = _STATE.fullmatch(text.strip())
    return (match.group(1), int(match.group(2)) if match.group(2) else None) if match else None


def standing_of(state: str) -> str:
    """Return the state of a run's job: queued, running, ended, or unknown."""
    if state in _QUEUED:
        return QUEUED
    if state in _RUNNING:
        return RUNNING
    return ENDED if state in _ENDINGS else UNKNOWN


def ending_of(state: str) -> Tuple[str, str]:
    """Return the ending of a run and its reason, for a job that ended and whose supervisor recorded no ending."""
    return _ENDINGS[state]


def advice(reason: str, job: str) -> Optional[str]:
    """Return what keeps a job waiting and what to do, or None if waiting is all there is to do."""
    text = _ADVICE.get(reason.split(",")[0].strip())
    return text.replace("JOB", job) if text else None


def optional_text(text: str) -> Optional[str]:
    """Return a value of a field, or None for the words with which Slurm says that there is none."""
    text = text.strip()
    return None if text in _NO_TEXT else text


def parse_time(text: str) -> Optional[float]:
    """Return the Unix time of Slurm's local time, such as ``2026-11-19T14:30:00``, or None."""
    try:
        return time.mktime(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def parse_duration(text: str) -> Optional[float]:
    """Return the seconds of ``[days-]hours:minutes:seconds`` or ``minutes:seconds``, or None."""
    days, _, clock = text.strip().rpartition("-")
    fields = clock.split(":")
    if not all(field.isdigit() and len(field) < 9 for field in [*fields, *([days] if days else [])]):
        return None
    if not 2 <= len(fields) <= 3:
        return None
    seconds = 0
    for field in fields:
        seconds = seconds * 60 + int(field)
    return float(seconds + int(days or 0) * 86400)


def expand_nodes(text: str) -> List[str]:
    """Return the names in a list of nodes such as ``n[1-3,07],login``. Return [] for other text."""
    names: List[str] = []
    if optional_text(text) is None:
        return names
    for match in _HOSTS.finditer(text):
        prefix, numbers, suffix, plain = match.groups()
        if plain:
            names.append(plain)
            continue
        for span in numbers.split(","):
            first, _, last = span.partition("-")
            if not first.isdigit() or (last and not last.isdigit()) or len(first) > 9 or len(last) > 9:
                return []
            for number in range(int(first), min(int(last or first), int(first) + _MAX_NODES) + 1):
                names.append("%s%0*d%s" % (prefix, len(first), number, suffix))
    return names[:_MAX_NODES]


def format_duration(seconds: float) -> str:
    """Return a time limit for people, such as ``2 h 30 min``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts: Dict[str, int] = {"d": days, "h": hours, "min": minutes, "s": rest}
    return " ".join("%d %s" % (number, unit) for unit, number in parts.items() if number) or "0 s"
