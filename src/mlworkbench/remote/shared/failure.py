"""Why something failed, as data. Text is made from it for people, and for clients of earlier versions."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, TypedDict, Union

    class Failure(TypedDict):
        """``code``: a stable identifier for programs; ``explain``: a page of ``mlw explain``."""

        code: str
        message: str
        hint: Optional[str]
        explain: Optional[str]

    Reason = Union[str, Failure]

# Codes of a script that failed: with an exception, by a signal, by an exit code with output and without.
RAISED, KILLED, EXITED, SILENT = "script-failed", "script-killed", "script-exited", "script-silent"
_LONGEST = 20_000  # characters of a text in a file that a script may have changed
AGENT_ERROR = "agent-error"  # code of an answer that no client treats in a way of its own
DISK_FULL = "disk-full"  # code and page
HINT = "; hint: "  # between a message and its hint, where both are one text


def failure(code: str, message: str, hint: Optional[str] = None, explain: Optional[str] = None) -> Failure:
    """A failure as events, answers, and files have it."""
    return {"code": code, "message": message, "hint": hint, "explain": explain}


def checked(value: Any) -> Optional[Failure]:
    """A failure out of a file that a script may have changed; None if it is none."""
    if not isinstance(value, dict):
        return None
    names = [name for name in ("code", "message", "hint", "explain") if isinstance(value.get(name), str)]
    texts = {name: value[name][:_LONGEST] for name in names}
    return failure(**texts) if "code" in texts and "message" in texts else None


def text_of(reason: Reason) -> str:
    """The message with its hint."""
    known = checked(reason)
    if known is None:
        return str(reason)
    return "%s%s%s" % (known["message"], HINT, known["hint"]) if known["hint"] else known["message"]


def extended(reason: Reason, text: str) -> Reason:
    """The reason with more at the end of its message."""
    if isinstance(reason, str):
        return reason + text
    code = EXITED if reason["code"] == SILENT else reason["code"]  # more is known than the exit code
    return failure(code, reason["message"] + text, reason["hint"], reason["explain"])


def refusal(reason: Failure) -> Dict[str, Any]:
    """The answer of an agent that could not do what was asked."""
    return {"ok": False, "problem": text_of(reason), "failure": reason}


def completed(reply: Dict[str, Any]) -> Dict[str, Any]:
    """The answer of a handler; one that only says what went wrong gets the other keys of a failure, too."""
    if reply.get("ok") is False and reply.get("problem") and "failure" not in reply:
        return dict(reply, failure=failure(AGENT_ERROR, str(reply["problem"])))
    return reply


def of_os_error(error: OSError, root: str) -> Failure:
    """Why the system refused something below ``root``; a full disk is named also where it is only the likely reason."""
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


class Failed(Exception):
    """Something failed, and ``failure`` says why. Subclasses set the usual code and page."""

    code = "failed"
    explain: Optional[str] = None

    def __init__(
        self, message: str, hint: Optional[str] = None, code: Optional[str] = None, explain: Optional[str] = None
    ) -> None:
        self.failure = failure(code or self.code, message, hint, explain or self.explain)
        super().__init__(text_of(self.failure))
