"""Reads what a project needs: conda's YAML and pip's requirements, each entry with its line."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from ..config.files import read_dependencies as check_conda
from ..config.keys import same_key
from ..config.place import leads_out
from ..config.yamlfile import Mapping, Scalar, Sequence, decode, load, read_bytes, show_path
from ..errors import ConfigError
from .dependencies import CONDA, REQUIREMENTS, Dependencies, Line, Option, PipLine, Requirement
from .local_files import ARCHIVES, is_open_repository
from .named import normal, parse_named
from .words import one_line

_CONDA = re.compile(r"(?:(?P<channel>[^\s\[]+)::)?(?P<name>[A-Za-z0-9_.-]+)\s*(?P<version>[^\[]*)(?P<more>.*)\Z")
_IN_BRACKETS = re.compile(r"\bversion\s*=\s*(['\"]?)(?P<version>[^'\"\]]+)\1")
_ADDRESS = re.compile(r"(?:https?|ftp|file|(?:git|hg|svn|bzr)\+\w+):", re.IGNORECASE)
_MARKER = re.compile(r"\s+;\s*|;\s+")
# These two see lines of any length. A match begins at the first of several blanks only: else a long line of blanks
# would take quadratic time.
_HASH = re.compile(r"(?<!\s)\s+--hash[= ](\S+)")
_COMMENT = re.compile(r"(?:^|\s)#.*\Z")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])(?:\s*=\s*|\s*)(.*)\Z")
_SHORT = {"-i": "--index-url", "-f": "--find-links", "-r": "--requirement", "-c": "--constraint", "-e": "--editable"}
_VALUED = ("--index-url", "--extra-index-url", "--find-links", "--no-binary", "--only-binary", "--trusted-host")
_FLAGS = ("--no-index", "--pre", "--prefer-binary", "--require-hashes")
# The longer mark first: it begins with the shorter one.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DEEPEST = 10  # requirements that name requirements
_LONGEST = 2000  # characters of an entry without its hashes


def check_addresses(dependencies: Dependencies) -> None:
    """Later code uses each as a URL, and as one line."""
    whole = Line("", dependencies.file, 0)
    entries: tuple[Line, ...] = (
        *dependencies.conda,
        *dependencies.pip,
        *dependencies.constraints,
        *dependencies.options,
    )
    for entry in (*entries, *(replace(whole, text=channel) for channel in dependencies.channels)):
        if not one_line(entry.text):
            raise _wrong(entry, f"{entry.text[:200]!r} contains a line break or control character")
    for channel in dependencies.channels:
        _split(whole, channel)
    for one in (*dependencies.pip, *dependencies.constraints):
        _split(one, one.url or "")
    for option in dependencies.options:
        _split(option, option.value)


def _split(at: Line, address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise _wrong(at, f"{address[:200]!r} is not a valid URL: {error}") from None
    return parts


def read_conda(path: Path, root: Path) -> Dependencies:
    """A ``conda_dependencies.yml`` or ``environment.yml``, under whatever name."""
    said = check_conda(path)
    top = {same_key(key.text): node for key, node in load(path).pairs}
    gathered = Gathered(root)
    gathered.files.append(show_path(path))
    conda = []
    items = top.get("dependencies")
    for item in items.items if isinstance(items, Sequence) else ():
        if isinstance(item, Scalar):
            conda.append(conda_entry(item.text, show_path(path), item.line))
        elif isinstance(item, Mapping):
            for one in pip_scalars(item):
                gathered.add(Line(one.text.strip(), show_path(path), one.line), path)
    python = next((one for one in conda if one.name == "python"), None)
    return Dependencies(
        file=show_path(path),
        kind=CONDA,
        name=said.name,
        python=_pin(python.version) if python else None,
        python_at=python,
        channels=said.channels,
        conda=tuple(conda),
        **gathered.parts(),
    )


def read_requirements(path: Path, root: Path) -> Dependencies:
    """A ``requirements.txt`` with all that it names by -r and -c."""
    gathered = Gathered(root)
    gathered.read(path, 0)
    return Dependencies(file=show_path(path), kind=REQUIREMENTS, **gathered.parts())


# -- one entry ---------------------------------------------------------------------------------------


def conda_entry(text: str, file: str, line: int) -> Requirement:
    """A package of conda, in any of the ways that conda reads."""
    text = text.strip()
    check_length(Line(text, file, line), text)
    if text.endswith((".conda", ".tar.bz2")):  # the package itself, by its address
        name = text.rsplit("/", 1)[-1].rsplit("-", 2)[0]
        return Requirement(text, file, line, name.lower())
    found = _CONDA.match(text)
    if not found:
        hint = "use name, name=1.2, or channel::name=1.2"
        raise ConfigError(f"{text!r} is not a conda package", hint, path=file, line=line)
    inside = _IN_BRACKETS.search(found["more"])
    version = inside["version"] if inside else found["version"]
    return Requirement(text, file, line, found["name"].lower(), found["channel"], version.strip())


def check_length(at: Line, text: str) -> None:
    """No entry is that long; and Python refuses to make a number of as many digits."""
    if len(text) > _LONGEST:
        raise _wrong(at, f"an entry has {len(text):,} characters; the limit is {_LONGEST:,}")


def pip_entry(at: Line, folder: Path, root: Path) -> PipLine:
    """A package of pip. A path counts from the file's folder, else from the project's."""
    hashes = tuple(found[1] for found in _HASH.finditer(at.text))
    text = _HASH.sub("", at.text).strip()
    check_length(at, text)
    if " --" in text:
        raise _wrong(at, f"options after a package are not supported: {text}", "keep only the package and --hash")
    if not _ADDRESS.match(text) and not _is_path(text):
        return _named(at, text, hashes, (folder, root))
    place, marker = (part.strip() for part in _MARKER.split(text, maxsplit=1)) if _MARKER.search(text) else (text, None)
    return _placed(at, place, marker, hashes, (folder, root))


def _named(at: Line, text: str, hashes: tuple[str, ...], folders: tuple[Path, Path]) -> PipLine:
    try:
        named = parse_named(text)
    except ValueError as error:
        single = re.fullmatch(r"([\w.-]+)\s*=\s*([\w.*]+)", text)
        hint = f"use {single[1]}=={single[2]}" if single else "use name, name==1.2, or a URL"
        reason = str(error).splitlines()[0].rstrip(":.")
        raise _wrong(at, f"{text!r} is not a pip requirement: {reason}", hint) from None
    if named.url:
        placed = _placed(at, named.url, named.marker, hashes, folders)
        return replace(placed, name=named.name, extras=named.extras)
    return PipLine(at.text, at.file, at.line, named.name, named.extras, named.specifier, named.marker, hashes=hashes)


def _placed(at: Line, place: str, marker: str | None, hashes: tuple[str, ...], folders: tuple[Path, Path]) -> PipLine:
    """By its address, or a file of the project."""
    made = PipLine(at.text, at.file, at.line, name=_name_in(at, place), marker=marker, hashes=hashes)
    if re.match(r"(?:git|hg|svn|bzr)\+file:", place, re.IGNORECASE):
        raise _wrong(at, f"{place} is a local repository", "use a repository on a server, or build a wheel")
    if place.lower().startswith("git+") and is_open_repository(place):
        raise _wrong(at, f"repository {place[:200]} uses an unencrypted connection", "use https or ssh")
    if _ADDRESS.match(place) and not place.lower().startswith("file:"):
        return replace(made, url=place)
    if place.lower().startswith("file:"):
        from urllib.request import url2pathname  # noqa: PLC0415 - slow to import, for what is rare

        place = url2pathname(unquote(_split(at, place).path))
    return replace(made, path=_inside(at, place.split("#")[0], *folders))


def _is_path(text: str) -> bool:
    first = re.split(r"[\s;@]", text, maxsplit=1)[0]
    return first.startswith((".", "~")) or "/" in first or "\\" in first or first.lower().endswith(ARCHIVES)


def _inside(at: Line, place: str, folder: Path, root: Path) -> str:
    """Path of a file below the project, whether or not it is there; what is outside does not travel."""
    if "\0" in place:
        raise _wrong(at, "file name contains a NUL character")
    place = place.replace("\\", "/")
    real = os.path.realpath(root)
    for base in (folder, root):
        path = os.path.realpath(base / place)
        if os.path.isdir(path):
            hint = "build a wheel ('uv build --wheel') and use that; modules of the project need no package"
            raise _wrong(at, f"{place} is a folder; installing packages from source folders is not supported", hint)
        inside = path.startswith(real + os.sep) and not re.match(r"[A-Za-z]:", place)
        if inside and (os.path.isfile(path) or base == root):
            return Path(os.path.relpath(path, real)).as_posix()
    raise _wrong(at, f"{place} is outside the project", "copy it into the project: mlw uploads only the project")


def links_folder(at: Line, value: str, folder: Path, root: Path) -> str:
    """What --find-links names: an address as it is, a folder by its full path; nothing if there is none.

    A folder outside of the project must be named by its full path: that is seen for what it is. Whether its packages
    may be used is for the user to say (``local_files.check_sources``).
    """
    if _ADDRESS.match(value):
        return value
    for base in (folder, root):
        place = os.path.abspath(base / value)
        if not os.path.exists(place):
            continue
        by_full_path = os.path.isabs(value) and not place.startswith(os.path.abspath(root) + os.sep)
        if leads_out(place, root) and not (by_full_path and os.path.isdir(place)):
            hint = "copy it into the project, or use its full path and run 'mlw settings add package-folders PATH'"
            raise _wrong(at, f"{value} is outside the project", hint)
        return place
    return ""


def _name_in(at: Line, place: str) -> str | None:
    """Name of the package from ``#egg=`` or from the name of a wheel."""
    egg = re.search(r"#(?:.*&)?egg=([\w.-]+)", place)
    if egg:
        return normal(egg[1])
    file = unquote(_split(at, place).path).replace("\\", "/").rsplit("/", 1)[-1]
    return normal(file.split("-")[0]) if file.lower().endswith(".whl") and "-" in file else None


def _pin(version: str) -> str | None:
    """``=3.5.2`` and ``==3.5.2=build`` are 3.5.2; ranges stay as they are."""
    exact = re.fullmatch(r"={0,2}\s*(\d[\w.*]*)(?:[=\s].*)?", version)
    return exact[1] if exact else version or None


def _wrong(at: Line, message: str, hint: str | None = None) -> ConfigError:
    return ConfigError(message, hint, path=at.file, line=at.line)


# -- many of them ------------------------------------------------------------------------------------


def as_utf8(data: bytes, shown: str) -> bytes:
    """The bytes of a file in UTF-8 if they begin with another byte order mark, as pip and conda read them.

    PowerShell's ``pip freeze > requirements.txt`` writes UTF-16.
    """
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    if encoding is None:
        return data
    try:
        return data.decode(encoding).encode("utf-8")
    except UnicodeError:
        raise ConfigError(f"the file is not {encoding.upper()} text", "save it as UTF-8", path=shown) from None


def pip_scalars(item: Mapping) -> Iterator[Scalar]:
    """The entries of ``pip:``; a single one may stand there without a list."""
    for _, value in item.pairs:
        for one in value.items if isinstance(value, Sequence) else (value,):
            if isinstance(one, Scalar) and not one.null:
                yield one


@dataclass
class Gathered:
    """Pip's entries from one file or several that name each other."""

    root: Path
    pip: list[PipLine] = field(default_factory=list)
    constraints: list[PipLine] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def parts(self) -> dict[str, Any]:
        names = ("pip", "constraints", "options", "files")
        return {name: tuple(getattr(self, name)) for name in names}

    def read(self, path: Path, depth: int, *, constrain: bool = False) -> None:
        shown = show_path(path)
        self.files.append(shown)
        for number, text in _lines(decode(as_utf8(read_bytes(path, shown), shown), shown)):
            self.add(Line(text, shown, number), path, depth, constrain=constrain)

    def add(self, at: Line, path: Path, depth: int = 0, *, constrain: bool = False) -> None:
        if at.text.startswith("-"):
            self._option(at, path, depth)
        elif at.text:
            (self.constraints if constrain else self.pip).append(pip_entry(at, path.parent, self.root))

    def _option(self, at: Line, path: Path, depth: int) -> None:
        check_length(at, at.text)
        found = _OPTION.match(at.text)
        name = _SHORT.get(found[1], found[1]) if found else at.text
        value = found[2].strip() if found else ""
        if name in ("--requirement", "--constraint"):
            self._nested(at, value, path, depth, constrain=name == "--constraint")
        elif name == "--editable":
            hint = "modules of the project need no installation; for other packages, build a wheel"
            raise _wrong(at, f"{at.text}: editable installs are not supported", hint)
        elif name not in _VALUED + _FLAGS:
            known = ", ".join(("--requirement", "--constraint", *_VALUED, *_FLAGS))
            raise _wrong(at, f"unsupported option {name}; available: {known}")
        elif bool(value) != (name in _VALUED):
            raise _wrong(at, f"{name} requires a value" if not value else f"{name} takes no value")
        else:
            if name == "--find-links":
                value = links_folder(at, value, path.parent, self.root)
                if not value:
                    hint = "use a URL or an existing folder"
                    raise _wrong(at, f"folder {found[2].strip() if found else ''} does not exist", hint)
            self.options.append(Option(at.text, at.file, at.line, name, value))

    def _nested(self, at: Line, value: str, path: Path, depth: int, *, constrain: bool) -> None:
        if _ADDRESS.match(value):
            raise _wrong(at, f"requirement files by URL are not supported: {value}", "copy the file into the project")
        if depth >= _DEEPEST:
            raise _wrong(at, "requirement files are nested more than ten levels deep", "remove circular references")
        inside = _inside(at, value, path.parent, self.root)
        if not os.path.isfile(self.root / inside):
            raise _wrong(at, f"{value[:200]} does not exist")
        if show_path(self.root / inside) not in self.files:
            self.read(self.root / inside, depth + 1, constrain=constrain)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, comments off, with those that end in a backslash joined to the next."""
    first = 0
    parts: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        first = first if parts else number
        said = _COMMENT.sub("", line).rstrip()
        if line.rstrip().endswith("\\") and not line.lstrip().startswith("#"):
            parts.append(said.rstrip("\\").strip())
            continue
        whole = " ".join(part for part in (*parts, said.strip()) if part)
        parts = []
        if whole:
            yield first, whole
