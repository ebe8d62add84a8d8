"""Secret address at which browsers use the server.

Browsers send a cookie to all ports of a host, so a cookie for 127.0.0.1 reaches every other web
application on this machine. The session cookie therefore belongs to an address that cannot be
guessed: a host name below ``.localhost`` or, for browsers that do not resolve such names, a path on
the numeric address.
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

from ..remote.shared.atomic_files import read_json, write_atomic

Style = Literal["hostname", "path"]
STYLES: tuple[Style, ...] = ("hostname", "path")
CODE = r"[A-Za-z0-9_-]{43}"  # single-use code in a link
_SECRET = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class SecretAddress:
    """128-bit random secret, used as a host name label or as the first segment of a path."""

    text: str

    def base(self, style: Style, address: str) -> str:
        """Return the base URL of the pages.

        ``address`` is the numeric URL, such as ``http://127.0.0.1:8521``.
        """
        if style == "path":
            return f"{address}/{self.text}"
        return f"http://{self.text}.localhost:{address.rpartition(':')[2]}"

    def link(self, style: Style, address: str, code: str) -> str:
        return f"{self.base(style, address)}/login?code={code}"

    def extract_code(self, link: str, address: str) -> str | None:
        """Return the code from a link to this address, or None if ``link`` is anything else."""
        bases = "|".join(re.escape(self.base(style, address)) for style in STYLES)
        match = re.fullmatch(rf"(?:{bases})/login\?code=({CODE})", link)
        return match[1] if match else None


def default_style(host: str | None) -> Style:
    """Return the default address style. ``host`` is the address of ``mlw ui --host``, or None for loopback.

    Browsers on Linux resolve ``*.localhost`` to their own machine. Safari uses the system resolver,
    which may not resolve the name. With ``host``, the browser may run on another machine, where the name
    refers to that machine.
    """
    return "hostname" if host is None and sys.platform == "linux" else "path"


def load_address(file: Path) -> SecretAddress | None:
    """Return the address of the user's last server, which may still be running."""
    secret = _read(file)
    return SecretAddress(secret) if secret else None


def create_address(file: Path) -> SecretAddress:
    """Create a new address and write it to the file.

    Each server has its own address. After a server ends, any user of this machine can listen on its
    port, to which open pages still connect. That user could install a service worker, which would then
    affect all pages at the address.
    """
    address = SecretAddress(secrets.token_hex(16))
    write_atomic(str(file), {"secret": address.text})
    return address


def _read(file: Path) -> str | None:
    """Read the secret, or return None if other users can read or write the file."""
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
