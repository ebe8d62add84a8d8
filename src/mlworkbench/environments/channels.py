"""Where packages come from: conda's channels, pip's indexes; and addresses without what is secret in them.

Files of the original were written for pip, so its settings count as well: ``pip.conf`` and ``PIP_…``. uv reads neither.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit
from urllib.request import url2pathname

from .credentials import with_keyring, with_netrc
from .dependencies import Dependencies

CONDA_FORGE = "conda-forge"
# Words of conda's that are no channels: the packages of its makers are in main.
_WORDS = {"nodefaults": (), "defaults": ("main",)}
_TOKEN = re.compile(r"^/t/[^/]+(?=/|$)")
_SECRET_WORDS = re.compile(r"(?i)token|sig|key|auth|secret|passw|credential")
_PLACES = ("index-url", "extra-index-url", "find-links")
_YES = ("1", "true", "yes", "on")
# uv has these for itself; where the user set one, pip's settings have no say.
_UV_INDEX = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")


@dataclass(frozen=True)
class Indexes:
    """Where pip's packages are looked for; no ``index_url`` means the resolver's own."""

    index_url: str | None = None
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False

    def lines(self) -> list[str]:
        """As a requirements file says it: there, unlike on a command line, a password is seen by nobody."""
        said = [f"--index-url {self.index_url}"] if self.index_url else []
        said += ["--no-index"] if self.no_index else []
        return [*said, *(f"--extra-index-url {one}" for one in self.extra), *(f"-f {one}" for one in self.find_links)]

    def places(self) -> tuple[str, ...]:
        return (*((self.index_url,) if self.index_url else ()), *self.extra, *self.find_links)

    def hosts_with_password(self) -> set[str]:
        return hosts_with_password(self.places())

    def public(self, root: Path) -> list[str]:
        """The same for a digest: no secret, and what lies in a folder of this machine."""
        said = [without_secret(one)[0] for one in (self.index_url or "", *self.extra, *self.find_links)]
        return [*said, str(self.no_index), *_listing(self.find_links, root)]


def channels_of(dependencies: Dependencies) -> tuple[str, ...]:
    """The channels in the order of the file."""
    named = [*dependencies.channels, *(one.channel for one in dependencies.conda if one.channel)]
    known = [one for name in named for one in _WORDS.get(name, (name,))]
    return tuple(dict.fromkeys(known)) or (CONDA_FORGE,)


def is_remote(address: str) -> bool:
    """Whether a server provides it: everything else is, or may be, a path on this machine."""
    return re.match(r"https?://", address, re.IGNORECASE) is not None


def is_absolute(place: str) -> bool:
    """Whether a path or an address on this machine is the same one in every folder."""
    return os.path.isabs(place) or place.startswith("file:///")


def is_local_channel(channel: str) -> bool:
    """Whether a channel is, or may be, a folder on this machine; a plain name is a channel on a server."""
    return not is_remote(channel) and re.fullmatch(r"\w[\w.+-]*(?:/[\w.+-]+)*", channel) is None


def known_words(entry: str) -> str:
    """A package of conda with the channel before it, if it names one, as ``channels_of`` calls it."""
    return re.sub(r"\Adefaults::", "main::", entry)


def indexes_of(dependencies: Dependencies, environ: Mapping[str, str], root: Path) -> Indexes:
    """The user's settings of uv, then those of the file, then the user's settings of pip.

    That is uv's own order. Addresses of the file are taken as they are (``variables.py`` has filled in passwords).
    Relative folders are those of ``root``, the project: uv is started there.
    """
    uv = _uv_settings(environ)
    pip = user_indexes(environ, root) if uv is None else Indexes()
    uv = uv or Indexes()
    links = (*uv.find_links, *dependencies.find_links, *pip.find_links)
    return Indexes(
        index_url=uv.index_url or dependencies.index_url or pip.index_url,
        extra=_present((*uv.extra, *dependencies.extra_index_urls, *pip.extra), root),
        find_links=_present(links, root),
        no_index=uv.no_index or pip.no_index or any(one.name == "--no-index" for one in dependencies.options),
    )


def user_indexes(environ: Mapping[str, str], root: Path, *, fill: bool = True) -> Indexes:
    """The user's settings of uv, else of pip; never those of a project. ``root``: where uv is started.

    ``fill``: with passwords and variables; else the addresses as they are written.
    """
    uv = _uv_settings(environ, fill)
    if uv is not None:
        return replace(uv, extra=_present(uv.extra, root), find_links=_present(uv.find_links, root))
    pip = _pip_settings(environ)
    return Indexes(
        index_url=_own_address(pip.get("index-url", ""), environ, fill) or None,
        extra=_present((_own_address(one, environ, fill) for one in pip.get("extra-index-url", "").split()), root),
        find_links=_present((_own_address(one, environ, fill) for one in pip.get("find-links", "").split()), root),
        no_index=pip.get("no-index", "").lower() in _YES,
    )


def keyring_filler(environ: Mapping[str, str], root: Path) -> Callable[[str], str]:
    """A function that adds passwords of the user's keyring to the addresses in a line."""
    own = set(user_indexes(environ, root).places())

    def fill(line: str) -> str:
        return re.sub(r"\S+", lambda word: with_keyring(word[0], environ, named=word[0] in own), line)

    return fill


def _own_address(address: str, environ: Mapping[str, str], fill: bool) -> str:
    """An address of the user's settings, with its password where ``fill`` is true."""
    return with_netrc(expanded(address, environ), environ, named=True) if fill else address


def _uv_settings(environ: Mapping[str, str], fill: bool = True) -> Indexes | None:
    """uv gets them in a file: in its environment, a package could name the variable and receive the password."""
    if not any(environ.get(name) for name in _UV_INDEX):
        return None
    default = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or ""
    extra = [*environ.get("UV_INDEX", "").split(), *environ.get("UV_EXTRA_INDEX_URL", "").split()]
    links = [one.strip() for one in environ.get("UV_FIND_LINKS", "").split(",")]
    return Indexes(
        index_url=_named_index(default, environ, fill) or None,
        extra=tuple(_named_index(one, environ, fill) for one in extra),
        find_links=tuple(_own_address(one, environ, fill) for one in links if one),
        no_index=environ.get("UV_NO_INDEX", "").lower() in _YES,
    )


def _named_index(text: str, environ: Mapping[str, str], fill: bool) -> str:
    """``own=https://…`` with the user and password that uv reads for that name: UV_INDEX_OWN_USERNAME, …_PASSWORD."""
    named = re.match(r"([\w.-]+)=", text)
    written = text[named.end() :] if named else text
    if not fill:
        return written
    address = expanded(written, environ)
    parts = urlsplit(address)
    if not named or "@" in parts.netloc:
        return with_netrc(address, environ, named=True)
    prefix = "UV_INDEX_" + re.sub(r"[^A-Za-z0-9]", "_", named[1]).upper()
    user, password = (environ.get(f"{prefix}_{what}") for what in ("USERNAME", "PASSWORD"))
    if not user and not password:
        return with_netrc(address, environ, named=True)
    credentials = quote(user or "", safe="") + (f":{quote(password, safe='')}" if password else "")
    return urlunsplit(parts._replace(netloc=f"{credentials}@{parts.netloc}"))


def _present(places: Iterable[str], root: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in places if not _is_missing(one, root)))


def index_place(environ: Mapping[str, str]) -> str | None:
    """Host, and port if it is not the usual one, of the index in the user's settings: never who asks it."""
    own = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")  # the former may give it a name: own=https://…
    address = re.sub(r"\A[\w.-]+=", "", own) if own else _pip_settings(environ).get("index-url", "")
    try:
        parts = urlsplit(expanded(address, environ))
        host, port = parts.hostname, parts.port or {"http": 80}.get(parts.scheme, 443)
    except ValueError:
        return None  # uv will say that it is no address
    if not host or ":" in host or parts.scheme not in ("http", "https"):
        return None
    return host if port == 443 else f"{host}:{port}"


def expanded(address: str, environ: Mapping[str, str]) -> str:
    """With ``${NAME}`` replaced, as pip does it. For the user's own settings only, never for text of a project."""
    return re.sub(r"\$\{([A-Z0-9_]+)\}", lambda found: environ.get(found[1]) or found[0], address)


def without_secret(address: str) -> tuple[str, bool]:
    """An address that may be kept and shown, and whether there was a secret in it."""
    parts = urlsplit(address)
    if not parts.netloc:
        return address, False
    path = _TOKEN.sub("", parts.path)
    query = parse_qsl(parts.query, keep_blank_values=True)
    has_secret = any(_SECRET_WORDS.search(name) for name, _ in query)
    host = parts.netloc.rpartition("@")[2]
    clean = urlunsplit((parts.scheme, host, path, "" if has_secret else parts.query, ""))
    changed = host != parts.netloc or path != parts.path or has_secret
    return clean, changed


def may_travel(written: str) -> bool:
    """Whether an address, as the user's settings have it, has room for a secret in its user and password alone."""
    try:
        parts = urlsplit(written)
    except ValueError:
        return False
    rest = parts.netloc.rpartition("@")[2] + parts.path
    return not (parts.query or parts.fragment) and not any(one in rest for one in ("${", ";", "@"))


def hosts_with_password(addresses: Iterable[str]) -> set[str]:
    """Hosts that want a password: what lies there can only be fetched by who knows it, and the lock does not."""
    return {urlsplit(without_secret(one)[0]).netloc for one in addresses if without_secret(one)[1]}


def mask(text: str) -> str:
    """A resolver's words without the passwords of the addresses in them."""
    text = re.sub(r"(?<=://)[^/\s@]+@", "", text)
    return re.sub(r"(://[^/\s]+)/t/[^/\s]+", r"\1", text)


# -- pip's settings -----------------------------------------------------------------------------------


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in _pip_files(environ):
        reader = configparser.RawConfigParser()
        try:
            reader.read_string(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, configparser.Error):
            continue  # pip would complain about it; here it is only asked where packages are
        for section in ("global", "install"):
            if reader.has_section(section):
                said = ((name.replace("_", "-"), value) for name, value in reader.items(section))
                found.update((name, _below(path.parent, value) if name in _PLACES else value) for name, value in said)
    for name in (*_PLACES, "no-index"):
        value = environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            found[name] = value
    return found


def _below(folder: Path, value: str) -> str:
    """Addresses of a file of settings: a relative folder is one beside that file, whatever project is submitted."""
    return " ".join(one if "://" in one or one.startswith("${") else str(folder / one) for one in value.split())


def _pip_files(environ: Mapping[str, str]) -> Iterable[Path]:
    """The weakest first."""
    given = environ.get("PIP_CONFIG_FILE")
    if given == os.devnull:
        return
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    yield Path("/etc/pip.conf")
    yield from (home / ".pip" / "pip.conf", config / "pip" / "pip.conf", Path(sys.prefix) / "pip.conf")
    if given:
        yield Path(given)


def _is_missing(place: str, root: Path) -> bool:
    """A folder of this machine that is not there: pip passes over it, uv would stop."""
    path = _folder(place, root)
    return path is not None and not os.path.exists(path)  # unlike Path.exists, also of names that are too long


def _folder(place: str, root: Path) -> Path | None:
    if place.startswith("file://"):
        return Path(url2pathname(urlsplit(place).path))
    return None if "://" in place else root / place.removeprefix("file:")


def _listing(places: Iterable[str], root: Path) -> list[str]:
    found = []
    for path in filter(None, (_folder(place, root) for place in places)):
        for one in sorted(path.iterdir()) if path.is_dir() else ():
            facts = one.lstat()  # a link may lead nowhere
            found.append(f"{one} {facts.st_size} {facts.st_mtime_ns}")
    return found
