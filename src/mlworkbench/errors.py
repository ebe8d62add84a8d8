"""The exception tree and the exit codes of mlw's own failures. A failed run is not an exception.

MlwError
├── UsageError          the words on the command line do not fit together
├── ConfigError         a project file is missing, damaged or says something impossible (file, line)
├── UnknownName         a name that nobody knows; lists the known ones
├── PreflightError      what the project asks for cannot work on the target
├── SolveError          no set of packages is what the project asks for
│   └── NotFetched      nobody can say: where packages come from was not reached
├── SnapshotError       the project's files could not be read whole
├── HostError           the machine could not be asked
│   └── Unreachable
├── LaunchError         the run could not be put to work; nothing was started
├── WaitTimeout         a run has not ended yet; only in programs that wait for it
└── HistoryError        the run history cannot be read or written
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Exit codes of mlw itself, after sysexits.h: scripts rarely use them, so that `mlw submit`
# can return the script's own code and both can still be told apart most of the time.
EXIT_USAGE = 2
EXIT_TIMEOUT = 124
EXIT_DETACHED = 130

_NAMED, _LONGEST = 20, 80  # names that a message lists, and characters of one
_LONGEST_MESSAGE = 1000
_WORD, _PROPOSED = 3, 3  # letters that say what is meant, and names that are proposed


class MlwError(Exception):
    """What happened and to what, in one sentence; ``hint`` says what to do.

    ``more`` names a text of ``explain``, where a hint is not enough. ``code`` is a stable identifier for programs.
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
    """The hint that names a page of ``mlw explain``."""
    return f"for details run 'mlw explain {page}'"


class UsageError(MlwError):
    """The command line is invalid."""

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
        # A project may hold a value of a megabyte, and the message quotes it.
        message = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"
        super().__init__(place + message, hint, code=code)
        self.path = path
        self.line = line
        self._text = message

    @property
    def text(self) -> str:
        """The message without the file and the line."""
        return self.message if self._text is None else self._text


class UnknownName(MlwError):
    """A name does not exist; the message lists the available names."""

    exit_code = 66
    code = "unknown-name"
    summary: str | None = None  # the message in two parts, where it is known here
    available: str | None = None

    def __init__(
        self, kind: str, name: str, known: Iterable[str], hint: str | None = None, *, otherwise: str | None = None
    ) -> None:
        """``hint`` replaces the similar names; ``otherwise`` is the hint if no name is similar."""
        names = sorted(known)
        more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        self.summary = f"unknown {kind} {_short(name)!r}"
        self.available = f"available: {', '.join(map(_listed, names[:_NAMED]))}{more}" if names else "none exist yet"
        message = f"{self.summary}; {self.available}"
        near = _near(name, names)
        super().__init__(
            message, hint or (f"did you mean {' or '.join(repr(_short(one)) for one in near)}?" if near else otherwise)
        )


def _near(name: str, names: list[str]) -> list[str]:
    """What was probably meant: names that begin so, else the one that is spelt nearly so, else one that has it."""
    word = name.lower()
    beginning = [one for one in names if len(word) >= _WORD and one.lower().startswith(word)]
    if beginning:
        return beginning[:_PROPOSED]
    having = [one for one in names if len(word) >= _WORD and word in one.lower()]
    return difflib.get_close_matches(name, names, n=1) or (having if len(having) == 1 else [])


def _short(name: str) -> str:
    """A script can give its metrics any name, and ten thousand of them."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


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
    """A run has not ended within the time that a program waits for it; it continues."""

    exit_code = EXIT_TIMEOUT


class HistoryError(MlwError):
    """The run history cannot be read or written."""

    exit_code = 74
    code = "history"


def error_class(code: str, exit_code: int | None = None) -> type[MlwError]:
    """The class of an error by its code, else by the exit code of mlw; MlwError if neither is of a class here."""
    kinds = [MlwError]
    for kind in kinds:
        kinds += [one for one in kind.__subclasses__() if one.__module__ == __name__]
    by_code = (kind for kind in kinds if kind.code == code)
    return next(by_code, None) or next((kind for kind in kinds if kind.exit_code == exit_code), MlwError)
