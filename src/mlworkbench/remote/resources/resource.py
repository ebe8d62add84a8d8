"""Resources that a run needs before it starts, obtained in a separate step after the environment."""

from __future__ import annotations

from ..journal import log

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Protocol

    from ..journal import Journal
    from ..run_spec import Spec
    from ..shared.failure import Reason
    from ..shared.layout import Root, RunFolder

    class Resource(Protocol):
        """One resource of one run. Its state is on disk, so that a new supervisor can take it over."""

        def obtain(self, beat: Callable[[], None]) -> Optional[Reason]:
            """Wait for the resource.

            Return None if the run may start, or why it never will. ``beat`` is called while waiting.
            """

        def descriptors(self) -> List[int]:
            """Return descriptors for the launcher to keep open.

            They keep the resource reserved for the run if the supervisor is killed.
            """

        def keep(self) -> None:
            """Take over the resource from a previous supervisor. Called often during the run."""

        def release(self) -> None:
            """Release the resource."""


class ResourceGroup:
    """All resources of one run."""

    def __init__(self, members: List[Resource]) -> None:
        self._members = members

    def obtain(self, beat: Callable[[], None]) -> Optional[Reason]:
        """Obtain all resources. Return None if the run may start, or why it never will."""
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
            except Exception as error:  # noqa: BLE001 - the run must be watched in any case
                log("cannot hold a resource of the run, retrying: %s: %s" % (type(error).__name__, error))

    def release(self) -> None:
        """Release all resources. Errors must not prevent the ending from being recorded."""
        for resource in self._members:
            try:
                resource.release()
            except Exception as error:  # noqa: BLE001 - as above
                log("cannot release a resource of the run: %s: %s" % (type(error).__name__, error))


def join_queues(root: Root, spec: Spec) -> None:
    """Add a run to its queues before the submission is answered, so that later runs come after it."""
    if spec.get("gpus") in (None, "none"):
        return
    from .gpu_lease import join_gpu_queue  # noqa: PLC0415 - only for GPU requests

    join_gpu_queue(root, spec)


def make_resources(root: Root, run: RunFolder, spec: Spec, journal: Journal) -> ResourceGroup:
    """Create the resources that a run requests."""
    if spec.get("gpus") is None:
        return ResourceGroup([])
    from .gpu_lease import GpuLease  # noqa: PLC0415 - only for GPU requests

    return ResourceGroup([GpuLease(root, run, spec, journal)])
