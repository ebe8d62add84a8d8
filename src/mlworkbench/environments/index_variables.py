"""Variables in the host or the path of the user's index addresses: a lock has their names, and never their values.

Some servers take a token as a part of the path, and repeat it in the addresses of all packages. Such packages are
fetched here and sent, as those behind a password are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..model import JsonDict
from .channels import expanded, user_indexes
from .credentials import Origin, origin_of

_NAME = re.compile(r"\$\{([A-Z0-9_]+)\}")


@dataclass(frozen=True)
class NamedSecrets:
    """``values``: by the name of the variable. ``origins``: the servers whose addresses have them."""

    values: Mapping[str, str]
    origins: frozenset[Origin]

    @staticmethod
    def of(environ: Mapping[str, str]) -> NamedSecrets:
        """Those of the user's settings; a project has none."""
        values: dict[str, str] = {}
        origins: set[Origin] = set()
        for written in user_indexes(environ, Path(), fill=False).places():
            origin = origin_of(expanded(written, environ))
            names = _NAME.findall(re.sub(r"(?<=://)[^/@]*@", "", written))
            if origin and names:
                origins.add(origin)
                values.update((name, environ[name]) for name in names if environ.get(name))
        return NamedSecrets(values, frozenset(origins))

    def hide(self, text: str) -> str:
        """The text with the names of the variables in place of their values."""
        names = {value: name for name, value in self.values.items()}
        longest_first = sorted(names, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        return re.sub(pattern, lambda found: f"${{{names[found[0]]}}}", text) if names else text

    def fill(self, url: str) -> str:
        """The opposite, for an address of the servers that the variables are for: a lock may come from anywhere."""
        filled = expanded(url, self.values)
        return filled if origin_of(filled) in self.origins else url

    def hidden(self, lock: JsonDict) -> JsonDict:
        """The lock without the values. What was fetched from an address with one is only ever sent from here."""
        entries = ("conda", "pip", "tools")
        return {name: list(map(self._entry, value)) if name in entries else value for name, value in lock.items()}

    def _entry(self, entry: JsonDict) -> JsonDict:
        url = str(entry.get("url") or "")
        if origin_of(url) not in self.origins or self.hide(url) == url:
            return entry
        return {**entry, "url": self.hide(url), "private": True}
