"""Shell completion. It must be fast, so modules are imported only where they are needed.

Commands and options come from ``completion_data.json``, which ``scripts/generate-reference``
generates. Runs, targets, and scripts are looked up. Any error results in no suggestions.
"""

from __future__ import annotations

import json
import os
import stat

from ..remote.shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would double the run time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

Suggestions = list[tuple[str, str]]  # (word, help)

DATA_FILE = os.path.join(os.path.dirname(__file__), "completion_data.json")
# Replies that ask the shell to complete file or folder names. Suggestions never start with a tab.
SHELL_COMPLETED = {"file": "\tfile\n", "dir": "\tdir\n"}
_MAX_FILE_SIZE = 1 << 20  # maximum size of project.json in bytes
_MAX_SUGGESTIONS = 200  # maximum number of suggestions; newest come first
_SAFE_CHARACTERS = frozenset("_@%+=:,./ -")


def complete(shell: str, words: list[str]) -> str:
    """Return one line ``word<TAB>help`` per suggestion for the shell function; for bash, only words."""
    is_quoted = bool(words) and words[-1][:1] in ("'", '"')  # bash adds the closing quote
    if shell != "fish":  # fish passes unquoted words
        words = [_unquote(word) for word in words]
    before, current, prefix = _split_current(words or [""], shell)
    with open(DATA_FILE, encoding="utf-8") as file:
        kind, suggestions = _CommandLine(json.load(file), before).suggest(current)
    if kind in SHELL_COMPLETED:
        return SHELL_COMPLETED[kind]
    matches = [
        (prefix + word, _replace_unprintable(text))
        for word, text in suggestions
        if word.startswith(current) and _is_safe(word)
    ]
    if shell == "bash":
        return "".join(f"{word if is_quoted else _escape_spaces(word)}\n" for word, _ in matches)
    return "".join(f"{word}\t{text}\n" for word, text in matches)


def _split_current(words: list[str], shell: str) -> tuple[list[str], str, str]:
    """Return the words before the cursor, the current word, and the prefix for suggestions.

    Bash splits ``--output=json`` into three words and expects only the last one.
    """
    merged: list[str] = []
    for word in words:
        is_continued = shell == "bash" and merged and merged[-1].startswith("--")
        if is_continued and (word == "=" or merged[-1].endswith("=")):
            merged[-1] += word
        else:
            merged.append(word)
    *before, current = merged
    if current.startswith("--") and "=" in current:
        option, _, value = current.partition("=")
        return [*before, option], value, "" if shell == "bash" else option + "="
    return before, current, ""


class _CommandLine:
    """Parsed words before the cursor: command, option awaiting a value, and number of arguments."""

    def __init__(self, tree: dict[str, Any], before: list[str]) -> None:
        self.command = tree
        self.pending_kind: Any = None
        self.folder: str | None = None
        self.argument_count = 0
        self.in_script = False  # the remaining words are script arguments
        remaining = iter(before)
        for word in remaining:
            self._parse_word(word, remaining)

    def _parse_word(self, word: str, remaining: Iterator[str]) -> None:
        if self.in_script:
            return
        options = self.command.get("options", {})
        name, equals, value = word.partition("=")
        if self.command.get("takes_script") and (word in ("--", "-m") or not word.startswith("-")):
            self.in_script = True
        elif name in options:
            self._parse_option(name, options[name][0], value if equals else None, remaining)
        elif "commands" in self.command and not word.startswith("-"):
            self.command = self.command["commands"].get(word, {})  # no suggestions after an unknown command
        elif not word.startswith("-"):
            self.argument_count += 1

    def _parse_option(self, name: str, kind: Any, value: str | None, remaining: Iterator[str]) -> None:
        if kind == "flag":
            return
        value = next(remaining, None) if value is None else value
        if value is None:
            self.pending_kind = kind
        elif name == "--project":
            self.folder = value

    def suggest(self, current: str) -> tuple[str, Suggestions]:
        """Return suggestions, or the kind of value if the shell completes it itself."""
        if self.pending_kind is not None:
            return self._suggest_values(self.pending_kind, current)
        if self.in_script:
            return "file", []
        options = [(name, text) for name, (_, text) in self.command.get("options", {}).items() if name[:2] == "--"]
        if current.startswith("-"):
            return "", options
        if "commands" in self.command:
            return "", [(name, entry["help"]) for name, entry in self.command["commands"].items()]
        kinds = self.command.get("arguments", [])
        if self.argument_count < len(kinds):
            return self._suggest_values(kinds[self.argument_count], current)
        if self.command.get("repeats"):
            return self._suggest_values(kinds[-1], current)
        return "", options

    def _suggest_values(self, kind: Any, current: str) -> tuple[str, Suggestions]:
        if isinstance(kind, list):
            return "", [(word, "") for word in kind]
        if kind in SHELL_COMPLETED:
            return kind, []
        find = {
            "run": find_runs,
            "target": find_targets,
            "runconfig": find_runconfigs,
            "script": find_scripts,
            "view": find_views,
            "symptom": find_explain_pages,
        }.get(kind)
        return "", find(self.folder, current) if find else []


def find_runs(folder: str | None, prefix: str = "") -> Suggestions:
    """Return the project's runs, newest first. Outside a project, return runs of all projects.

    Reads the index without creating or repairing it.
    """
    import apsw  # noqa: PLC0415

    from ..paths import user_paths  # noqa: PLC0415

    database = str(user_paths().database)
    project = _read_project_id(folder)
    connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
    conditions, values = ["id >= ? AND id < ?"], [prefix, prefix + "\U0010ffff"]
    if project:
        conditions.append("project = ?")
        values.append(project)
    if "." not in prefix:  # suggest nested runs only after a dot: a run can have thousands
        conditions.append("instr(id, '.') = 0")
    where = " AND ".join(conditions)
    rows = connection.execute(
        f"SELECT id, status, script FROM runs WHERE {where} ORDER BY seq DESC LIMIT {_MAX_SUGGESTIONS}", values
    )
    return [(str(run), f"{status} {script}") for run, status, script in rows]


def find_targets(folder: str | None, prefix: str = "") -> Suggestions:
    from ..config.project_files import COMPUTE_SUFFIX  # noqa: PLC0415

    return _find_config_names(folder, COMPUTE_SUFFIX)


def find_runconfigs(folder: str | None, prefix: str = "") -> Suggestions:
    from ..config.project_files import OLD_SUFFIX, RUNCONFIG_SUFFIX  # noqa: PLC0415

    return _find_config_names(folder, RUNCONFIG_SUFFIX, OLD_SUFFIX)


def find_scripts(folder: str | None, prefix: str = "") -> Suggestions:
    """Return the project's Python files and notebooks, top level first. Skip hidden folders and environments."""
    from ..config.project_files import find_root  # noqa: PLC0415

    root = find_root(folder or os.getcwd())
    paths: list[str] = []
    for parent, folders, names in os.walk(root) if root else ():
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
        )
        paths += [
            os.path.relpath(os.path.join(parent, name), root)
            for name in sorted(names)
            if name.endswith((".py", ".ipynb"))
        ]
        if len(paths) >= _MAX_SUGGESTIONS:
            break
    return [(path, "") for path in paths]


def find_views(folder: str | None, prefix: str = "") -> Suggestions:
    """Return the saved views of the project."""
    from ..paths import user_paths  # noqa: PLC0415
    from ..saved_views import SavedViews  # noqa: PLC0415

    return [(name, "") for name in SavedViews(user_paths(), _read_project_id(folder)).all()]


def find_explain_pages(folder: str | None, prefix: str = "") -> Suggestions:
    """Return the page names of ``mlw explain``."""
    root = os.path.join(os.path.dirname(os.path.dirname(__file__)), "explain")
    names = [name for _, _, files in os.walk(root) for name in files if name.endswith(".md")]
    return [(name[: -len(".md")], "") for name in sorted(names)]


def _find_config_names(folder: str | None, *suffixes: str) -> Suggestions:
    from ..config.project_files import FOLDER, find_root, list_names  # noqa: PLC0415

    root = find_root(folder or os.getcwd())
    return [(name, "") for name in list_names(os.path.join(root, FOLDER), *suffixes)] if root else []


def _read_project_id(folder: str | None) -> str | None:
    """Return the project ID from ``project.json``.

    Return None if the file does not exist. The ID then depends on the location, and runs of all
    projects are suggested.
    """
    from ..config.project_files import FOLDER, find_root  # noqa: PLC0415

    root = find_root(folder or os.getcwd())
    try:
        # A FIFO in a project must not block the shell.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(os.path.join(root or "", FOLDER, "project.json"), flags), "rb") as file:
            content = parse_json(file.read(_MAX_FILE_SIZE) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b"")
    except (OSError, ValueError):
        return None
    value = content.get("Id") or content.get("id") if isinstance(content, dict) else None
    return value.lower() if isinstance(value, str) else None


def _unquote(word: str) -> str:
    """Remove quotes and escapes, which bash and zsh pass as typed. A quote may be unclosed."""
    if not any(char in word for char in "\"'\\"):
        return word
    text, quote, escaped = "", "", False
    for char in word:
        if escaped:
            text, escaped = text + char, False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in ("'", '"') and quote in ("", char):
            quote = "" if quote else char
        else:
            text += char
    return text


def _is_safe(word: str) -> bool:
    """Return whether a word is safe unquoted in any shell. File names may contain commands."""
    return all(
        char.isalnum() or char in _SAFE_CHARACTERS or (not char.isascii() and char.isprintable()) for char in word
    )


def _replace_unprintable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _escape_spaces(word: str) -> str:
    return word.replace(" ", "\\ ")
