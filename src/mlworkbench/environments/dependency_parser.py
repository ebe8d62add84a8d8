"""Read conda YAML files and pip requirements files. Every entry includes its line number."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from ..config.config_files import read_dependencies as check_conda
from ..config.keys import normalize_key
from ..config.project_files import is_outside
from ..config.yaml_tree import Mapping, Scalar, Sequence, decode, display_path, load, read_bytes
from ..errors import ConfigError
from .dependencies import CONDA, REQUIREMENTS, Dependencies, Line, Option, PipLine, Requirement
from .local_files import ARCHIVES, is_unencrypted_repository
from .requirement import normalize_name, parse_requirement
from .solver_messages import is_single_line

_CONDA = re.compile(r"(?:(?P<channel>[^\s\[]+)::)?(?P<name>[A-Za-z0-9_.-]+)\s*(?P<version>[^\[]*)(?P<more>.*)\Z")
_IN_BRACKETS = re.compile(r"\bversion\s*=\s*(['\"]?)(?P<version>[^'\"\]]+)\1")
_ADDRESS = re.compile(r"(?:https?|ftp|file|(?:git|hg|svn|bzr)\+\w+):", re.IGNORECASE)
_MARKER = re.compile(r"\s+;\s*|;\s+")
# Lines may have any length. To avoid quadratic time, a match must start at the first of several spaces.
_HASH = re.compile(r"(?<!\s)\s+--hash[= ](\S+)")
_COMMENT = re.compile(r"(?:^|\s)#.*\Z")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])(?:\s*=\s*|\s*)(.*)\Z")
_LONG_NAMES = {
    "-i": "--index-url",
    "-f": "--find-links",
    "-r": "--requirement",
    "-c": "--constraint",
    "-e": "--editable",
}
_VALUE_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--no-binary", "--only-binary", "--trusted-host")
_FLAGS = ("--no-index", "--pre", "--prefer-binary", "--require-hashes")
# UTF-32 first, because its byte order mark starts with that of UTF-16.
_BOM_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAX_DEPTH = 10  # maximum nesting of files
_MAX_LENGTH = 2000  # maximum characters, excluding hashes


def check_addresses(dependencies: Dependencies) -> None:
    """Check that every entry is a single line and every URL is valid, as later code expects."""
    whole = Line("", dependencies.file, 0)
    entries: tuple[Line, ...] = (
        *dependencies.conda,
        *dependencies.pip,
        *dependencies.constraints,
        *dependencies.options,
    )
    for entry in (*entries, *(replace(whole, text=channel) for channel in dependencies.channels)):
        if not is_single_line(entry.text):
            raise _config_error(entry, f"{entry.text[:200]!r} contains a line break or control character")
    for channel in dependencies.channels:
        _split_url(whole, channel)
    for package in (*dependencies.pip, *dependencies.constraints):
        _split_url(package, package.url or "")
    for option in dependencies.options:
        _split_url(option, option.value)


def _split_url(entry: Line, address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise _config_error(entry, f"{address[:200]!r} is not a valid URL: {error}") from None
    return parts


def read_conda(path: Path, root: Path) -> Dependencies:
    """Read a ``conda_dependencies.yml`` or ``environment.yml`` file; it may have any name."""
    config = check_conda(path)
    top = {normalize_key(key.text): node for key, node in load(path).pairs}
    collector = RequirementCollector(root)
    collector.files.append(display_path(path))
    conda = []
    items = top.get("dependencies")
    for item in items.items if isinstance(items, Sequence) else ():
        if isinstance(item, Scalar):
            conda.append(parse_conda_entry(item.text, display_path(path), item.line))
        elif isinstance(item, Mapping):
            for entry in pip_scalars(item):
                collector.add(Line(entry.text.strip(), display_path(path), entry.line), path)
    python = next((entry for entry in conda if entry.name == "python"), None)
    return Dependencies(
        file=display_path(path),
        kind=CONDA,
        name=config.name,
        python=_exact_version(python.version) if python else None,
        python_line=python,
        channels=config.channels,
        conda=tuple(conda),
        **collector.fields(),
    )


def read_requirements(path: Path, root: Path) -> Dependencies:
    """Read a ``requirements.txt`` file and all files that it includes with ``-r`` and ``-c``."""
    collector = RequirementCollector(root)
    collector.read(path, 0)
    return Dependencies(file=display_path(path), kind=REQUIREMENTS, **collector.fields())


# -- one entry ---------------------------------------------------------------------------------------


def parse_conda_entry(text: str, file: str, line: int) -> Requirement:
    """Parse a conda package in any notation that conda supports."""
    text = text.strip()
    check_length(Line(text, file, line), text)
    if text.endswith((".conda", ".tar.bz2")):  # URL of a package file
        name = text.rsplit("/", 1)[-1].rsplit("-", 2)[0]
        return Requirement(text, file, line, name.lower())
    match = _CONDA.match(text)
    if not match:
        hint = "use name, name=1.2, or channel::name=1.2"
        raise ConfigError(f"{text!r} is not a conda package", hint, path=file, line=line)
    bracketed = _IN_BRACKETS.search(match["more"])
    version = bracketed["version"] if bracketed else match["version"]
    return Requirement(text, file, line, match["name"].lower(), match["channel"], version.strip())


def check_length(entry: Line, text: str) -> None:
    """Reject entries that are too long, for example versions with more digits than ``int`` accepts."""
    if len(text) > _MAX_LENGTH:
        raise _config_error(entry, f"an entry has {len(text):,} characters; the limit is {_MAX_LENGTH:,}")


def parse_pip_entry(entry: Line, folder: Path, root: Path) -> PipLine:
    """Parse a pip package. Look up a relative path in the file's folder, then in the project."""
    hashes = tuple(match[1] for match in _HASH.finditer(entry.text))
    text = _HASH.sub("", entry.text).strip()
    check_length(entry, text)
    if " --" in text:
        raise _config_error(
            entry, f"options after a package are not supported: {text}", "keep only the package and --hash"
        )
    if not _ADDRESS.match(text) and not _is_path(text):
        return _parse_by_name(entry, text, hashes, (folder, root))
    location, marker = (
        (part.strip() for part in _MARKER.split(text, maxsplit=1)) if _MARKER.search(text) else (text, None)
    )
    return _parse_by_location(entry, location, marker, hashes, (folder, root))


def _parse_by_name(entry: Line, text: str, hashes: tuple[str, ...], folders: tuple[Path, Path]) -> PipLine:
    try:
        requirement = parse_requirement(text)
    except ValueError as error:
        single = re.fullmatch(r"([\w.-]+)\s*=\s*([\w.*]+)", text)
        hint = f"use {single[1]}=={single[2]}" if single else "use name, name==1.2, or a URL"
        reason = str(error).splitlines()[0].rstrip(":.")
        raise _config_error(entry, f"{text!r} is not a pip requirement: {reason}", hint) from None
    if requirement.url:
        line = _parse_by_location(entry, requirement.url, requirement.marker, hashes, folders)
        return replace(line, name=requirement.name, extras=requirement.extras)
    return PipLine(
        entry.text,
        entry.file,
        entry.line,
        requirement.name,
        requirement.extras,
        requirement.specifier,
        requirement.marker,
        hashes=hashes,
    )


def _parse_by_location(
    entry: Line, location: str, marker: str | None, hashes: tuple[str, ...], folders: tuple[Path, Path]
) -> PipLine:
    """Parse a package given by its URL or as a project file."""
    line = PipLine(
        entry.text, entry.file, entry.line, name=_package_name(entry, location), marker=marker, hashes=hashes
    )
    if re.match(r"(?:git|hg|svn|bzr)\+file:", location, re.IGNORECASE):
        raise _config_error(
            entry, f"{location} is a local repository", "use a repository on a server, or build a wheel"
        )
    if location.lower().startswith("git+") and is_unencrypted_repository(location):
        raise _config_error(entry, f"repository {location[:200]} uses an unencrypted connection", "use https or ssh")
    if _ADDRESS.match(location) and not location.lower().startswith("file:"):
        return replace(line, url=location)
    if location.lower().startswith("file:"):
        from urllib.request import url2pathname  # noqa: PLC0415 - slow to import, for what is rare

        location = url2pathname(unquote(_split_url(entry, location).path))
    return replace(line, path=_project_path(entry, location.split("#")[0], *folders))


def _is_path(text: str) -> bool:
    first = re.split(r"[\s;@]", text, maxsplit=1)[0]
    return first.startswith((".", "~")) or "/" in first or "\\" in first or first.lower().endswith(ARCHIVES)


def _project_path(entry: Line, location: str, folder: Path, root: Path) -> str:
    """Return the path of a file relative to the project. The file need not exist.

    Files outside the project cannot be uploaded.
    """
    if "\0" in location:
        raise _config_error(entry, "file name contains a NUL character")
    location = location.replace("\\", "/")
    real = os.path.realpath(root)
    for base in (folder, root):
        path = os.path.realpath(base / location)
        if os.path.isdir(path):
            hint = "build a wheel ('uv build --wheel') and use that; modules of the project need no package"
            raise _config_error(
                entry, f"{location} is a folder; installing packages from source folders is not supported", hint
            )
        inside = path.startswith(real + os.sep) and not re.match(r"[A-Za-z]:", location)
        if inside and (os.path.isfile(path) or base == root):
            return Path(os.path.relpath(path, real)).as_posix()
    raise _config_error(
        entry, f"{location} is outside the project", "copy it into the project: mlw uploads only the project"
    )


def resolve_find_links(entry: Line, value: str, folder: Path, root: Path) -> str:
    """Resolve a ``--find-links`` value: a URL is returned unchanged, a folder as an absolute path.

    Returns "" if the folder does not exist. A folder outside the project must be given by its
    absolute path, so that its location is obvious. The user decides whether its packages may be
    used (``local_files.check_sources``).
    """
    if _ADDRESS.match(value):
        return value
    for base in (folder, root):
        path = os.path.abspath(base / value)
        if not os.path.exists(path):
            continue
        by_full_path = os.path.isabs(value) and not path.startswith(os.path.abspath(root) + os.sep)
        if is_outside(path, root) and not (by_full_path and os.path.isdir(path)):
            hint = "copy it into the project, or use its full path and run 'mlw settings add package-folders PATH'"
            raise _config_error(entry, f"{value} is outside the project", hint)
        return path
    return ""


def _package_name(entry: Line, location: str) -> str | None:
    """Return the package name from ``#egg=`` or from the file name of a wheel."""
    egg = re.search(r"#(?:.*&)?egg=([\w.-]+)", location)
    if egg:
        return normalize_name(egg[1])
    file = unquote(_split_url(entry, location).path).replace("\\", "/").rsplit("/", 1)[-1]
    return normalize_name(file.split("-")[0]) if file.lower().endswith(".whl") and "-" in file else None


def _exact_version(version: str) -> str | None:
    """Return ``3.5.2`` for ``=3.5.2`` and ``==3.5.2=build``. Ranges are returned unchanged."""
    exact = re.fullmatch(r"={0,2}\s*(\d[\w.*]*)(?:[=\s].*)?", version)
    return exact[1] if exact else version or None


def _config_error(entry: Line, message: str, hint: str | None = None) -> ConfigError:
    return ConfigError(message, hint, path=entry.file, line=entry.line)


# -- many of them ------------------------------------------------------------------------------------


def as_utf8(data: bytes, filename: str) -> bytes:
    """Convert a file with a UTF-16 or UTF-32 byte order mark to UTF-8, as pip and conda do.

    In PowerShell, ``pip freeze > requirements.txt`` writes UTF-16.
    """
    encoding = next((name for bom, name in _BOM_ENCODINGS if data.startswith(bom)), None)
    if encoding is None:
        return data
    try:
        return data.decode(encoding).encode("utf-8")
    except UnicodeError:
        raise ConfigError(f"the file is not {encoding.upper()} text", "save it as UTF-8", path=filename) from None


def pip_scalars(item: Mapping) -> Iterator[Scalar]:
    """Yield the entries under ``pip:``, which may be a list or a single entry."""
    for _, value in item.pairs:
        for entry in value.items if isinstance(value, Sequence) else (value,):
            if isinstance(entry, Scalar) and not entry.is_null:
                yield entry


@dataclass
class RequirementCollector:
    """A collector of pip entries from a file and the files that it includes."""

    root: Path
    pip: list[PipLine] = field(default_factory=list)
    constraints: list[PipLine] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        names = ("pip", "constraints", "options", "files")
        return {name: tuple(getattr(self, name)) for name in names}

    def read(self, path: Path, depth: int, *, constrain: bool = False) -> None:
        filename = display_path(path)
        self.files.append(filename)
        for number, text in _logical_lines(decode(as_utf8(read_bytes(path, filename), filename), filename)):
            self.add(Line(text, filename, number), path, depth, constrain=constrain)

    def add(self, entry: Line, path: Path, depth: int = 0, *, constrain: bool = False) -> None:
        if entry.text.startswith("-"):
            self._add_option(entry, path, depth)
        elif entry.text:
            (self.constraints if constrain else self.pip).append(parse_pip_entry(entry, path.parent, self.root))

    def _add_option(self, entry: Line, path: Path, depth: int) -> None:
        check_length(entry, entry.text)
        match = _OPTION.match(entry.text)
        name = _LONG_NAMES.get(match[1], match[1]) if match else entry.text
        value = match[2].strip() if match else ""
        if name in ("--requirement", "--constraint"):
            self._read_nested(entry, value, path, depth, constrain=name == "--constraint")
        elif name == "--editable":
            hint = "modules of the project need no installation; for other packages, build a wheel"
            raise _config_error(entry, f"{entry.text}: editable installs are not supported", hint)
        elif name not in _VALUE_OPTIONS + _FLAGS:
            supported = ", ".join(("--requirement", "--constraint", *_VALUE_OPTIONS, *_FLAGS))
            raise _config_error(entry, f"unsupported option {name}; available: {supported}")
        elif bool(value) != (name in _VALUE_OPTIONS):
            raise _config_error(entry, f"{name} requires a value" if not value else f"{name} takes no value")
        else:
            if name == "--find-links":
                value = resolve_find_links(entry, value, path.parent, self.root)
                if not value:
                    hint = "use a URL or an existing folder"
                    raise _config_error(entry, f"folder {match[2].strip() if match else ''} does not exist", hint)
            self.options.append(Option(entry.text, entry.file, entry.line, name, value))

    def _read_nested(self, entry: Line, value: str, path: Path, depth: int, *, constrain: bool) -> None:
        if _ADDRESS.match(value):
            raise _config_error(
                entry, f"requirement files by URL are not supported: {value}", "copy the file into the project"
            )
        if depth >= _MAX_DEPTH:
            raise _config_error(
                entry, "requirement files are nested more than ten levels deep", "remove circular references"
            )
        relative = _project_path(entry, value, path.parent, self.root)
        if not os.path.isfile(self.root / relative):
            raise _config_error(entry, f"{value[:200]} does not exist")
        if display_path(self.root / relative) not in self.files:
            self.read(self.root / relative, depth + 1, constrain=constrain)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield nonempty lines without comments, joining a line that ends in a backslash with the next."""
    first = 0
    parts: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        first = first if parts else number
        content = _COMMENT.sub("", line).rstrip()
        if line.rstrip().endswith("\\") and not line.lstrip().startswith("#"):
            parts.append(content.rstrip("\\").strip())
            continue
        joined = " ".join(part for part in (*parts, content.strip()) if part)
        parts = []
        if joined:
            yield first, joined
