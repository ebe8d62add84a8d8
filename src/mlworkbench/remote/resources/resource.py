"""Resources that gate the start of a run. Obtaining them is a step of its own, after the environment."""

from __future__ import annotations

from ..journal import log

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Protocol

    from ..journal import Journal
    from ..run_spec import Spec
    from ..shared.failure import Reason
    from ..shared.layout import Root, RunFolder

    class Resource(Protocol):
        """One resource of one run. What it is, is on disk: a new supervisor holds what its predecessor held."""

        def obtain(self, beat: Callable[[], None]) -> Optional[Reason]:
            """Wait for it. None: the run may start; else why it never will. ``beat`` is called while waiting."""

        def descriptors(self) -> List[int]:
            """File descriptors for the launcher to keep open: if the supervisor is killed, the run keeps its hold."""

        def keep(self) -> None:
            """Hold what a predecessor held. Called often while the run lasts."""

        def release(self) -> None:
            """Give it back."""


class Resources:
    """All resources of one run."""

    def __init__(self, members: List[Resource]) -> None:
        self._members = members

    def obtain(self, beat: Callable[[], None]) -> Optional[Reason]:
        """None: all are held, and the run may start; else why it never will."""
        for resource in self._members:
            problem = resource.obtain(beat)
            if problem is not None:
                return problem
        return None

    def descriptors(self) -> List[int]:
        return [descriptor for resource in self._members for descriptor in resource.descriptors()]

    def keep(self) -> None:
        for resource in self._members:
            try:
                resource.keep()
            except Exception as error:  # noqa: BLE001 - the run must be watched, whatever its folder contains
                log("cannot hold a resource of the run, retrying: %s: %s" % (type(error).__name__, error))

    def release(self) -> None:
        """Nothing of it may cost the run its ending."""
        for resource in self._members:
            try:
                resource.release()
            except Exception as error:  # noqa: BLE001 - as above
                log("cannot release a resource of the run: %s: %s" % (type(error).__name__, error))


def join_queues(root: Root, spec: Spec) -> None:
    """Take the run's places in queues, before whoever submits gets an answer: the next submission comes later."""
    if spec.get("gpus") in (None, "none"):
        return
    from .gpu_lease import join  # noqa: PLC0415 - runs without a request need none of it

    join(root, spec)


def resources_of(root: Root, run: RunFolder, spec: Spec, journal: Journal) -> Resources:
    """What a run asks for."""
    if spec.get("gpus") is None:
        return Resources([])
    from .gpu_lease import GpuLease  # noqa: PLC0415 - runs without a request need none of it

    return Resources([GpuLease(root, run, spec, journal)])
