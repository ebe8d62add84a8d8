"""What must be importable: one value, whatever file says it, in which every entry knows its line.

Nothing is fetched here and nothing of the project is run. ``reading.py`` makes it of conda's and pip's files,
``lockfiles.py`` of uv's and pixi's.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

USUAL_FILE = "conda_dependencies.yml"  # without it, nothing is asked for
CONDA, REQUIREMENTS, PYPROJECT, UV_LOCK, PIXI_LOCK = "conda", "requirements", "pyproject", "uv.lock", "pixi.lock"
# The Python where nothing is asked for: what the wheels of all the big frameworks exist for.
DEFAULT_PYTHON = "3.12"


@dataclass(frozen=True)
class Line:
    """One entry as it was written, without its comment, and where. ``file`` is as messages show it, and opens."""

    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Requirement(Line):
    """A package of conda: ``channel::name version build``."""

    name: str = ""  # lower case
    channel: str | None = None
    version: str = ""  # as written: "=3.5.2", ">=3.6,<4", "3.6.*=h1", or nothing


@dataclass(frozen=True)
class PipLine(Line):
    """A package of pip: by name, by address, or as a file of the project."""

    name: str | None = None  # normalised, tensorflow-gpu; None: only the address is known
    extras: tuple[str, ...] = ()
    specifier: str = ""  # "==1.4.0", ">=1,<2", or nothing
    marker: str | None = None
    url: str | None = None
    path: str | None = None  # a file that travels, relative to the project, with /
    hashes: tuple[str, ...] = ()  # sha256:…

    @property
    def wheel(self) -> str | None:
        """File name of the wheel, if it is one."""
        place = unquote(urlsplit(self.url).path) if self.url else self.path or ""
        return place.rsplit("/", 1)[-1] if place.lower().endswith(".whl") else None


@dataclass(frozen=True)
class Option(Line):
    """An option of pip: ``--index-url``, ``--extra-index-url``, ``--find-links``, ``--no-index``, ``--pre`` …"""

    name: str = ""
    value: str = ""  # find-links: an address, or an absolute path


@dataclass(frozen=True)
class Dependencies:
    """All of it. ``conda`` holds ``python`` and ``pip`` too, if they are written there."""

    file: str = ""
    kind: str = CONDA
    name: str | None = None
    python: str | None = None  # the pin as written: "3.5.2", ">=3.6,<3.9", None
    python_at: Line | None = None
    channels: tuple[str, ...] = ()
    conda: tuple[Requirement, ...] = ()
    pip: tuple[PipLine, ...] = ()
    constraints: tuple[PipLine, ...] = ()
    options: tuple[Option, ...] = ()
    files: tuple[str, ...] = ()  # all that were read, the first one first
    texts: tuple[str, ...] = ()  # contents of those files as they were read, where another program reads them as well

    @property
    def needs_conda(self) -> bool:
        """Whether a package but the interpreter itself has to come from a conda channel."""
        return any(one.name not in ("python", "pip") for one in self.conda)

    @property
    def index_url(self) -> str | None:
        return next((one.value for one in reversed(self.options) if one.name == "--index-url"), None)

    @property
    def extra_index_urls(self) -> tuple[str, ...]:
        return tuple(one.value for one in self.options if one.name == "--extra-index-url")

    @property
    def find_links(self) -> tuple[str, ...]:
        return tuple(one.value for one in self.options if one.name == "--find-links")
