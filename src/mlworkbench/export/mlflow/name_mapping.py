"""Names and values as MLflow takes them: its characters, its lengths, and no two of ours under one of its names."""

from __future__ import annotations

import posixpath
import re

LONGEST_NAME = 250
LONGEST_PARAM = 6000
LONGEST_TAG = 5000  # newer servers take 8000
_FOREIGN = re.compile(r"[^/\w.\- :]")
_FOREIGN_IN_PATH = re.compile("[#%\\\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # the server decodes twice, or refuses


class Names:
    """Remembers which name each of ours became: the same one whenever it is asked for."""

    def __init__(self, *, of_files: bool = False) -> None:
        self._of_files = of_files
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def __call__(self, name: str) -> str:
        known = self._known.get(name)
        if known is not None:
            return known
        plain = _file(name) if self._of_files else valid(name)
        found, nr = plain, 1
        while found in self._taken:
            nr += 1
            found = _numbered(plain, nr, self._of_files)
        self._known[name] = found
        self._taken.add(found)
        return found

    def changed(self) -> dict[str, str]:
        """Ours → MLflow's, where they differ."""
        return {name: found for name, found in self._known.items() if name != found}


def valid(name: str) -> str:
    """A name of a parameter, a metric or a tag."""
    found = _FOREIGN.sub("_", name.encode("utf-8", "replace").decode())[:LONGEST_NAME].strip()
    if _leads_elsewhere(found):
        found = posixpath.normpath(found).lstrip("/")
    return found.replace("/", "_").replace(".", "_") or "_" if _leads_elsewhere(found) else found


def _leads_elsewhere(name: str) -> bool:
    """MLflow may keep it as a file: it must be the plain form of a path below a folder."""
    plain = posixpath.normpath(name)
    return plain != name or plain == "." or plain.startswith(("..", "/"))


def _file(name: str) -> str:
    return _FOREIGN_IN_PATH.sub("_", name)


def _numbered(name: str, nr: int, of_files: bool) -> str:
    end = f"-{nr}"
    if of_files:
        stem, ending = posixpath.splitext(name)
        return f"{stem}{end}{ending}"
    return name[: LONGEST_NAME - len(end)] + end


def cut(text: str, longest: int) -> str:
    """As much of it as there is room for; a mark says that there was more."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= longest else text[: longest - 2] + " …"
