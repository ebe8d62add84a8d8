"""What an attach has done."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..model import JsonDict
from ..targets.check import Finding


@dataclass(frozen=True)
class Attached:
    """The target as it is now."""

    written: tuple[str, ...]
    findings: tuple[Finding, ...]
    kind: str
    identity: str  # user@host:port and the way, or the master of a cluster that is reached from here
    key: str | None = None  # the way in, in words
    host_key: str | None = None

    @property
    def record(self) -> JsonDict:
        return {
            "identity": self.identity,
            "type": self.kind,
            "key": self.key,
            "host_key": self.host_key,
            "findings": [asdict(one) for one in self.findings],
            "written": list(self.written),
        }
