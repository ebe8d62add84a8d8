"""Checks of the editor text rather than the file on disk. No code is executed."""

from __future__ import annotations

import ast
import json
import tempfile
import warnings
from pathlib import Path

from ...config.project_files import FOLDER
from ...config.project_folder import Project
from ...config.validation import check_project_file, is_config_file
from ...model import Problem
from ...remote.shared.untrusted_json import parse_json

_MAX_PROBLEMS = 200


def problems_in(project: Project, path: str, text: str) -> list[Problem]:
    """Return problems by line.

    These are schema errors in ``aml_config`` and syntax errors in Python and JSON files.
    """
    folder, _, name = path.rpartition("/")
    if folder == FOLDER and is_config_file(Path(name)):
        return _check_config(project, name, text)[:_MAX_PROBLEMS]
    if name.endswith(".py"):
        return _check_python(path, text)
    if name.endswith((".json", ".ipynb")):
        return _check_json(path, text)
    return []


def _check_config(project: Project, name: str, text: str) -> list[Problem]:
    with tempfile.TemporaryDirectory(prefix="mlw-") as folder:
        copy = Path(folder, name)
        copy.write_text(text, encoding="utf-8", newline="", errors="surrogatepass")
        problems = check_project_file(project, copy)
    path = f"{FOLDER}/{name}"
    shown_problems = [
        Problem(path, problem.line, problem.severity, problem.message.replace(str(copy), path), problem.hint)
        for problem in problems
    ]
    return sorted(shown_problems, key=lambda problem: problem.line or 0)


def _check_python(path: str, text: str) -> list[Problem]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return [Problem(path, error.lineno, "error", f"invalid Python: {error.msg}")]
    except (ValueError, RecursionError, MemoryError):
        return [Problem(path, None, "error", "invalid Python")]
    return []


def _check_json(path: str, text: str) -> list[Problem]:
    try:
        parse_json(text or "null")
    except json.JSONDecodeError as error:
        return [Problem(path, error.lineno, "error", f"invalid JSON: {error.msg}")]
    except ValueError:
        return [Problem(path, None, "error", "invalid JSON")]
    return []
