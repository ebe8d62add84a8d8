"""What is wrong in a text that is being edited: the text in the editor counts, not the file on disk. Runs nothing."""

from __future__ import annotations

import ast
import json
import tempfile
import warnings
from pathlib import Path

from ...config.place import FOLDER
from ...config.project import Project
from ...config.validation import is_checked, problems_of
from ...model import Problem
from ...remote.shared.untrusted import parse_json

_MOST = 200


def problems_in(project: Project, path: str, text: str) -> list[Problem]:
    """In the order of its lines; those of aml_config by their schemas, scripts and JSON by their grammar."""
    folder, _, name = path.rpartition("/")
    if folder == FOLDER and is_checked(Path(name)):
        return _by_schema(project, name, text)[:_MOST]
    if name.endswith(".py"):
        return _python(path, text)
    if name.endswith((".json", ".ipynb")):
        return _json(path, text)
    return []


def _by_schema(project: Project, name: str, text: str) -> list[Problem]:
    with tempfile.TemporaryDirectory(prefix="mlw-") as place:
        copy = Path(place, name)
        copy.write_text(text, encoding="utf-8", newline="", errors="surrogatepass")
        found = problems_of(project, copy)
    shown = f"{FOLDER}/{name}"
    told = [Problem(shown, one.line, one.severity, one.message.replace(str(copy), shown), one.hint) for one in found]
    return sorted(told, key=lambda one: one.line or 0)


def _python(path: str, text: str) -> list[Problem]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return [Problem(path, error.lineno, "error", f"invalid Python: {error.msg}")]
    except (ValueError, RecursionError, MemoryError):
        return [Problem(path, None, "error", "invalid Python")]
    return []


def _json(path: str, text: str) -> list[Problem]:
    try:
        parse_json(text or "null")
    except json.JSONDecodeError as error:
        return [Problem(path, error.lineno, "error", f"invalid JSON: {error.msg}")]
    except ValueError:
        return [Problem(path, None, "error", "invalid JSON")]
    return []
