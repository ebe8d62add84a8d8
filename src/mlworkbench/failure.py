"""A failure as structured data. Messages are generated from it and never parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .errors import MlwError, details_of, error_class

_MAX_LENGTH = 20_000  # maximum length of a message or hint, which may come from a target
_MAX_NAME_LENGTH = 100  # maximum length of a code or page name
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Failure:
    """The reason for a failure.

    ``code`` is a stable identifier; ``explain`` names a page of ``mlw explain``.
    """

    code: str
    message: str
    hint: str | None = None
    explain: str | None = None

    @classmethod
    def of(cls, error: MlwError) -> Failure:
        """Return the failure that an exception reports."""
        return cls(error.code, error.message, error.hint, error.more)

    @classmethod
    def from_json(cls, data: object) -> Failure | None:
        """Parse a failure from a target or another process; return None if the data is invalid."""
        if not isinstance(data, Mapping):
            return None
        code, message = _text(data, "code", _MAX_NAME_LENGTH), _text(data, "message", _MAX_LENGTH)
        if code is None or not _NAME.fullmatch(code) or message is None:
            return None
        page = _text(data, "explain", _MAX_NAME_LENGTH)
        return cls(code, message, _text(data, "hint", _MAX_LENGTH), page if page and _NAME.fullmatch(page) else None)

    def to_json(self) -> dict[str, str | None]:
        return asdict(self)

    def to_error(self, exit_code: int | None = None) -> MlwError:
        """Return the exception for a failure that another process reported.

        The process's ``exit_code`` determines the class if no class in ``errors`` has the failure's code.
        """
        kind = error_class(self.code, exit_code)
        error = kind.__new__(kind)  # subclass constructors compose a message, but this one is already complete
        MlwError.__init__(error, self.message, self.hint, more=self.explain, code=self.code)
        return error

    def labeled(self) -> list[tuple[str, str]]:
        """Return the label and text of each part, as printed on the command line."""
        parts = [("error: ", self.message)]
        parts += [("hint: ", self.hint)] if self.hint else []
        return [*parts, ("hint: ", details_of(self.explain))] if self.explain else parts


def _text(data: Mapping[Any, Any], name: str, longest: int) -> str | None:
    value = data.get(name)
    return value[:longest] if isinstance(value, str) else None
