"""What all parts of the page of a run share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from nicegui import ui

from ....model import Run
from ...answers.run import Facts
from ...desk import Desk
from ...parts.addresses import show_address
from ...parts.frame import Here


async def _nothing() -> None:
    return


@dataclass
class Context:
    """``asked``: what the address says beside the tab; whoever changes it says so with ``keep``."""

    desk: Desk
    facts: Facts
    where: Here | None
    asked: dict[str, str]
    values: dict[str, ui.label] = field(default_factory=dict)  # labels of last values, by metric
    progress: ui.label | None = None  # of a Spark application
    address: Callable[..., str] = lambda **more: ""
    again: Callable[[], Awaitable[None]] = _nothing

    @property
    def run(self) -> Run:
        return self.facts.run

    @property
    def api(self) -> str:
        return f"/api/runs/{quote(self.run.id, safe='')}"

    def keep(self, **asked: str) -> None:
        """From now on, this is what the address says."""
        self.asked.update(asked)
        show_address(self.address())
