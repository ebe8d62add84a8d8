"""Exceptions and exit codes of mlw's own failures. A failed run is not an exception.

MlwError
├── UsageError          the command line is invalid
├── ConfigError         a project file is missing, damaged, or invalid (file, line)
├── UnknownName         a name does not exist; lists the available ones
├── PreflightError      the project is not compatible with the target
├── SolveError          the dependencies cannot be resolved
│   └── NotFetched      a package source could not be reached
├── SnapshotError       some project files could not be read
├── HostError           communication with the machine failed
│   └── Unreachable
├── LaunchError         the run could not be started; nothing is running
├── WaitTimeout         a run did not end within the caller's timeout
└── HistoryError        the run history cannot be read or written
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Exit codes of mlw itself, mostly from sysexits.h. Scripts rarely use them, so `mlw submit` can return
# the script's own exit code, and users can usually distinguish the two.
EXIT_USAGE = 2
EXIT_TIMEOUT = 124
EXIT_DETACHED = 130

_MAX_NAMES, _MAX_NAME_LENGTH = 20, 80  # maximum number of names in a message, and characters of a name
_MAX_MESSAGE_LENGTH = 1000
_WORD, _PROPOSED = 3, 3  # minimum length of a name for suggestions, and maximum number of suggestions


class MlwError(Exception):
    """An error for the user. The message states what failed in one sentence; ``hint`` is the next step.

    ``more`` names a page of ``mlw explain`` if a hint is not enough. ``code`` is a stable identifier for programs.
    """

    exit_code = 70
    code = "error"
    more: str | None = None

    def __init__(
        self, message: str, hint: str | None = None, *, more: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if more is not None:
            self.more = more
        if code is not None:
            self.code = code


def details_of(page: str) -> str:
    """Return the hint that names a page of ``mlw explain``."""
    return f"for details run 'mlw explain {page}'"


class UsageError(MlwError):
    """An option, an argument, or a value in a request is invalid."""

    exit_code = EXIT_USAGE
    code = "usage"


class ConfigError(MlwError):
    """A project file is missing or invalid."""

    exit_code = 78
    code = "config"
    path: str | None = None
    line: int | None = None
    _text: str | None = None

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        path: str | None = None,
        line: int | None = None,
        code: str | None = None,
    ) -> None:
        place = "" if path is None else f"{path}:{line}: " if line else f"{path}: "
        # The message may quote a value from a project file, which may be very long.
        message = message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[:_MAX_MESSAGE_LENGTH]}…"
        super().__init__(place + message, hint, code=code)
        self.path = path
        self.line = line
        self._text = message

    @property
    def text(self) -> str:
        """Return the message without file and line."""
        return self.message if self._text is None else self._text


class UnknownName(MlwError):
    """A name does not exist; the message lists the available names."""

    exit_code = 66
    code = "unknown-name"
    summary: str | None = None  # the two parts of the message, if known
    available: str | None = None

    def __init__(
        self, kind: str, name: str, known: Iterable[str], hint: str | None = None, *, otherwise: str | None = None
    ) -> None:
        """Create the error. ``hint`` replaces the suggestions; ``otherwise`` is the hint if no name is similar."""
        names = sorted(known)
        more = f", and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        self.summary = f"unknown {kind} {_short(name)!r}"
        self.available = (
            f"available: {', '.join(map(_listed, names[:_MAX_NAMES]))}{more}" if names else "none exist yet"
        )
        message = f"{self.summary}; {self.available}"
        near = _close_names(name, names)
        super().__init__(
            message,
            hint
            or (f"did you mean {' or '.join(repr(_short(candidate)) for candidate in near)}?" if near else otherwise),
        )


def _close_names(name: str, names: list[str]) -> list[str]:
    """Return likely names: those with this prefix, else the most similar one, else one that contains it."""
    lowered = name.lower()
    beginning = [candidate for candidate in names if len(lowered) >= _WORD and candidate.lower().startswith(lowered)]
    if beginning:
        return beginning[:_PROPOSED]
    having = [candidate for candidate in names if len(lowered) >= _WORD and lowered in candidate.lower()]
    return difflib.get_close_matches(name, names, n=1) or (having if len(having) == 1 else [])


def _short(name: str) -> str:
    """Shorten a name for a message. Scripts can log metrics with names of any length."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 1]}…"


def _listed(name: str) -> str:
    return _short(name) if name.isprintable() else repr(_short(name))


class PreflightError(MlwError):
    """The project is not compatible with the target; nothing was sent."""

    exit_code = 78
    code = "preflight"


class SolveError(MlwError):
    """The dependencies cannot be resolved; the message contains the resolver's output."""

    exit_code = 78
    code = "unsolvable"


class NotFetched(SolveError):
    """A package index or a Python download could not be reached."""

    exit_code = 69
    code = "not-fetched"


class SnapshotError(MlwError):
    """Some project files could not be read."""

    exit_code = 74
    code = "snapshot"


class HostError(MlwError):
    """Communication with the machine failed."""

    exit_code = 69
    code = "host"


class Unreachable(HostError):
    """The machine cannot be reached; its runs are not affected."""

    code = "unreachable"
    more = "no-contact"


class LaunchError(MlwError):
    """The run could not be started."""

    exit_code = 75
    code = "launch"


class WaitTimeout(MlwError, TimeoutError):
    """A run did not end within the caller's timeout. The run continues."""

    exit_code = EXIT_TIMEOUT


class HistoryError(MlwError):
    """The run history cannot be read or written."""

    exit_code = 74
    code = "history"


def error_class(code: str, exit_code: int | None = None) -> type[MlwError]:
    """Return the error class for a code, else for an exit code of mlw, else MlwError."""
    kinds = [MlwError]
    for kind in kinds:
        kinds += [subclass for subclass in kind.__subclasses__() if subclass.__module__ == __name__]
    by_code = (kind for kind in kinds if kind.code == code)
    return next(by_code, None) or next((kind for kind in kinds if kind.exit_code == exit_code), MlwError)
