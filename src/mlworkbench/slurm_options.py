"""Slurm's notation for time limits, and the options of ``sbatch`` that users may set."""

from __future__ import annotations

import re

MAX_TIME = 366 * 86400  # seconds; longer limits are typing errors
TIME_EXAMPLES = "90 (minutes), 2:00:00, or 1-12:00 (days-hours:minutes)"
# minutes, minutes:seconds, or hours:minutes:seconds; and days-hours[:minutes[:seconds]]
_PLAIN = re.compile(r"([0-9]{1,9})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?\Z")
_DAYS = re.compile(r"([0-9]{1,4})-([0-9]{1,2})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?\Z")
_OPTION = re.compile(r"--([a-z][a-z-]*)(=.*)?\Z", re.DOTALL)

# Options of sbatch that mlw sets itself, or that would break its control of the job, with what to use instead.
_SET_BY_MLW = {
    **dict.fromkeys(("partition", "account", "qos", "constraint", "time"), "set the key of this name in the file"),
    **dict.fromkeys(("gpus", "gres", "gpus-per-node", "gpus-per-task"), "request GPUs with --gpus or the key Gpus"),
    "cpus-per-task": "set the key cpus",
    "mem": "set the key memory",
    **dict.fromkeys(("requeue", "no-requeue"), "Retries and RetryOn decide whether the job is requeued"),
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node", "tasks-per-node"), "runs use one node and one task"),
    **dict.fromkeys(("export", "export-file", "get-user-env"), "set variables with --env or in setUp"),
    **dict.fromkeys(("array", "clusters"), None),
    **dict.fromkeys(("job-name", "comment", "output", "error", "input", "open-mode", "chdir", "signal", "wrap"), None),
    **dict.fromkeys(("parsable", "quiet", "verbose", "wait", "test-only", "help", "usage", "version"), None),
    **dict.fromkeys(("uid", "gid", "hold", "batch", "no-kill", "het-group", "container", "pack-group"), None),
}
# Options that begin like one of mlw's options without being an abbreviation of it.
_DISTINCT = ("mem-per-cpu", "mem-bind", "time-min", "ntasks-per-core", "ntasks-per-socket")


def parse_time_limit(text: str) -> int | None:
    """Return the seconds of a time limit in Slurm's notation, or None if it is invalid or zero."""
    days, plain = _DAYS.match(text.strip()), _PLAIN.match(text.strip())
    if days:
        day, hour, minute, second = (int(part or 0) for part in days.groups())
    elif plain:
        numbers = [int(part) for part in plain.groups() if part is not None]
        day, (hour, minute, second) = 0, (numbers if len(numbers) == 3 else (0, *numbers, 0)[:3])
    else:
        return None
    seconds = ((day * 24 + hour) * 60 + minute) * 60 + second
    return seconds if 0 < seconds <= MAX_TIME else None


def format_time_limit(seconds: float) -> str:
    """Return a time limit in Slurm's notation, such as ``1-12:00:00``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-{hour:02}" if days else f"{hour}") + f":{minute:02}:{second:02}"


def refused_option(text: str) -> tuple[str, str | None] | None:
    """Return why an option of ``sbatch`` cannot be set, and what to do instead; None if it can be set."""
    match = _OPTION.match(text)
    if match is None or not text.isprintable():
        return f"{text!r} is not a long option of sbatch", "write it in one item, such as --exclude=n1 or --exclusive"
    name = match[1]
    if name in _DISTINCT:
        return None
    # sbatch accepts abbreviations of its options.
    ours = name if name in _SET_BY_MLW else next((other for other in _SET_BY_MLW if other.startswith(name)), None)
    return None if ours is None else (f"mlw sets --{ours} itself", _SET_BY_MLW[ours])
