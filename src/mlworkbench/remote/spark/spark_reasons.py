"""Summarize Spark's long failure messages in one line. Imported only after a failure."""

from __future__ import annotations

from ..failure_cause import find_exception

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

MAX_LENGTH = 400
MEMORY = "java.lang.OutOfMemoryError"
_TRACEBACK = "Traceback (most recent call last):"
_DATE = "dd/dd/dd dd:dd:dd "  # prefix of Spark's log lines
_LEVELS = ("INFO", "WARN", "ERROR", "DEBUG", "TRACE", "FATAL")


def summarize(text: str, work: str) -> str:
    """Return a Python exception with its location in the user's code, or the first non-empty line."""
    cause = python_cause(text, work)
    if cause:
        return cause[:MAX_LENGTH]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first[:MAX_LENGTH]


def python_cause(text: str, work: str) -> Optional[str]:
    """Return the innermost Python exception in a Spark message, or None if there is none."""
    if _TRACEBACK not in text:
        return None
    failure = find_exception(text, work, "the executors' Python")
    return failure["message"] if failure else None


def task_cause(reason: Dict[str, Any], work: str) -> str:
    """Return a one-line cause for a failed task. ``reason`` is the "Task End Reason" of Spark's event."""
    kind = str(reason.get("Reason") or "unknown")
    for name in ("Description", "Full Stack Trace", "Message", "Loss Reason", "Kill Reason"):
        text = reason.get(name)
        if isinstance(text, str) and text.strip():
            python = python_cause(text, work)
            if python:
                return python[:MAX_LENGTH]
            named = reason.get("Class Name") if kind == "ExceptionFailure" else kind
            return ("%s: %s" % (named, summarize(text, work)))[:MAX_LENGTH] if named else summarize(text, work)
    return str(reason.get("Class Name") or kind)[:MAX_LENGTH]


def script_output(log: str) -> str:
    """Return the log without Spark's own lines: tracebacks of retried tasks are not the cause of the failure."""
    return "\n".join(line for line in log.splitlines() if not _is_spark_output(line))


def _is_spark_output(line: str) -> bool:
    if line.startswith(("\tat ", "\t... ", "Caused by: ")) or log_level(line):
        return True
    return line.endswith(_TRACEBACK) and not line.startswith(_TRACEBACK) and "PythonException" in line


def log_level(line: str) -> Optional[str]:
    """Return ``INFO`` for ``26/11/16 00:34:25 INFO SparkContext: …``, or None for other lines."""
    head = "".join("d" if char.isdigit() else char for char in line[: len(_DATE)])
    level = line[len(_DATE) :].partition(" ")[0] if head == _DATE else ""
    return level if level in _LEVELS else None


def last_error(log: str) -> Optional[str]:
    """Return the last error that Spark logged, such as ``Application has been killed. Reason: …``."""
    for line in reversed(log.splitlines()):
        if log_level(line) == "ERROR":
            return line.partition(": ")[2][:MAX_LENGTH] or None
        if line.startswith('Exception in thread "main" '):
            return line.partition('" ')[2][:MAX_LENGTH]
    return None


def java_error(log: str) -> Optional[str]:
    """Return the line after ``Py4JJavaError: An error occurred while calling …``; it starts with a colon."""
    return next((line[2:][:MAX_LENGTH] for line in reversed(log.splitlines()) if line.startswith(": ")), None)


def memory_error(log: str) -> Optional[str]:
    """Return the driver's ``java.lang.OutOfMemoryError: Java heap space`` if the log contains it."""
    for line in reversed(log.splitlines()):
        position = line.find(MEMORY)
        if position >= 0 and not line.startswith(("\t", " ")) and "Lost task" not in line:
            return line[position : position + 100].strip()
    return None
