"""The one-line cause of a failed run, read from the end of its log."""

from __future__ import annotations

import os
import re
import signal

from .shared.failure import EXITED, HINT, KILLED, RAISED, SILENT, failure

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from .shared.failure import Failure

TAIL = 256 * 1024
LENGTH = 500

_MARGIN = re.compile(r"^\s*[|+] ")  # of an exception group
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (.+))?$')
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):$")  # a progress bar may stand before it
_NAME = re.compile(r"name '(\w+)' is not defined")
_MODULE = re.compile(r"No module named '([\w.]+)'")

# The original ran scripts inside a program that had already imported these, so that scripts which forgot to
# import them worked there.
_GIVEN_BY_THE_ORIGINAL = ("sys", "os")


def read_tail(path: str, size: int = TAIL) -> str:
    from .serve import read_plain  # noqa: PLC0415 - only a run that failed needs it

    try:
        end = os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return ""
    return read_plain(path, max(0, end - size), size).decode("utf-8", "replace")


def explain(log: str, work: str, python: str, code: Optional[int], number: Optional[int]) -> Failure:
    """What went wrong, in one line, with the user's own line where there is a traceback."""
    if number is not None:
        return failure(KILLED, "killed by signal %d (%s)" % (number, signal_name(number)))
    found = exception_in(log, work, python)
    if found:
        return found
    said = next((line.strip() for line in reversed(_lines(log)) if line.strip()), "")
    if said:
        return failure(EXITED, ("exit code %s; last line: %s" % (code, said))[:LENGTH])
    return failure(SILENT, "exit code %s; the log is empty" % code)


def exception_in(log: str, work: str, python: str) -> Optional[Failure]:
    """The exception that the log ends with, and where it was raised; None if it ends with something else."""
    return _traceback(_lines(log), work, python)


def _lines(log: str) -> List[str]:
    log = log.replace(HINT, "; hint - ")  # clients of earlier versions must not take it for a hint of ours
    return [_MARGIN.sub("", line) for line in log.replace("\r", "\n").split("\n")]  # more empty ones do no harm


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG%d" % number


def _traceback(lines: List[str], work: str, python: str) -> Optional[Failure]:
    """Exception and place of the last traceback, if the log ends with one."""
    start = _last_start(lines)
    if start is None:
        return None
    frames: List[Tuple[str, str]] = []
    for index in range(start, len(lines)):
        frame = _FRAME.match(lines[index])
        if frame:
            frames.append((frame.group(1), frame.group(2)))
            continue
        exception = _EXCEPTION.match(lines[index])
        if exception and frames:
            return _sentence(exception.group(1), exception.group(2) or "", _place(frames, work), python)
    return None


def _last_start(lines: List[str]) -> Optional[int]:
    for index in range(len(lines) - 1, -1, -1):
        if _TRACEBACK.search(lines[index]):
            return index
    # A syntax error in the script itself has no "Traceback" line.
    if not any(line.startswith(("SyntaxError", "IndentationError", "TabError")) for line in lines):
        return None
    return next((index for index in range(len(lines) - 1, -1, -1) if _FRAME.match(lines[index])), None)


def _sentence(kind: str, message: str, place: str, python: str) -> Failure:
    text = ("%s: %s" % (kind, message) if message else kind) + place
    name = _NAME.search(message)
    if kind == "NameError" and name and name.group(1) in _GIVEN_BY_THE_ORIGINAL:
        module = name.group(1)
        text += "; the script uses %s without importing it: add 'import %s'" % (module, module)
        return failure(RAISED, text[:LENGTH], None, "name-error")
    module_name = _MODULE.search(message)
    if kind in ("ModuleNotFoundError", "ImportError") and module_name:
        text += "; it is not installed in %s, which ran the script" % python
        return failure(RAISED, text[:LENGTH], None, "module-not-found")
    return failure(RAISED, text[:LENGTH])


def _place(frames: List[Tuple[str, str]], work: str) -> str:
    """The innermost line that is the user's own; else the innermost line."""
    real = os.path.realpath(work)
    for path, line in reversed(frames):
        for root in (work, real):
            if path.startswith(root + os.sep):
                return " (%s:%s)" % (os.path.relpath(path, root), line)
        if not os.path.isabs(path) and not path.startswith("<"):
            return " (%s:%s)" % (path, line)
    return ""
