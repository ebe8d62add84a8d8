"""Interface through which a supervisor starts, takes over, and stops the command of a run."""

from __future__ import annotations

from .process_work import ProcessWork

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple, Union

    from .run_spec import Spec
    from .shared.layout import RunFolder

    Facts = Optional[Dict[str, Any]]

    class Work(Protocol):
        """The command of a run, as processes or a container. ``facts`` were recorded when the script started."""

        def prepare(self) -> None:
            """Create the folders and files that the command needs, besides the code. Raise OSError on failure."""

        def start(self, secrets: Dict[str, str], umask: int, keep: List[int]) -> None:
            """Start the launcher, which makes the start decision and keeps the descriptors ``keep`` open."""

        def is_launching(self) -> bool:
            """Return whether a launcher that this supervisor started is alive."""

        def step(self) -> Facts:
            """Return data for a ``step`` event before the start, or None if there is nothing new."""

        def reap(self) -> None:
            """Reap child processes that have ended."""

        def started(self) -> Facts:
            """Return the facts about the start, or None if no launcher has started the script."""

        def find_unrecorded_exit(self) -> Facts:
            """Return the exit status if no launcher is left to record it.

            Return None if a process or a launcher is alive.
            """

        def after_restart(self, rebooted: bool, waiting: Callable[[], None]) -> Union[str, Facts]:
            """Return RUNNING, the exit status, or None if a machine restart ended the script."""

        def living_processes(self, facts: Facts) -> List[Tuple[int, int]]:
            """Return living processes as (PID, start time), with the main process last."""

        def terminate(self, facts: Facts) -> None:
            """Ask all processes to end."""

        def kill(self, facts: Facts) -> None:
            """Kill all processes."""

        def abandon(self, facts: Facts) -> None:
            """Kill the processes of this attempt, but none of a newer attempt of the same run."""

        def clean_up(self) -> None:
            """Clean up immediately before the ending is recorded."""


def make_work(run: RunFolder, spec: Spec) -> Work:
    """Return the work as a container if the spec has one, or as processes otherwise."""
    if not spec.get("container"):
        return ProcessWork(run, spec)
    from .container_work import ContainerWork  # noqa: PLC0415 - only for containers

    return ContainerWork(run, spec)
