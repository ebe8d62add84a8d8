"""Problems in an aml_config file: invalid values, and the diagnostics collected for a file."""

from __future__ import annotations

from ..errors import ConfigError
from ..model import Problem
from .yaml_tree import Node


class InvalidValue(Exception):
    """Error for an invalid value, with its line in the file."""

    def __init__(self, node: Node, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.line = node.line
        self.message = message
        self.hint = hint


class Diagnostics:
    """Errors and warnings for a file, in the order in which they were found."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.problems: list[Problem] = []

    def error(self, line: int | None, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.filename, line, "error", message, hint))

    def warn(self, line: int | None, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.filename, line, "warning", message, hint))

    def raise_first(self) -> None:
        for problem in self.problems:
            if problem.severity == "error":
                raise ConfigError(problem.message, problem.hint, path=problem.path, line=problem.line)
