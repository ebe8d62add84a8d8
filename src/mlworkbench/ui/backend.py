"""The desk: everything that pages and the API ask of the product. No page reads a file or runs a command itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate

from ..history.store import History
from ..paths import UserPaths
from .answers.projects import Projects
from .drafts import Drafts
from .errands import Errands
from .gpuwatch import GpuWatch
from .hands import Answer, Hands, Words
from .live import Live
from .shells import Shells


class Desk:
    """``ask`` reads (see ``answers/``), ``errands`` does, ``live`` keeps things fresh."""

    def __init__(self, paths: UserPaths) -> None:
        self.paths = paths
        self.hands = Hands(paths)
        self.errands = Errands()
        self.live = Live(paths)
        self.gpus = GpuWatch(paths)
        self.projects = Projects(paths.home / "ui" / "projects.json")
        self.drafts = Drafts(paths.home / "ui" / "drafts")
        self.shells = Shells()

    async def ask(
        self,
        work: Callable[Concatenate[History, Words], Answer],
        *words: Words.args,
        **named: Words.kwargs,
    ) -> Answer:
        """A function of ``answers/`` in a worker thread, with a History of that thread."""
        return await self.hands.ask(work, *words, **named)

    def open(self) -> None:
        self.live.start()

    def close(self) -> None:
        self.live.stop()
        self.gpus.close()
        self.shells.close()
        self.drafts.flush()
        self.hands.close()
