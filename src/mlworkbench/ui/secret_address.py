"""The secret address at which browsers use the server.

Browsers send a cookie to all ports of a host, so a cookie for 127.0.0.1 reaches every other web application on this
machine. The session's cookie therefore belongs to an address that nobody can guess: a host name below ``.localhost``,
or, for browsers that do not resolve such names, a path on the numeric address.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..remote.shared.files import read_json, write_whole

Style = Literal["hostname", "path"]
STYLES: tuple[Style, ...] = ("hostname", "path")
CODE = r"[A-Za-z0-9_-]{43}"  # the single-use code of a link
_SECRET = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class SecretAddress:
    """128 random bits, as a label of a host name and as the first segment of a path."""

    text: str

    def base(self, style: Style, address: str) -> str:
        """The address of the pages. ``address``: the server's numeric one, ``http://127.0.0.1:8521``."""
        if style == "path":
            return f"{address}/{self.text}"
        return f"http://{self.text}.localhost:{address.rpartition(':')[2]}"

    def link(self, style: Style, address: str, code: str) -> str:
        return f"{self.base(style, address)}/login?code={code}"

    def code_of(self, link: str, address: str) -> str | None:
        """The code of a link to this address; None for any other text."""
        bases = "|".join(re.escape(self.base(style, address)) for style in STYLES)
        found = re.fullmatch(rf"(?:{bases})/login\?code=({CODE})", link)
        return found[1] if found else None


def default_style(host: str | None) -> Style:
    """Browsers on Linux resolve ``*.localhost`` themselves; Safari asks the system. Other machines cannot use it."""
    return "hostname" if host is None and sys.platform == "linux" else "path"


def known_address(file: Path) -> SecretAddress | None:
    """That of the last server of this user, which may still run."""
    known = _read(file)
    return SecretAddress(known) if known else None


def new_address(file: Path) -> SecretAddress:
    """Written to the file, in place of the last one.

    Each server has its own: after the end of one, any user of this machine can listen on its port, to which open pages
    still connect, and leave a service worker in the browser, which would then be part of all pages of that address.
    """
    made = SecretAddress(secrets.token_hex(16))
    write_whole(str(file), {"secret": made.text})
    return made


def _read(file: Path) -> str | None:
    """None also if other users could read or write the file: it is no secret then."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return None
    if os.name == "posix" and (
        not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid != os.geteuid()
    ):
        return None
    text = str((read_json(str(file), "secret") or {}).get("secret"))
    return text if _SECRET.fullmatch(text) else None
