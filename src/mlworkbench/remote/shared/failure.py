"""Failures as data, and their text for users and for clients of earlier versions."""

from __future__ import annotations

import errno
import json
import os

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Optional, TypedDict, Union

    class Failure(TypedDict):
        """A failure: ``code`` is a stable identifier, and ``explain`` is an ``mlw explain`` page."""

        code: str
        message: str
        hint: Optional[str]
        explain: Optional[str]

    Reason = Union[str, Failure]

# Codes of a failed script: exception, signal, exit code with output, exit code without output.
RAISED, KILLED, EXITED, SILENT = "script-failed", "script-killed", "script-exited", "script-silent"
_MAX_TEXT = 20_000  # maximum characters: a script may have changed the file
AGENT_ERROR = "agent-error"  # code of answers that clients do not handle specially
DISK_FULL = "disk-full"  # failure code and explain page
HINT = "; hint: "  # separator between a message and its hint


def failure(code: str, message: str, hint: Optional[str] = None, explain: Optional[str] = None) -> Failure:
    """Return a failure in the format of events, answers, and files."""
    return {"code": code, "message": message, "hint": hint, "explain": explain}


def parse_failure(value: Any) -> Optional[Failure]:
    """Return a failure from untrusted data, or None if it is not a failure."""
    if not isinstance(value, dict):
        return None
    names = [name for name in ("code", "message", "hint", "explain") if isinstance(value.get(name), str)]
    texts = {name: value[name][:_MAX_TEXT] for name in names}
    return failure(**texts) if "code" in texts and "message" in texts else None


def text_of(reason: Reason) -> str:
    """Return the message with its hint."""
    parsed = parse_failure(reason)
    if parsed is None:
        return str(reason)
    return "%s%s%s" % (parsed["message"], HINT, parsed["hint"]) if parsed["hint"] else parsed["message"]


def extend_message(reason: Reason, text: str) -> Reason:
    """Return the reason with ``text`` appended to its message."""
    if isinstance(reason, str):
        return reason + text
    code = EXITED if reason["code"] == SILENT else reason["code"]  # more than the exit code is known now
    return failure(code, reason["message"] + text, reason["hint"], reason["explain"])


def failure_answer(reason: Failure) -> Dict[str, Any]:
    """Return the agent's answer to a request that failed."""
    return {"ok": False, "problem": text_of(reason), "failure": reason}


def complete_answer(reply: Dict[str, Any]) -> Dict[str, Any]:
    """Return a handler's answer, and add a failure if it contains only a problem."""
    if reply.get("ok") is False and reply.get("problem") and "failure" not in reply:
        return dict(reply, failure=failure(AGENT_ERROR, str(reply["problem"])))
    return reply


def failure_from_os_error(error: OSError, root: str) -> Failure:
    """Return the failure for an OSError below ``root``. Mention a full disk even if it is only likely."""
    text = error.strerror or str(error)
    if error.filename:
        text += ": %s" % os.fsdecode(error.filename)
    try:
        disk = os.statvfs(root)
    except (OSError, AttributeError):
        return failure(AGENT_ERROR, text)
    if disk.f_bavail * disk.f_frsize < 1024 * 1024:
        text += " (the disk that holds %s is full)" % root
    elif disk.f_files and not disk.f_favail:
        text += " (the disk that holds %s has no inodes left)" % root
    elif error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return failure(AGENT_ERROR, text)
    return failure(DISK_FULL, text, None, DISK_FULL)


def mask_values(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text, also where they are escaped."""
    for value in secrets:
        if len(value) >= 4:  # a shorter value would mask ordinary words
            for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1]):
                text = text.replace(form, "***")
    return text


class Failed(Exception):
    """An error with details in ``failure``. Subclasses set the default code and explain page."""

    code = "failed"
    explain: Optional[str] = None

    def __init__(
        self, message: str, hint: Optional[str] = None, code: Optional[str] = None, explain: Optional[str] = None
    ) -> None:
        self.failure = failure(code or self.code, message, hint, explain or self.explain)
        super().__init__(text_of(self.failure))
