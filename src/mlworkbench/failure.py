"""A failure as data. Text for people is made from it where it is shown, and is never read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .errors import MlwError, details_of, error_class

_LONGEST = 20_000  # characters of a text: it may come from a target
_LONGEST_NAME = 100
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")  # of a code, and of a page


@dataclass(frozen=True)
class Failure:
    """``code`` is a stable identifier for programs; ``explain`` names a page of ``mlw explain``."""

    code: str
    message: str
    hint: str | None = None
    explain: str | None = None

    @classmethod
    def of(cls, error: MlwError) -> Failure:
        """The failure that an exception reports."""
        return cls(error.code, error.message, error.hint, error.more)

    @classmethod
    def from_json(cls, data: object) -> Failure | None:
        """None if it is no failure: the data may come from a target or from another process."""
        if not isinstance(data, Mapping):
            return None
        code, message = _text(data, "code", _LONGEST_NAME), _text(data, "message", _LONGEST)
        if code is None or not _NAME.fullmatch(code) or message is None:
            return None
        page = _text(data, "explain", _LONGEST_NAME)
        return cls(code, message, _text(data, "hint", _LONGEST), page if page and _NAME.fullmatch(page) else None)

    def to_json(self) -> dict[str, str | None]:
        return asdict(self)

    def to_error(self, exit_code: int | None = None) -> MlwError:
        """The exception again, on the other side of a process border.

        ``exit_code``: of the process. It decides the class where the code is that of no class in ``errors``.
        """
        kind = error_class(self.code, exit_code)
        error = kind.__new__(kind)  # constructors of subclasses compose the message, which is complete here
        MlwError.__init__(error, self.message, self.hint, more=self.explain, code=self.code)
        return error

    def labeled(self) -> list[tuple[str, str]]:
        """Label and text of each part, as the command line shows them."""
        parts = [("error: ", self.message)]
        parts += [("hint: ", self.hint)] if self.hint else []
        return [*parts, ("hint: ", details_of(self.explain))] if self.explain else parts


def _text(data: Mapping[Any, Any], name: str, longest: int) -> str | None:
    value = data.get(name)
    return value[:longest] if isinstance(value, str) else None
