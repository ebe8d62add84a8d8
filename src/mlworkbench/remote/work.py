"""The work of a run as its supervisor sees it: started once, found again after a death, stopped."""

from __future__ import annotations

from .processes import Processes

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple, Union

    from .run_spec import Spec
    from .shared.layout import RunFolder

    Facts = Optional[Dict[str, Any]]

    class Work(Protocol):
        """The command of a run, as processes or as a container. ``facts``: what was noted when it started."""

        def prepare(self) -> None:
            """Make what must be there before the start, beside the code. Raises OSError."""

        def start(self, secrets: Dict[str, str], umask: int, keep: List[int]) -> None:
            """Start the launcher, which makes the start decision and keeps the descriptors ``keep`` open."""

        def coming(self) -> bool:
            """Whether a launcher that this supervisor started lives."""

        def step(self) -> Facts:
            """Data of a ``step`` event that is due before the start; None: nothing new."""

        def reap(self) -> None:
            """Collect child processes that have ended."""

        def started(self) -> Facts:
            """What was noted of the start, by whichever launcher; None: the script has not started."""

        def ended_unseen(self) -> Facts:
            """The exit status where no launcher is left to write it; None: it has not ended, or a launcher lives."""

        def after_restart(self, rebooted: bool, waiting: Callable[[], None]) -> Union[str, Facts]:
            """After a restart of the machine: RUNNING, the exit status, or None if the restart ended the script."""

        def living(self, facts: Facts) -> List[Tuple[int, int]]:
            """Processes that live, each by pid and start time, the main one last."""

        def terminate(self, facts: Facts) -> None:
            """Ask all of it to end."""

        def kill(self, facts: Facts) -> None:
            """End all of it."""

        def leave(self) -> None:
            """Clean up, right before the ending is recorded."""


def work_of(run: RunFolder, spec: Spec) -> Work:
    """Processes, or a container where the spec has one."""
    if not spec.get("container"):
        return Processes(run, spec)
    from .container import Contained  # noqa: PLC0415 - what plain runs need not hold

    return Contained(run, spec)
