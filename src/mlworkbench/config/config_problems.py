"""What is wrong in a file of aml_config: one value that cannot be used, and all problems of a file."""

from __future__ import annotations

from ..errors import ConfigError
from ..model import Problem
from .yamlfile import Node


class Wrong(Exception):
    """A value that cannot be used, at a line of the file being read."""

    def __init__(self, node: Node, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.line = node.line
        self.message = message
        self.hint = hint


class Notes:
    """The problems of one file, in the order they were found."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.problems: list[Problem] = []

    def error(self, line: int | None, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.shown, line, "error", message, hint))

    def warn(self, line: int | None, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.shown, line, "warning", message, hint))

    def raise_first(self) -> None:
        for problem in self.problems:
            if problem.severity == "error":
                raise ConfigError(problem.message, problem.hint, path=problem.path, line=problem.line)
