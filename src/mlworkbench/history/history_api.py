"""Public history API for programs and notebooks: ``mlworkbench.History()``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UnknownName, UsageError
from ..model import Run
from . import store
from .expression import parse, parse_sort
from .run_query import Query
from .store import Runs

if TYPE_CHECKING:
    from .dataframes import DataFrame
    from .series.points import Points


class History(store.History):
    """The run history in the data folder (``MLW_HOME``)."""

    def list(  # noqa: PLR0913 - optional arguments are keyword-only
        self,
        where: str | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        project: str | None = None,
        tags: Sequence[str] = (),
        text: str | None = None,
        parent: str | None = None,
        children: bool = True,
        archived: bool = False,
    ) -> Runs:
        """List matching runs, newest first by default: ``list("accuracy > 0.9", sort="-accuracy", limit=5)``.

        The arguments correspond to the options of ``mlw history list``. ``project`` is a project ID; the default is all
        projects.
        """
        by, descending = parse_sort(sort) if sort else (None, False)
        return self.search(
            Query(
                project=project,
                archived=archived,
                children=children,
                parent=parent,
                texts=(text,) if text else (),
                tags=tags,
                where=parse(where) if where else None,
                sort=by,
                descending=descending,
                limit=limit,
            )
        )

    def metrics(self, run: Run | str, *names: str) -> dict[str, Points]:
        """Return all numeric metrics of a run as a dict: name → steps, times, and values."""
        from .series.run_series import RunSeries  # noqa: PLC0415 - most programs need no series

        if not isinstance(run, (str, Run)):
            raise UsageError(f"{run!r} is not a run", "pass a run ID, or a Run returned by list()")
        with RunSeries(self, self.get(run) if isinstance(run, str) else run) as series:
            available = dict.fromkeys(metric.name for metric in series.names() if metric.kind == "number")
            for name in names:
                if name not in available:
                    raise UnknownName("metric", name, list(available))
            return {name: series.points(name) for name in names or available}

    def metrics_dataframe(self, run: Run | str, *names: str) -> DataFrame:
        """Return the metrics of a run as a pandas DataFrame with the columns name, step, time, and value."""
        from .dataframes import points_frame  # noqa: PLC0415 - loads pandas

        return points_frame(self.metrics(run, *names))

    def runs_dataframe(self, where: str | None = None, **options: Any) -> DataFrame:
        """Return runs as a pandas DataFrame with columns such as metrics.loss and params.lr.

        The arguments are the same as for ``list``.
        """
        from .dataframes import runs_frame  # noqa: PLC0415 - loads pandas

        return runs_frame(self.list(where, **options))
