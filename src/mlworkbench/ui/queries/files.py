"""The files of a project: what is in its folders, what they say. Names are opened one by one; no link is followed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ...errors import ConfigError, MlwError, UsageError
from ...paths import DATA_MARK
from ...remote.shared.tree import READ, join
from ...report import units
from ...report.plain import plain
from ...runfiles.beneath import Beneath, refusal
from ...snapshot.ignore import ALWAYS, USUAL_MARKS, USUAL_NAMES

MOST = 2000  # entries of a folder that are shown
LARGEST = 1_000_000  # bytes of a file that is opened in the editor
LARGEST_PICTURE = 20_000_000
_FOUND, _LOOKED_AT = 200, 50_000
_LONGEST_PATH = 4000
_UNSEARCHED = ALWAYS | USUAL_NAMES | {".venv"}
_UNSEARCHED_WITH = USUAL_MARKS | {DATA_MARK}
AVAILABLE = os.open in os.supports_dir_fd  # what keeps every name below the project
NOT_HERE = "The file editor requires Linux or macOS. On Windows, open the project folder in another editor."
MARK = b"\xef\xbb\xbf"

PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".svg": "image/svg+xml",
}
_SUFFIXES = {
    ".py": "Python",
    ".yml": "YAML",
    ".yaml": "YAML",
    ".compute": "YAML",
    ".runconfig": "YAML",
    ".amb": "YAML",
    ".json": "JSON",
    ".ipynb": "JSON",
    ".md": "Markdown",
    ".sh": "Shell",
    ".toml": "TOML",
    ".cfg": "Properties files",
    ".ini": "Properties files",
    ".js": "JavaScript",
    ".html": "HTML",
    ".css": "CSS",
    ".sql": "SQL",
    ".r": "R",
    ".c": "C",
    ".cpp": "C++",
    ".cu": "C++",
    ".rs": "Rust",
}
_NAMES = {"Dockerfile": "Dockerfile", "CMakeLists.txt": "CMake"}


@dataclass(frozen=True)
class Entry:
    """A folder entry."""

    path: str
    name: str
    kind: Annotated[str, Field(description="folder, file, link, or special")]
    size: int
    modified: float


@dataclass(frozen=True)
class Listing:
    """Contents of a folder, its folders first."""

    folder: str
    entries: tuple[Entry, ...]
    more: Annotated[int, Field(description="Number of entries left out")]
    gone: Annotated[bool, Field(description="The folder no longer exists")] = False


@dataclass(frozen=True)
class Content:
    """A file: its text if it is one that can be edited, else why not."""

    path: str
    kind: str  # text, picture, or other
    size: int
    modified: float
    stamp: str  # changes when the file does
    digest: str = ""
    text: str = ""
    windows: bool = False  # its lines end with CR LF
    marked: bool = False  # it begins with a byte order mark
    reason: str = ""  # why it is not opened


def checked(path: str) -> str:
    """A name below the project, in its plain form; ``UsageError`` if it could be anything else."""
    if not AVAILABLE:
        raise UsageError("the file editor is not available on Windows", NOT_HERE)
    if not path or len(path) > _LONGEST_PATH or not _is_text(path):
        raise UsageError("invalid file path", "use a path relative to the project folder")
    why = refusal(path)
    if why is not None:
        raise UsageError(f"{plain(path, 200)}: {why}", "use a path relative to the project folder, without ..")
    return path


def listing(root: Path, folder: str = "") -> Listing:
    if folder or not AVAILABLE:
        checked(folder)
    try:
        with Beneath(str(root)) as folders:
            handle = folders.open(folder)
            with os.scandir(handle) as found:
                entries = [_entry(folder, one) for one in found if _is_text(one.name)]
    except OSError as error:
        raise trouble(folder or ".", error) from None
    entries.sort(key=lambda one: (one.kind != "folder", one.name.casefold(), one.name))
    return Listing(folder, tuple(entries[:MOST]), max(0, len(entries) - MOST))


def search(root: Path, text: str) -> list[Entry]:
    """Files and folders with this in their path; environments and the like are passed over."""
    wanted = text.casefold()
    found = []
    for entry in _walk(root):
        if wanted in entry.path.casefold():
            found.append(entry)
            if len(found) >= _FOUND:
                break
    return found


def scripts(root: Path) -> list[str]:
    """What can be run: those on top first."""
    found = [entry.path for entry in _walk(root) if entry.kind == "file" and entry.name.endswith((".py", ".sh"))]
    return sorted(found, key=lambda path: (path.count("/"), path))[:_FOUND]


def read(root: Path, path: str) -> Content:
    """The file, as far as the editor can show it."""
    facts, data = _bytes(root, path, LARGEST)
    known = Content(path, "other", facts.st_size, facts.st_mtime, stamp_of(facts))
    if os.path.splitext(path)[1].lower() in PICTURES and facts.st_size <= LARGEST_PICTURE:
        return _as(known, kind="picture")
    if data is None:
        return _as(known, reason=f"the file is larger than {units.size(LARGEST)}, the limit of the editor")
    if b"\0" in data:
        return _as(known, reason="the file is not text")
    try:
        text = data.removeprefix(MARK).decode("utf-8")
    except UnicodeDecodeError:
        return _as(known, reason="the file is not UTF-8 text")
    windows = text.count("\r\n") * 2 > text.count("\n")
    return _as(
        known,
        kind="text",
        digest=digest_of(data),
        text=text.replace("\r\n", "\n").replace("\r", "\n"),
        windows=windows,
        marked=data.startswith(MARK),
    )


def stamp(root: Path, path: str) -> str | None:
    """Changes when the file does; None if it is not there any more."""
    checked(path)
    try:
        with Beneath(str(root)) as folders:
            facts = folders.look(path)
    except OSError:
        return None
    return stamp_of(facts) if facts is not None else None


def picture(root: Path, path: str) -> tuple[bytes, str]:
    """An image and its type."""
    kind = PICTURES.get(os.path.splitext(checked(path))[1].lower())
    if kind is None:
        raise UsageError(f"{plain(path, 200)} is not an image")
    data = _bytes(root, path, LARGEST_PICTURE)[1]
    if data is None:
        raise UsageError(f"{plain(path, 200)} is larger than {units.size(LARGEST_PICTURE)}")
    return data, kind


def language(path: str) -> str | None:
    """How the editor colours it."""
    name = path.rpartition("/")[2]
    return _NAMES.get(name) or _SUFFIXES.get(os.path.splitext(name)[1].lower())


def encoded(text: str, windows: bool, marked: bool) -> bytes:
    """A text of the editor as the file has it."""
    data = (text.replace("\n", "\r\n") if windows else text).encode("utf-8", "surrogatepass")
    return MARK + data if marked else data


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stamp_of(facts: os.stat_result) -> str:
    return f"{facts.st_ino}-{facts.st_size}-{facts.st_mtime_ns}"


def trouble(path: str, error: OSError) -> ConfigError:
    """What the system says, in a sentence."""
    return ConfigError(f"{plain(path, 200)}: {error.strerror or error}")


def _bytes(root: Path, path: str, most: int) -> tuple[os.stat_result, bytes | None]:
    """None for a file that is larger."""
    checked(path)
    try:
        with Beneath(str(root)) as folders:
            handle, name = folders.parent(path)
            facts = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if not stat.S_ISREG(facts.st_mode):
                what = (
                    "a symbolic link, which mlw does not follow"
                    if stat.S_ISLNK(facts.st_mode)
                    else "not a regular file"
                )
                raise UsageError(f"{plain(path, 200)} is {what}")
            file = os.open(name, READ | getattr(os, "O_NONBLOCK", 0), dir_fd=handle)
    except OSError as error:
        raise trouble(path, error) from None
    with open(file, "rb") as stream:
        facts = os.fstat(stream.fileno())
        data = stream.read(most + 1) if facts.st_size <= most else None
    return facts, None if data is None or len(data) > most else data


def _walk(root: Path) -> Iterator[Entry]:
    """The nearest first."""
    looked_at = 0
    pending = [""]
    for folder in pending:
        try:
            found = listing(root, folder).entries
        except MlwError:
            continue  # gone meanwhile, or not ours to read
        if folder and any(one.name in _UNSEARCHED_WITH for one in found):
            continue
        for entry in found:
            looked_at += 1
            if entry.kind == "folder" and entry.name not in _UNSEARCHED:
                pending.append(entry.path)
            yield entry
        if looked_at > _LOOKED_AT:
            return


def _entry(folder: str, found: os.DirEntry[str]) -> Entry:
    try:
        facts = found.stat(follow_symlinks=False)
    except OSError:
        return Entry(join(folder, found.name), found.name, "special", 0, 0.0)
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISREG, "file"), (stat.S_ISLNK, "link"))
    kind = next((word for is_it, word in kinds if is_it(facts.st_mode)), "special")
    return Entry(join(folder, found.name), found.name, kind, facts.st_size, facts.st_mtime)


def _as(known: Content, **changes: object) -> Content:
    return Content(**{**known.__dict__, **changes})


def _is_text(name: str) -> bool:
    """False for a name that is no UTF-8: no address could hold it."""
    return not any("\ud800" <= sign <= "\udfff" for sign in name)
