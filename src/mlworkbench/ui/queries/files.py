"""Project files: folder listings and contents.

Paths are opened one component at a time, and links are never followed.
"""

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
from ...remote.shared.folder_tree import READ, join
from ...report import units
from ...runfiles.safe_paths import SafeFolders, path_problem
from ...sanitize import plain
from ...snapshot.ignore_rules import ALWAYS_IGNORED, SKIP_MARKERS, SKIPPED_NAMES

MAX_ENTRIES = 2000  # maximum number of entries listed per folder
MAX_TEXT = 1_000_000  # maximum bytes of a file to edit
MAX_IMAGE = 20_000_000
_MAX_MATCHES, _MAX_VISITED = 200, 50_000
_MAX_PATH = 4000
_SKIPPED_NAMES = ALWAYS_IGNORED | SKIPPED_NAMES | {".venv"}
_SKIP_MARKERS = SKIP_MARKERS | {DATA_MARK}
AVAILABLE = os.open in os.supports_dir_fd  # needed to keep every path inside the project
UNAVAILABLE = "The file editor requires Linux or macOS. On Windows, open the project folder in another editor."
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

IMAGE_TYPES = {
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
    """Contents of a folder, subfolders first."""

    folder: str
    entries: tuple[Entry, ...]
    more: Annotated[int, Field(description="Number of entries left out")]
    gone: Annotated[bool, Field(description="The folder no longer exists")] = False


@dataclass(frozen=True)
class Content:
    """File, with its text if it can be edited, or the reason why it cannot."""

    path: str
    kind: str  # text, picture, or other
    size: int
    modified: float
    stamp: str  # changes whenever the file changes
    digest: str = ""
    text: str = ""
    windows: bool = False  # lines end with CR LF
    marked: bool = False  # starts with a byte order mark
    reason: str = ""  # why it cannot be opened


def check_path(path: str) -> str:
    """Return ``path`` if it is a path inside the project; otherwise, raise ``UsageError``."""
    if not AVAILABLE:
        raise UsageError("the file editor is not available on Windows", UNAVAILABLE)
    if not path or len(path) > _MAX_PATH or not _is_text(path):
        raise UsageError("invalid file path", "use a path relative to the project folder")
    reason = path_problem(path)
    if reason is not None:
        raise UsageError(f"{plain(path, 200)}: {reason}", "use a path relative to the project folder, without ..")
    return path


def listing(root: Path, folder: str = "") -> Listing:
    if folder or not AVAILABLE:
        check_path(folder)
    try:
        with SafeFolders(str(root)) as folders:
            handle = folders.open(folder)
            with os.scandir(handle) as scan:
                entries = [_entry(folder, item) for item in scan if _is_text(item.name)]
    except OSError as error:
        raise config_error(folder or ".", error) from None
    entries.sort(key=lambda entry: (entry.kind != "folder", entry.name.casefold(), entry.name))
    return Listing(folder, tuple(entries[:MAX_ENTRIES]), max(0, len(entries) - MAX_ENTRIES))


def search(root: Path, text: str) -> list[Entry]:
    """Search for files and folders by path, skipping environments and similar folders."""
    pattern = text.casefold()
    matches = []
    for entry in _walk(root):
        if pattern in entry.path.casefold():
            matches.append(entry)
            if len(matches) >= _MAX_MATCHES:
                break
    return matches


def scripts(root: Path) -> list[str]:
    """Return the project's scripts and notebooks, those at the top level first."""
    endings = (".py", ".sh", ".ipynb")
    paths = [entry.path for entry in _walk(root) if entry.kind == "file" and entry.name.endswith(endings)]
    return sorted(paths, key=lambda path: (path.count("/"), path))[:_MAX_MATCHES]


def read(root: Path, path: str) -> Content:
    """Read a file, with its text if the editor can display it."""
    status, data = _read_bytes(root, path, MAX_TEXT)
    content = Content(path, "other", status.st_size, status.st_mtime, stamp_of(status))
    if os.path.splitext(path)[1].lower() in IMAGE_TYPES and status.st_size <= MAX_IMAGE:
        return _with_changes(content, kind="picture")
    if data is None:
        return _with_changes(content, reason=f"the file is larger than {units.size(MAX_TEXT)}, the limit of the editor")
    if b"\0" in data:
        return _with_changes(content, reason="the file is not text")
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError:
        return _with_changes(content, reason="the file is not UTF-8 text")
    windows = text.count("\r\n") * 2 > text.count("\n")
    return _with_changes(
        content,
        kind="text",
        digest=digest_of(data),
        text=text.replace("\r\n", "\n").replace("\r", "\n"),
        windows=windows,
        marked=data.startswith(BYTE_ORDER_MARK),
    )


def stamp(root: Path, path: str) -> str | None:
    """Return a stamp that changes with the file, or None if the file no longer exists."""
    check_path(path)
    try:
        with SafeFolders(str(root)) as folders:
            status = folders.lstat(path)
    except OSError:
        return None
    return stamp_of(status) if status is not None else None


def read_image(root: Path, path: str) -> tuple[bytes, str]:
    """Return the data and media type of an image."""
    kind = IMAGE_TYPES.get(os.path.splitext(check_path(path))[1].lower())
    if kind is None:
        raise UsageError(f"{plain(path, 200)} is not an image")
    data = _read_bytes(root, path, MAX_IMAGE)[1]
    if data is None:
        raise UsageError(f"{plain(path, 200)} is larger than {units.size(MAX_IMAGE)}")
    return data, kind


def language(path: str) -> str | None:
    """Return the language for syntax highlighting."""
    name = path.rpartition("/")[2]
    return _NAMES.get(name) or _SUFFIXES.get(os.path.splitext(name)[1].lower())


def encode_text(text: str, windows: bool, marked: bool) -> bytes:
    """Encode the editor's text with the line endings and byte order mark of the file."""
    data = (text.replace("\n", "\r\n") if windows else text).encode("utf-8", "surrogatepass")
    return BYTE_ORDER_MARK + data if marked else data


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stamp_of(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def config_error(path: str, error: OSError) -> ConfigError:
    """Convert a system error into an error for the user."""
    return ConfigError(f"{plain(path, 200)}: {error.strerror or error}")


def _read_bytes(root: Path, path: str, limit: int) -> tuple[os.stat_result, bytes | None]:
    """Read a file. The data is None if the file is larger than ``limit``."""
    check_path(path)
    try:
        with SafeFolders(str(root)) as folders:
            handle, name = folders.parent(path)
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                what = (
                    "a symbolic link, which mlw does not follow"
                    if stat.S_ISLNK(status.st_mode)
                    else "not a regular file"
                )
                raise UsageError(f"{plain(path, 200)} is {what}")
            file = os.open(name, READ | getattr(os, "O_NONBLOCK", 0), dir_fd=handle)
    except OSError as error:
        raise config_error(path, error) from None
    with open(file, "rb") as stream:
        status = os.fstat(stream.fileno())
        data = stream.read(limit + 1) if status.st_size <= limit else None
    return status, None if data is None or len(data) > limit else data


def _walk(root: Path) -> Iterator[Entry]:
    """Walk the project breadth-first."""
    visited = 0
    pending = [""]
    for folder in pending:
        try:
            entries = listing(root, folder).entries
        except MlwError:
            continue  # deleted in the meantime, or unreadable
        if folder and any(entry.name in _SKIP_MARKERS for entry in entries):
            continue
        for entry in entries:
            visited += 1
            if entry.kind == "folder" and entry.name not in _SKIPPED_NAMES:
                pending.append(entry.path)
            yield entry
        if visited > _MAX_VISITED:
            return


def _entry(folder: str, entry: os.DirEntry[str]) -> Entry:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return Entry(join(folder, entry.name), entry.name, "special", 0, 0.0)
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISREG, "file"), (stat.S_ISLNK, "link"))
    kind = next((word for is_it, word in kinds if is_it(status.st_mode)), "special")
    return Entry(join(folder, entry.name), entry.name, kind, status.st_size, status.st_mtime)


def _with_changes(content: Content, **changes: object) -> Content:
    return Content(**{**content.__dict__, **changes})


def _is_text(name: str) -> bool:
    """Return whether a name is valid UTF-8. Other names cannot be part of a URL."""
    return not any("\ud800" <= sign <= "\udfff" for sign in name)
