"""The Python of an image or of another machine: it is used as it is, and cannot be looked at from here."""

from __future__ import annotations

from ..model import Command, Dependencies, Interpreter, JsonDict

_DEFAULT = "python3"


class Given:
    """Found there by its name, or where ``pythonLocation`` says."""

    def __init__(self, kind: str, location: str | None, whose: str) -> None:
        self.name = kind
        # `pythonLocation: python` stood in every project of the original: it was the default, not a choice.
        path = _DEFAULT if location in (None, "python") else str(location)
        self.interpreter = Interpreter(path, (0, 0, 0), f"{path} {whose}")

    def lock(self, dependencies: Dependencies | None = None, facts: JsonDict | None = None) -> JsonDict:
        return {"kind": self.name, "python": self.interpreter.path, "version": None}

    def steps(self, lock: JsonDict, prefix: str) -> tuple[Command, ...]:
        return ()

    def python(self, prefix: str) -> str:
        return self.interpreter.path
