"""``Framework: Python``: run a script, notebook, or module with a plain interpreter, or any other command."""

from __future__ import annotations

import posixpath

from .framework import FrameworkCommand, Setting, is_notebook

_NOTEBOOK_PROGRAM = ("mlworkbench", "_launch", "notebook.py")  # below the folder of the in-run library


class Python:
    """The Python framework, which runs the interpreter or command directly."""

    def make(self, setting: Setting) -> FrameworkCommand:
        entry = setting.entry
        if entry.kind == "command":
            return FrameworkCommand((entry.name, *entry.arguments))
        if entry.kind == "module":
            return FrameworkCommand((setting.python, "-m", entry.name, *entry.arguments))
        program = (posixpath.join(setting.inrun, *_NOTEBOOK_PROGRAM),) if is_notebook(entry) else ()
        return FrameworkCommand((setting.python, *program, as_path(entry.name), *entry.arguments))


def as_path(script: str) -> str:
    """Return a path that the interpreter cannot mistake for an option: "./-c.py" for "-c.py"."""
    return f"./{script}" if script.startswith("-") else script
