"""The dependencies of a project, independent of the file format. Every entry includes its line number.

This module does not fetch anything or run any project code. ``dependency_parser`` reads conda and
pip files; ``lock_readers`` reads uv and pixi files.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

DEFAULT_FILE = "conda_dependencies.yml"  # if it does not exist, there are no dependencies
CONDA, REQUIREMENTS, PYPROJECT, UV_LOCK, PIXI_LOCK = "conda", "requirements", "pyproject", "uv.lock", "pixi.lock"
# The Python version to use if none is specified. All major frameworks have wheels for it.
DEFAULT_PYTHON = "3.12"


@dataclass(frozen=True)
class Line:
    """An entry as written, without its comment, and its position.

    ``file`` is a path that can be both displayed and opened.
    """

    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Requirement(Line):
    """A conda package: ``channel::name version build``."""

    name: str = ""  # lowercase
    channel: str | None = None
    version: str = ""  # as written: "=3.5.2", ">=3.6,<4", "3.6.*=h1", or empty


@dataclass(frozen=True)
class PipLine(Line):
    """A pip package, given by name, by URL, or as a project file."""

    name: str | None = None  # normalized, such as tensorflow-gpu; None if only the URL is known
    extras: tuple[str, ...] = ()
    specifier: str = ""  # "==1.4.0", ">=1,<2", or empty
    marker: str | None = None
    url: str | None = None
    path: str | None = None  # file to upload: POSIX path relative to the project
    hashes: tuple[str, ...] = ()  # sha256:…

    @property
    def wheel(self) -> str | None:
        """Return the file name if the package is a wheel."""
        path = unquote(urlsplit(self.url).path) if self.url else self.path or ""
        return path.rsplit("/", 1)[-1] if path.lower().endswith(".whl") else None


@dataclass(frozen=True)
class Option(Line):
    """A pip option: ``--index-url``, ``--extra-index-url``, ``--find-links``, ``--no-index``, ``--pre`` …"""

    name: str = ""
    value: str = ""  # for find-links: a URL or an absolute path


@dataclass(frozen=True)
class Dependencies:
    """All dependencies of a project. ``conda`` includes ``python`` and ``pip`` if they are listed."""

    file: str = ""
    kind: str = CONDA
    name: str | None = None
    python: str | None = None  # as written: "3.5.2", ">=3.6,<3.9", or None
    python_line: Line | None = None
    channels: tuple[str, ...] = ()
    conda: tuple[Requirement, ...] = ()
    pip: tuple[PipLine, ...] = ()
    constraints: tuple[PipLine, ...] = ()
    options: tuple[Option, ...] = ()
    files: tuple[str, ...] = ()  # all files read, main file first
    texts: tuple[str, ...] = ()  # contents of these files as read, for formats that another program also reads

    @property
    def needs_conda(self) -> bool:
        """Return whether any package besides Python and pip comes from a conda channel."""
        return any(package.name not in ("python", "pip") for package in self.conda)

    @property
    def index_url(self) -> str | None:
        return next((option.value for option in reversed(self.options) if option.name == "--index-url"), None)

    @property
    def extra_index_urls(self) -> tuple[str, ...]:
        return tuple(option.value for option in self.options if option.name == "--extra-index-url")

    @property
    def find_links(self) -> tuple[str, ...]:
        return tuple(option.value for option in self.options if option.name == "--find-links")
