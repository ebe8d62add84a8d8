"""Variables in the host or path of the user's index URLs. A lock contains only their names.

Some servers expect a token in the path and repeat it in the URLs of all packages. mlw downloads
such packages on this machine and uploads them, as it does for packages behind a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..model import JsonDict
from .credentials import Origin, origin_of
from .package_sources import expand_variables, user_indexes

_NAME = re.compile(r"\$\{([A-Z0-9_]+)\}")


@dataclass(frozen=True)
class SecretVariables:
    """Secret variables by name (``values``), and the servers whose URLs contain them (``origins``)."""

    values: Mapping[str, str]
    origins: frozenset[Origin]

    @staticmethod
    def from_environ(environ: Mapping[str, str]) -> SecretVariables:
        """Return the variables in the user's settings; a project cannot define any."""
        values: dict[str, str] = {}
        origins: set[Origin] = set()
        for address in user_indexes(environ, Path(), fill=False).addresses():
            origin = origin_of(expand_variables(address, environ))
            names = _NAME.findall(re.sub(r"(?<=://)[^/@]*@", "", address))
            if origin and names:
                origins.add(origin)
                values.update((name, environ[name]) for name in names if environ.get(name))
        return SecretVariables(values, frozenset(origins))

    def hide(self, text: str) -> str:
        """Replace the values of the variables in a string with their names."""
        names = {value: name for name, value in self.values.items()}
        longest_first = sorted(names, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        return re.sub(pattern, lambda match: f"${{{names[match[0]]}}}", text) if names else text

    def fill(self, url: str) -> str:
        """Replace names with values, but only in URLs of servers that use them.

        The lock may be untrusted and contain other URLs.
        """
        filled = expand_variables(url, self.values)
        return filled if origin_of(filled) in self.origins else url

    def hide_in_lock(self, lock: JsonDict) -> JsonDict:
        """Return the lock without the values. Packages whose URL contained one are marked private."""
        entries = ("conda", "pip", "tools")
        return {
            name: list(map(self._hide_in_entry, value)) if name in entries else value for name, value in lock.items()
        }

    def _hide_in_entry(self, entry: JsonDict) -> JsonDict:
        url = str(entry.get("url") or "")
        if origin_of(url) not in self.origins or self.hide(url) == url:
            return entry
        return {**entry, "url": self.hide(url), "private": True}
