"""Live GPU gauges for a machine."""

from __future__ import annotations

from urllib.parse import quote

from nicegui.element import Element


class GpuGauges(Element, component="gauges.js"):
    """GPU gauges. If ``is_remote``, they also show whether the machine is reachable."""

    def __init__(self, key: str, name: str, is_remote: bool) -> None:
        super().__init__()
        self._props["url"] = f"/api/targets/{quote(name, safe='')}/gpus?project={quote(key, safe='')}"
        self._props["distant"] = is_remote

    def show_problem(self, state: str, message: str) -> None:
        """Show the worst finding, if ``state`` is not empty.

        A machine that responds may still be unusable.
        """
        self._props["worst"], self._props["why"] = state, message
        self.update()
