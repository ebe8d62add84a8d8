"""``Framework: Python``: the script under a plain interpreter, a module, or any other command."""

from __future__ import annotations

from .framework import Made, Setting


class Python:
    """The command is all there is to it."""

    def make(self, setting: Setting) -> Made:
        entry = setting.entry
        if entry.kind == "command":
            return Made((entry.name, *entry.arguments))
        if entry.kind == "module":
            return Made((setting.python, "-m", entry.name, *entry.arguments))
        return Made((setting.python, as_path(entry.name), *entry.arguments))


def as_path(script: str) -> str:
    """A script called "-c.py" must not be read as an option of the interpreter."""
    return f"./{script}" if script.startswith("-") else script
