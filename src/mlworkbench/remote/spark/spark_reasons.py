"""Why something of an application failed, in one line: Spark tells it in pages. Loaded when something fails."""

from __future__ import annotations

from ..cause import exception_in

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

LENGTH = 400
MEMORY = "java.lang.OutOfMemoryError"
_TRACEBACK = "Traceback (most recent call last):"
_DATE = "dd/dd/dd dd:dd:dd "  # at the beginning of what Spark itself logs
_LEVELS = ("INFO", "WARN", "ERROR", "DEBUG", "TRACE", "FATAL")


def in_one_line(text: str, work: str) -> str:
    """A Python exception with its place in the user's code, else the first line that says something."""
    found = python_cause(text, work)
    if found:
        return found[:LENGTH]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first[:LENGTH]


def python_cause(text: str, work: str) -> Optional[str]:
    """The innermost Python exception in what Spark tells; None if there is none."""
    if _TRACEBACK not in text:
        return None
    found = exception_in(text, work, "the executors' Python")
    return found["message"] if found else None


def task_cause(reason: Dict[str, Any], work: str) -> str:
    """Of a task that ended otherwise than well, as Spark wrote it down."""
    kind = str(reason.get("Reason") or "unknown")
    for name in ("Description", "Full Stack Trace", "Message", "Loss Reason", "Kill Reason"):
        text = reason.get(name)
        if isinstance(text, str) and text.strip():
            python = python_cause(text, work)
            if python:
                return python[:LENGTH]
            named = reason.get("Class Name") if kind == "ExceptionFailure" else kind
            return ("%s: %s" % (named, in_one_line(text, work)))[:LENGTH] if named else in_one_line(text, work)
    return str(reason.get("Class Name") or kind)[:LENGTH]


def own_words(log: str) -> str:
    """The log without what Spark itself wrote: tracebacks of tasks that failed on the way are no cause of the end."""
    return "\n".join(line for line in log.splitlines() if not _is_foreign(line))


def _is_foreign(line: str) -> bool:
    if line.startswith(("\tat ", "\t... ", "Caused by: ")) or level_of(line):
        return True
    return line.endswith(_TRACEBACK) and not line.startswith(_TRACEBACK) and "PythonException" in line


def level_of(line: str) -> Optional[str]:
    """``INFO`` of ``26/11/16 00:34:25 INFO SparkContext: …``; None of a line that is not Spark's."""
    head = "".join("d" if char.isdigit() else char for char in line[: len(_DATE)])
    level = line[len(_DATE) :].partition(" ")[0] if head == _DATE else ""
    return level if level in _LEVELS else None


def last_error(log: str) -> Optional[str]:
    """The last thing that Spark itself complained of: ``Application has been killed. Reason: …``."""
    for line in reversed(log.splitlines()):
        if level_of(line) == "ERROR":
            return line.partition(": ")[2][:LENGTH] or None
        if line.startswith('Exception in thread "main" '):
            return line.partition('" ')[2][:LENGTH]
    return None


def said_by_java(log: str) -> Optional[str]:
    """What stands below ``Py4JJavaError: An error occurred while calling …``, after a colon."""
    return next((line[2:][:LENGTH] for line in reversed(log.splitlines()) if line.startswith(": ")), None)


def memory_error(log: str) -> Optional[str]:
    """``java.lang.OutOfMemoryError: Java heap space`` of the driver, if that is in the log."""
    for line in reversed(log.splitlines()):
        at = line.find(MEMORY)
        if at >= 0 and not line.startswith(("\t", " ")) and "Lost task" not in line:
            return line[at : at + 100].strip()
    return None
