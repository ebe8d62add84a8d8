"""``Framework: Python``: the script under a plain interpreter, a module, or any other command."""

from __future__ import annotations

from ..model import Entry


class Python:
    """Pure: makes the command line, touches nothing."""

    name = "Python"

    def command(self, entry: Entry, python: str) -> tuple[str, ...]:
        """The final words of the user's command, run in the project's root."""
        if entry.kind == "command":
            return (entry.name, *entry.arguments)
        if entry.kind == "module":
            return (python, "-m", entry.name, *entry.arguments)
        # A script called "-c.py" must not be read as an option of the interpreter.
        script = f"./{entry.name}" if entry.name.startswith("-") else entry.name
        return (python, script, *entry.arguments)
