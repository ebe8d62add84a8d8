"""What a command prompt of a project begins with: which Python, and where its programs are."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from ...config.project import Project
from ...environments.existing import is_search, look_at_python
from ...errors import MlwError
from ...model import Interpreter
from ...paths import UserPaths
from ...remote.shared.programs import in_project, which
from ...report.plain import plain

_PLAIN = re.compile(r"[\w@%+=:,./ ~-]+")  # what every shell takes as it is between quotes


@dataclass(frozen=True)
class Prompt:
    """``folders`` go before PATH, and are never the project's; ``lines`` are printed first."""

    folders: list[str]
    lines: list[str]


def prompt(project: Project, paths: UserPaths) -> Prompt:
    """The Python of ``local`` first, then the place of mlw.

    What the project names or holds is not put on PATH: programs there would run as soon as the shell looks for one
    of its own. The user is shown the command that does it.
    """
    folders, lines = [], []
    try:
        location = project.compute("local").python_location if "local" in project.computes() else None
        found = look_at_python(location, os.environ, project.root, paths.interpreters)
        version = "Python " + ".".join(map(str, found.version)) if any(found.version) else "Python"
        lines.append(f"{version} for target local: {found.path} ({found.reason})")
        if is_search(location) and not in_project(found.path):
            folders.append(os.path.dirname(found.path))
        else:
            lines += _how_to_use(found)
    except MlwError as error:
        lines.append(f"no Python for target local: {error.message}")
    mlw = _place_of_mlw()
    if mlw and mlw not in folders and not in_project(mlw):
        folders.append(mlw)
    return Prompt(folders, [plain(line, 1000) for line in lines])


def _how_to_use(python: Interpreter) -> list[str]:
    """The command to type, if the path can be quoted for every shell."""
    folder = os.path.dirname(python.path)
    if not _PLAIN.fullmatch(folder):
        return []
    activate = os.path.join(folder, "activate")
    command = f". {shlex.quote(activate)}" if os.path.isfile(activate) else f"PATH={shlex.quote(folder)}:$PATH"
    return [f"this Python is not on PATH, because the project selects it; if you trust the project, run: {command}"]


def _place_of_mlw() -> str | None:
    """The folder with the program ``mlw`` of this installation."""
    beside = Path(sys.executable).parent
    if os.access(beside / "mlw", os.X_OK):
        return str(beside)
    found = which("mlw")
    return os.path.dirname(found) if found else None
