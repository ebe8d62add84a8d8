"""The GPUs of a machine, live."""

from __future__ import annotations

from urllib.parse import quote

from nicegui.element import Element


class Gauges(Element, component="gauges.js"):
    """``distant``: it is another machine, so that an answer also says that it can be reached."""

    def __init__(self, key: str, name: str, distant: bool) -> None:
        super().__init__()
        self._props["url"] = f"/api/targets/{quote(name, safe='')}/gpus?project={quote(key, safe='')}"
        self._props["distant"] = distant

    def judge(self, state: str, words: str) -> None:
        """The worst of what was found ("" if all is well): a machine that answers is not yet one that can be used."""
        self._props["worst"], self._props["why"] = state, words
        self.update()
