"""The one-line cause of a failed run, derived from the end of its log."""

from __future__ import annotations

import os
import re
import signal

from .shared.failure import EXITED, HINT, KILLED, RAISED, SILENT, failure
from .shared.shell_variables import unpassed_hint

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Collection, List, Optional, Tuple

    from .shared.failure import Failure

TAIL = 256 * 1024
MAX_LENGTH = 500
_ABORT_TAIL = 8192

_MARGIN = re.compile(r"^\s*[|+] ")  # left margin in the traceback of an exception group
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (.+))?$')
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):$")  # may follow a progress bar on the same line
_ENVIRON = re.compile(r"(^|[/\\])os\.py$|^<frozen os>$")  # raises KeyError for os.environ["NAME"]
_NAME = re.compile(r"name '(\w+)' is not defined")
_MODULE = re.compile(r"No module named '([\w.]+)'")

# Azure ML Workbench ran scripts in a program that had already imported these modules, so scripts worked there
# without importing them.
_PREIMPORTED_MODULES = ("sys", "os")


def read_tail(path: str, size: int = TAIL, start: int = 0) -> str:
    """Return the end of a log, at most ``size`` bytes after the offset ``start``."""
    from .run_reader import read_regular_file  # noqa: PLC0415 - only for failed runs

    try:
        end = os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return ""
    return read_regular_file(path, max(start, end - size), size).decode("utf-8", "replace")


def explain_failure(
    log: str,
    work: str,
    python: str,
    code: Optional[int],
    signal_number: Optional[int],
    unpassed: Collection[str] = (),
) -> Failure:
    """Return the cause in one line, with the user's line of code if the log contains a traceback.

    ``unpassed``: variables that were set in the submitting user's shell, but not passed to the script.
    """
    if signal_number == signal.SIGABRT:  # after an exception, libraries such as Gloo may abort while Python exits
        log = log[-_ABORT_TAIL:]
    exception = find_exception(log, work, python, unpassed) if signal_number in (None, signal.SIGABRT) else None
    if exception:
        return exception
    if signal_number is not None:
        return failure(KILLED, "killed by signal %d (%s)" % (signal_number, signal_name(signal_number)))
    last_line = next((line.strip() for line in reversed(_split_lines(log)) if line.strip()), "")
    if last_line:
        message = "exit code %s; last line: %s" % (code, last_line)
        return failure(EXITED, message[:MAX_LENGTH], unpassed_hint(last_line[:MAX_LENGTH], unpassed))
    return failure(SILENT, "exit code %s; the log is empty" % code)


def find_exception(log: str, work: str, python: str, unpassed: Collection[str] = ()) -> Optional[Failure]:
    """Return the last exception in the log and where it was raised, or None."""
    return _parse_traceback(_split_lines(log), work, python, unpassed)


def _split_lines(log: str) -> List[str]:
    log = log.replace(HINT, "; hint - ")  # earlier clients must not mistake log text for a hint
    return [_MARGIN.sub("", line) for line in log.replace("\r", "\n").split("\n")]  # extra empty lines are harmless


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG%d" % number


def _parse_traceback(lines: List[str], work: str, python: str, unpassed: Collection[str]) -> Optional[Failure]:
    """Return the exception and location of the last traceback, or None."""
    start = _find_traceback(lines)
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
            kind, message = exception.group(1), exception.group(2) or ""
            described = _describe_exception(kind, message, _find_location(frames, work), python)
            hint = _variable_hint(kind, message, frames[-1][0], unpassed)
            return failure(described["code"], described["message"], hint, described["explain"])
    return None


def _variable_hint(kind: str, message: str, file: str, unpassed: Collection[str]) -> Optional[str]:
    """Return the hint for an exception that was probably raised because an environment variable is missing."""
    hint = unpassed_hint(("%s: %s" % (kind, message))[:MAX_LENGTH], unpassed)
    if hint is None and kind == "KeyError" and _ENVIRON.search(file):
        # The script controls the name in the message, so the hint must not repeat it.
        return "pass a variable of your shell with --env NAME, or a secret with --secret NAME"
    return hint


def _find_traceback(lines: List[str]) -> Optional[int]:
    for index in range(len(lines) - 1, -1, -1):
        if _TRACEBACK.search(lines[index]):
            return index
    # A syntax error in the script itself has no "Traceback" line.
    if not any(line.startswith(("SyntaxError", "IndentationError", "TabError")) for line in lines):
        return None
    return next((index for index in range(len(lines) - 1, -1, -1) if _FRAME.match(lines[index])), None)


def _describe_exception(kind: str, message: str, location: str, python: str) -> Failure:
    text = ("%s: %s" % (kind, message) if message else kind) + location
    name = _NAME.search(message)
    if kind == "NameError" and name and name.group(1) in _PREIMPORTED_MODULES:
        module = name.group(1)
        text += "; the script uses %s without importing it: add 'import %s'" % (module, module)
        return failure(RAISED, text[:MAX_LENGTH], None, "name-error")
    module_name = _MODULE.search(message)
    if kind in ("ModuleNotFoundError", "ImportError") and module_name:
        text += "; it is not installed in %s, which ran the script" % python
        return failure(RAISED, text[:MAX_LENGTH], None, "module-not-found")
    return failure(RAISED, text[:MAX_LENGTH])


def _find_location(frames: List[Tuple[str, str]], work: str) -> str:
    """Return the innermost line of the user's own code as " (file:line)", or "" if there is none."""
    real_work = os.path.realpath(work)
    for path, line in reversed(frames):
        for root in (work, real_work):
            if path.startswith(root + os.sep):
                return " (%s:%s)" % (os.path.relpath(path, root), line)
        if not os.path.isabs(path) and not path.startswith("<"):
            return " (%s:%s)" % (path, line)
    return ""
