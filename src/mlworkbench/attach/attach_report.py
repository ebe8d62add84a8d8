"""The result of an attach."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..model import JsonDict
from ..targets.machine_check import Finding


@dataclass(frozen=True)
class AttachReport:
    """The attached target, the files written for it, and warnings about the machine."""

    written: tuple[str, ...]
    findings: tuple[Finding, ...]
    kind: str
    identity: str  # user@host:port and the route, or the master of a cluster that this machine uses directly
    key: str | None = None  # how mlw logs in
    host_key: str | None = None

    @property
    def record(self) -> JsonDict:
        return {
            "identity": self.identity,
            "type": self.kind,
            "key": self.key,
            "host_key": self.host_key,
            "findings": [asdict(finding) for finding in self.findings],
            "written": list(self.written),
        }
