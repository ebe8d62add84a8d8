"""The environment step of a run, which may run on another machine and in another process.

The supervisor performs it before the start. A starter may perform it earlier and elsewhere, such as
on the login node of a cluster. Then the supervisor only protects the environment from removal.
"""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional

    from ..run_spec import Spec
    from ..shared.failure import Failure
    from ..shared.layout import Root, RunFolder


def prepare_environment(
    root: Root,
    run: RunFolder,
    spec: Spec,
    secrets: Optional[Dict[str, str]] = None,
    on_build: Callable[[], None] = lambda: None,
    beat: Callable[[], None] = lambda: None,
) -> Optional[Failure]:
    """Prepare the run's environment, and protect it from removal while this process lives. Return a failure or None.

    ``on_build`` is called if the environment must be built, and ``beat`` every few seconds during the
    build.
    """
    if not _is_managed(spec):
        return None
    from .provisioning import provide_environment  # noqa: PLC0415 - other runs do not need it

    return provide_environment(root, run, spec, on_build, beat, secrets)


def hold_environment(root: Root, spec: Spec) -> None:
    """Protect the environment of an active run from removal while this process lives."""
    lock = spec.get("lock")
    if lock and _is_managed(spec):
        from .environment_state import hold_environment_lock  # noqa: PLC0415 - other runs do not need it

        hold_environment_lock(root, lock, spec["id"])


def _is_managed(spec: Spec) -> bool:
    """Return whether mlw builds the environment."""
    return (spec.get("lock") or {}).get("kind") == "managed"
