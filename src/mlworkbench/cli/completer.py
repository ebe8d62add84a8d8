"""What TAB proposes. A person waits for it: nothing is imported that the question at hand does not need.

Commands and options come from ``words.json``, which ``scripts/generate-reference`` makes from the commands
themselves; runs, targets and scripts from where they are. Anything that goes wrong means: no proposals.
"""

from __future__ import annotations

import json
import os
import stat

from ..remote.shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

Proposals = list[tuple[str, str]]  # word, help

WORDS = os.path.join(os.path.dirname(__file__), "words.json")
# Instead of words: the shell completes names of files, or of folders. A tab cannot be in a word of ours.
ASK_SHELL = {"file": "\tfile\n", "dir": "\tdir\n"}
_LARGEST = 1 << 20  # bytes of a project's file
_MOST = 200  # newest first: the run that is meant is among them
_SAFE = frozenset("_@%+=:,./ -")


def answer(shell: str, words: list[str]) -> str:
    """What the shell's function reads: a line for each proposal, ``word<TAB>help``; in bash the word alone."""
    quoting = bool(words) and words[-1][:1] in ("'", '"')  # bash adds the other one by itself
    if shell != "fish":  # which takes the quotes off by itself
        words = [_unquoted(word) for word in words]
    before, current, lead = _split(words or [""], shell)
    with open(WORDS, encoding="utf-8") as file:
        kind, found = _Line(json.load(file), before).propose(current)
    if kind in ASK_SHELL:
        return ASK_SHELL[kind]
    fitting = [(lead + word, _printable(text)) for word, text in found if word.startswith(current) and _is_safe(word)]
    if shell == "bash":
        return "".join(f"{word if quoting else _quoted(word)}\n" for word, _ in fitting)
    return "".join(f"{word}\t{text}\n" for word, text in fitting)


def _split(words: list[str], shell: str) -> tuple[list[str], str, str]:
    """(words before the cursor, the word at it, what stands in front of that in the same word).

    Bash makes three words of ``--output=json``, and wants only the last of them back.
    """
    whole: list[str] = []
    for word in words:
        joined = shell == "bash" and whole and whole[-1].startswith("--")
        if joined and (word == "=" or whole[-1].endswith("=")):
            whole[-1] += word
        else:
            whole.append(word)
    *before, current = whole
    if current.startswith("--") and "=" in current:
        option, _, value = current.partition("=")
        return [*before, option], value, "" if shell == "bash" else option + "="
    return before, current, ""


class _Line:
    """The words before the cursor, understood: which command, which option waits for a value, how many arguments."""

    def __init__(self, tree: dict[str, Any], before: list[str]) -> None:
        self.command = tree
        self.waiting: Any = None
        self.folder: str | None = None
        self.arguments = 0
        self.foreign = False  # what follows belongs to the user's script
        rest = iter(before)
        for word in rest:
            self._take(word, rest)

    def _take(self, word: str, rest: Iterator[str]) -> None:
        if self.foreign:
            return
        options = self.command.get("options", {})
        name, equals, value = word.partition("=")
        if self.command.get("foreign") and (word in ("--", "-m") or not word.startswith("-")):
            self.foreign = True
        elif name in options:
            self._option(name, options[name][0], value if equals else None, rest)
        elif "commands" in self.command and not word.startswith("-"):
            self.command = self.command["commands"].get(word, {})  # behind a word that is none, nothing fits
        elif not word.startswith("-"):
            self.arguments += 1

    def _option(self, name: str, kind: Any, value: str | None, rest: Iterator[str]) -> None:
        if kind == "flag":
            return
        value = next(rest, None) if value is None else value
        if value is None:
            self.waiting = kind
        elif name == "--project":
            self.folder = value

    def propose(self, current: str) -> tuple[str, Proposals]:
        """A kind that the shell knows better, or proposals."""
        if self.waiting is not None:
            return self._values(self.waiting, current)
        if self.foreign:
            return "file", []
        options = [(name, text) for name, (_, text) in self.command.get("options", {}).items() if name[:2] == "--"]
        if current.startswith("-"):
            return "", options
        if "commands" in self.command:
            return "", [(name, below["help"]) for name, below in self.command["commands"].items()]
        kinds = self.command.get("arguments", [])
        if self.arguments < len(kinds):
            return self._values(kinds[self.arguments], current)
        if self.command.get("repeats"):
            return self._values(kinds[-1], current)
        return "", options

    def _values(self, kind: Any, current: str) -> tuple[str, Proposals]:
        if isinstance(kind, list):
            return "", [(word, "") for word in kind]
        if kind in ASK_SHELL:
            return kind, []
        find = {
            "run": runs,
            "target": targets,
            "runconfig": runconfigs,
            "script": scripts,
            "symptom": symptoms,
        }.get(kind)
        return "", find(self.folder, current) if find else []


def runs(folder: str | None, beginning: str = "") -> Proposals:
    """Runs of the project, newest first; of all projects where there is none. Only looks: nothing is repaired."""
    import apsw  # noqa: PLC0415

    from ..paths import user_paths  # noqa: PLC0415

    place = str(user_paths().database)
    project = _project_id(folder)
    connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READONLY)
    conditions, values = ["id >= ? AND id < ?"], [beginning, beginning + "\U0010ffff"]
    if project:
        conditions.append("project = ?")
        values.append(project)
    if "." not in beginning:  # a script may have made thousands inside one run
        conditions.append("instr(id, '.') = 0")
    rows = connection.execute(
        f"SELECT id, status, script FROM runs WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT {_MOST}", values
    )
    return [(str(run), f"{status} {script}") for run, status, script in rows]


def targets(folder: str | None, beginning: str = "") -> Proposals:
    from ..config.place import COMPUTE_SUFFIX  # noqa: PLC0415

    return _files(folder, COMPUTE_SUFFIX)


def runconfigs(folder: str | None, beginning: str = "") -> Proposals:
    from ..config.place import OLD_SUFFIX, RUNCONFIG_SUFFIX  # noqa: PLC0415

    return _files(folder, RUNCONFIG_SUFFIX, OLD_SUFFIX)


def scripts(folder: str | None, beginning: str = "") -> Proposals:
    """Python files of the project, those at its top first; not below folders that hide or are environments."""
    from ..config.place import find_root  # noqa: PLC0415

    root = find_root(folder or os.getcwd())
    found: list[str] = []
    for place, folders, names in os.walk(root) if root else ():
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        )
        found += [os.path.relpath(os.path.join(place, name), root) for name in sorted(names) if name.endswith(".py")]
        if len(found) >= _MOST:
            break
    return [(path, "") for path in found]


def symptoms(folder: str | None, beginning: str = "") -> Proposals:
    """Names of the texts of ``mlw explain``."""
    place = os.path.join(os.path.dirname(os.path.dirname(__file__)), "explain")
    names = [name for _, _, files in os.walk(place) for name in files if name.endswith(".md")]
    return [(name[: -len(".md")], "") for name in sorted(names)]


def _files(folder: str | None, *suffixes: str) -> Proposals:
    from ..config.place import FOLDER, find_root, list_names  # noqa: PLC0415

    root = find_root(folder or os.getcwd())
    return [(name, "") for name in list_names(os.path.join(root, FOLDER), *suffixes)] if root else []


def _project_id(folder: str | None) -> str | None:
    """As its file says it. A project without one gets an id from its place: then the runs of all are proposed."""
    from ..config.place import FOLDER, find_root  # noqa: PLC0415

    root = find_root(folder or os.getcwd())
    try:
        # Whatever a project puts there, a pipe for example, must not hold up the shell.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(os.path.join(root or "", FOLDER, "project.json"), flags), "rb") as file:
            said = parse_json(file.read(_LARGEST) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b"")
    except (OSError, ValueError):
        return None
    found = said.get("Id") or said.get("id") if isinstance(said, dict) else None
    return found.lower() if isinstance(found, str) else None


def _unquoted(word: str) -> str:
    """Bash and zsh hand over what was typed, quotes and all; an open quote is no mistake yet."""
    if not any(sign in word for sign in "\"'\\"):
        return word
    plain, quote, escaped = "", "", False
    for sign in word:
        if escaped:
            plain, escaped = plain + sign, False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif sign in ("'", '"') and quote in ("", sign):
            quote = "" if quote else sign
        else:
            plain += sign
    return plain


def _is_safe(word: str) -> bool:
    """Whether no shell expands any part of the word, whatever quotes are open: a file name may contain a command."""
    return all(sign.isalnum() or sign in _SAFE or (not sign.isascii() and sign.isprintable()) for sign in word)


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _quoted(word: str) -> str:
    return word.replace(" ", "\\ ")
