"""Backend of the pages and the HTTP API. Pages never read files or run commands themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate

from ..history.store import History
from ..paths import UserPaths
from .drafts import Drafts
from .gpu_poller import GpuPoller
from .operation_runner import OperationRunner
from .queries.projects import Projects
from .run_poller import RunPoller
from .shell_sessions import ShellSessions
from .worker_pool import Params, Result, WorkerPool


class Backend:
    """Services of the UI server.

    ``call`` runs queries, ``operations`` runs commands, and ``run_poller`` refreshes runs.
    """

    def __init__(self, paths: UserPaths) -> None:
        self.paths = paths
        self.workers = WorkerPool(paths)
        self.operations = OperationRunner()
        self.run_poller = RunPoller(paths)
        self.gpus = GpuPoller(paths)
        self.projects = Projects(paths.home / "ui" / "projects.json")
        self.drafts = Drafts(paths.home / "ui" / "drafts")
        self.shells = ShellSessions()

    async def call(
        self,
        query: Callable[Concatenate[History, Params], Result],
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> Result:
        """Call a function from ``queries/`` in a worker thread, with that thread's ``History``."""
        return await self.workers.call(query, *args, **kwargs)

    def open(self) -> None:
        self.run_poller.start()

    def close(self) -> None:
        self.run_poller.stop()
        self.gpus.close()
        self.shells.close()
        self.drafts.flush()
        self.workers.close()
