"""The environment step of a run. It need not run where the run does, nor in the same process.

The supervisor does it before the start. A starter may do it earlier and elsewhere, such as on the login node of a
cluster: then the supervisor finds the environment ready, and only holds it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
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
    """Make the run's environment ready, and hold it while this process lives; why there is none, or None.

    ``on_build`` is called if it has to be built, ``beat`` every few seconds meanwhile.
    """
    if not _is_managed(spec):
        return None
    from .ready import make_ready  # noqa: PLC0415 - other runs do without

    return make_ready(root, run, spec, on_build, beat, secrets)


def hold_environment(root: Root, spec: Spec) -> None:
    """Keep the environment of a run that has started from being removed while this process lives."""
    lock = spec.get("lock")
    if lock and _is_managed(spec):
        from .environment import hold  # noqa: PLC0415 - other runs do without

        hold(root, lock, spec["id"])


def _is_managed(spec: Spec) -> bool:
    """Whether the environment is one that mlw builds."""
    return (spec.get("lock") or {}).get("kind") == "managed"
