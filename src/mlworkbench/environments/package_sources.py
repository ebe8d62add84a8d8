"""Package sources: conda channels, pip indexes, and URLs without their secrets.

Project files of the original were written for pip, so pip settings (``pip.conf`` and ``PIP_…``) are
supported as well. uv reads neither.
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
# Special names in conda files that are not channels. ``defaults`` means Anaconda's channel ``main``.
_CHANNEL_ALIASES = {"nodefaults": (), "defaults": ("main",)}
_TOKEN = re.compile(r"^/t/[^/]+(?=/|$)")
_SECRET_PARAMETERS = re.compile(r"(?i)token|sig|key|auth|secret|passw|credential")
_ADDRESS_OPTIONS = ("index-url", "extra-index-url", "find-links")
_TRUE = ("1", "true", "yes", "on")
# uv's index settings. If the user has set any of them, pip settings are ignored.
_UV_INDEX = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")


@dataclass(frozen=True)
class Indexes:
    """The sources of pip packages. Without ``index_url``, the resolver's default index is used."""

    index_url: str | None = None
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False

    def lines(self) -> list[str]:
        """Return the options as lines for a requirements file.

        A command line would show passwords in URLs to other users.
        """
        lines = [f"--index-url {self.index_url}"] if self.index_url else []
        lines += ["--no-index"] if self.no_index else []
        return [
            *lines,
            *(f"--extra-index-url {address}" for address in self.extra),
            *(f"-f {address}" for address in self.find_links),
        ]

    def addresses(self) -> tuple[str, ...]:
        return (*((self.index_url,) if self.index_url else ()), *self.extra, *self.find_links)

    def hosts_with_password(self) -> set[str]:
        return hosts_with_password(self.addresses())

    def fingerprint(self, root: Path) -> list[str]:
        """Return the values for a digest: URLs without secrets, and the contents of local folders."""
        addresses = [strip_secret(address)[0] for address in (self.index_url or "", *self.extra, *self.find_links)]
        return [*addresses, str(self.no_index), *_list_files(self.find_links, root)]


def channels_of(dependencies: Dependencies) -> tuple[str, ...]:
    """Return the channels in the order in which the file lists them."""
    names = [*dependencies.channels, *(channel.channel for channel in dependencies.conda if channel.channel)]
    channels = [channel for name in names for channel in _CHANNEL_ALIASES.get(name, (name,))]
    return tuple(dict.fromkeys(channels)) or (CONDA_FORGE,)


def is_remote(address: str) -> bool:
    """Return whether a URL refers to a server. Anything else may be a local path."""
    return re.match(r"https?://", address, re.IGNORECASE) is not None


def is_absolute(address: str) -> bool:
    """Return whether a local path or URL is independent of the current folder."""
    return os.path.isabs(address) or address.startswith("file:///")


def is_local_channel(channel: str) -> bool:
    """Return whether a channel may be a local folder. A plain name is a channel on a server."""
    return not is_remote(channel) and re.fullmatch(r"\w[\w.+-]*(?:/[\w.+-]+)*", channel) is None


def normalize_channel(entry: str) -> str:
    """Replace the channel prefix of a conda package with the name that ``channels_of`` uses."""
    return re.sub(r"\Adefaults::", "main::", entry)


def indexes_of(dependencies: Dependencies, environ: Mapping[str, str], root: Path) -> Indexes:
    """Return the indexes, in order of priority.

    The order is the same as in uv: the user's uv settings, options in the file, and the user's pip
    settings. URLs in the file are used unchanged; ``url_variables`` has already filled in passwords.
    Relative folders are relative to ``root``, the project folder in which uv is started.
    """
    uv = _uv_settings(environ)
    pip = user_indexes(environ, root) if uv is None else Indexes()
    uv = uv or Indexes()
    links = (*uv.find_links, *dependencies.find_links, *pip.find_links)
    return Indexes(
        index_url=uv.index_url or dependencies.index_url or pip.index_url,
        extra=_drop_missing((*uv.extra, *dependencies.extra_index_urls, *pip.extra), root),
        find_links=_drop_missing(links, root),
        no_index=uv.no_index or pip.no_index or any(option.name == "--no-index" for option in dependencies.options),
    )


def user_indexes(environ: Mapping[str, str], root: Path, *, fill: bool = True) -> Indexes:
    """Return the indexes in the user's uv settings, else in the user's pip settings.

    Project settings are never read. ``root`` is the folder in which uv is started. With ``fill``,
    passwords and variables are filled in; otherwise, URLs are returned as written.
    """
    uv = _uv_settings(environ, fill)
    if uv is not None:
        return replace(uv, extra=_drop_missing(uv.extra, root), find_links=_drop_missing(uv.find_links, root))
    pip = _pip_settings(environ)
    return Indexes(
        index_url=_user_address(pip.get("index-url", ""), environ, fill) or None,
        extra=_drop_missing(
            (_user_address(address, environ, fill) for address in pip.get("extra-index-url", "").split()), root
        ),
        find_links=_drop_missing(
            (_user_address(address, environ, fill) for address in pip.get("find-links", "").split()), root
        ),
        no_index=pip.get("no-index", "").lower() in _TRUE,
    )


def keyring_filler(environ: Mapping[str, str], root: Path) -> Callable[[str], str]:
    """Return a function that adds passwords from the user's keyring to the URLs in a line."""
    user_addresses = set(user_indexes(environ, root).addresses())

    def fill(line: str) -> str:
        return re.sub(
            r"\S+", lambda match: with_keyring(match[0], environ, configured=match[0] in user_addresses), line
        )

    return fill


def _user_address(address: str, environ: Mapping[str, str], fill: bool) -> str:
    """Return a URL from the user's settings; with ``fill``, include its password."""
    return with_netrc(expand_variables(address, environ), environ, configured=True) if fill else address


def _uv_settings(environ: Mapping[str, str], fill: bool = True) -> Indexes | None:
    """Return the user's uv settings, or None if there are none.

    mlw passes them to uv in a file. Requirements of a project can refer to environment variables and
    could expose the passwords in them.
    """
    if not any(environ.get(name) for name in _UV_INDEX):
        return None
    default = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or ""
    extra = [*environ.get("UV_INDEX", "").split(), *environ.get("UV_EXTRA_INDEX_URL", "").split()]
    links = [address.strip() for address in environ.get("UV_FIND_LINKS", "").split(",")]
    return Indexes(
        index_url=_index_with_credentials(default, environ, fill) or None,
        extra=tuple(_index_with_credentials(address, environ, fill) for address in extra),
        find_links=tuple(_user_address(address, environ, fill) for address in links if address),
        no_index=environ.get("UV_NO_INDEX", "").lower() in _TRUE,
    )


def _index_with_credentials(text: str, environ: Mapping[str, str], fill: bool) -> str:
    """Add the credentials from ``UV_INDEX_OWN_USERNAME`` and ``…_PASSWORD`` to ``own=https://…``."""
    prefixed = re.match(r"([\w.-]+)=", text)
    url = text[prefixed.end() :] if prefixed else text
    if not fill:
        return url
    address = expand_variables(url, environ)
    parts = urlsplit(address)
    if not prefixed or "@" in parts.netloc:
        return with_netrc(address, environ, configured=True)
    prefix = "UV_INDEX_" + re.sub(r"[^A-Za-z0-9]", "_", prefixed[1]).upper()
    user, password = (environ.get(f"{prefix}_{what}") for what in ("USERNAME", "PASSWORD"))
    if not user and not password:
        return with_netrc(address, environ, configured=True)
    credentials = quote(user or "", safe="") + (f":{quote(password, safe='')}" if password else "")
    return urlunsplit(parts._replace(netloc=f"{credentials}@{parts.netloc}"))


def _drop_missing(addresses: Iterable[str], root: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(address for address in addresses if not _is_missing(address, root)))


def index_host(environ: Mapping[str, str]) -> str | None:
    """Return the host of the index in the user's settings, without credentials.

    The port is included unless it is 443.
    """
    # UV_DEFAULT_INDEX may have a name: own=https://…
    configured = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")
    address = re.sub(r"\A[\w.-]+=", "", configured) if configured else _pip_settings(environ).get("index-url", "")
    try:
        parts = urlsplit(expand_variables(address, environ))
        host, port = parts.hostname, parts.port or {"http": 80}.get(parts.scheme, 443)
    except ValueError:
        return None  # uv will report the invalid URL
    if not host or ":" in host or parts.scheme not in ("http", "https"):
        return None
    return host if port == 443 else f"{host}:{port}"


def expand_variables(address: str, environ: Mapping[str, str]) -> str:
    """Replace ``${NAME}`` as pip does. Use it only for the user's settings, never for project text."""
    return re.sub(r"\$\{([A-Z0-9_]+)\}", lambda match: environ.get(match[1]) or match[0], address)


def strip_secret(address: str) -> tuple[str, bool]:
    """Return a URL that is safe to store and display, and whether the original contained a secret."""
    parts = urlsplit(address)
    if not parts.netloc:
        return address, False
    path = _TOKEN.sub("", parts.path)
    query = parse_qsl(parts.query, keep_blank_values=True)
    has_secret = any(_SECRET_PARAMETERS.search(name) for name, _ in query)
    host = parts.netloc.rpartition("@")[2]
    clean = urlunsplit((parts.scheme, host, path, "" if has_secret else parts.query, ""))
    changed = host != parts.netloc or path != parts.path or has_secret
    return clean, changed


def is_safe_to_send(address: str) -> bool:
    """Return whether a URL in the user's settings has no secrets except its user name and password."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    rest = parts.netloc.rpartition("@")[2] + parts.path
    return not (parts.query or parts.fragment) and not any(part in rest for part in ("${", ";", "@"))


def hosts_with_password(addresses: Iterable[str]) -> set[str]:
    """Return the hosts that require a password.

    Targets cannot download from these hosts, because locks do not contain passwords.
    """
    return {urlsplit(strip_secret(address)[0]).netloc for address in addresses if strip_secret(address)[1]}


def mask(text: str) -> str:
    """Remove passwords and tokens from URLs in resolver output."""
    text = re.sub(r"(?<=://)[^/\s@]+@", "", text)
    return re.sub(r"(://[^/\s]+)/t/[^/\s]+", r"\1", text)


# -- pip's settings -----------------------------------------------------------------------------------


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for path in _pip_files(environ):
        reader = configparser.RawConfigParser()
        try:
            reader.read_string(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, configparser.Error):
            continue  # pip itself reports the error; ignore the file here
        for section in ("global", "install"):
            if reader.has_section(section):
                options = ((name.replace("_", "-"), value) for name, value in reader.items(section))
                settings.update(
                    (name, _resolve_relative(path.parent, value) if name in _ADDRESS_OPTIONS else value)
                    for name, value in options
                )
    for name in (*_ADDRESS_OPTIONS, "no-index"):
        value = environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            settings[name] = value
    return settings


def _resolve_relative(folder: Path, value: str) -> str:
    """Resolve relative folders in a settings file against the file's folder, not the project."""
    return " ".join(
        address if "://" in address or address.startswith("${") else str(folder / address) for address in value.split()
    )


def _pip_files(environ: Mapping[str, str]) -> Iterable[Path]:
    """Yield pip's settings files, lowest priority first."""
    configured = environ.get("PIP_CONFIG_FILE")
    if configured == os.devnull:
        return
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    yield Path("/etc/pip.conf")
    yield from (home / ".pip" / "pip.conf", config / "pip" / "pip.conf", Path(sys.prefix) / "pip.conf")
    if configured:
        yield Path(configured)


def _is_missing(address: str, root: Path) -> bool:
    """Return whether a URL is a missing local folder, which pip skips but uv reports as an error."""
    path = _to_local_path(address, root)
    return path is not None and not os.path.exists(path)  # Path.exists raises for long names


def _to_local_path(address: str, root: Path) -> Path | None:
    if address.startswith("file://"):
        return Path(url2pathname(urlsplit(address).path))
    return None if "://" in address else root / address.removeprefix("file:")


def _list_files(addresses: Iterable[str], root: Path) -> list[str]:
    lines = []
    for path in filter(None, (_to_local_path(address, root) for address in addresses)):
        for file in sorted(path.iterdir()) if path.is_dir() else ():
            status = file.lstat()  # lstat, because a link may be broken
            lines.append(f"{file} {status.st_size} {status.st_mtime_ns}")
    return lines
