"""The spec of a run as its target reads it: all that the client decided (``RunSpec`` in its ``model.py``)."""

from __future__ import annotations

from .shared.files import read_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, TypedDict

    from .shared.layout import RunFolder

    class Command(TypedDict):
        """One command of a run; the last one is the user's."""

        step: str
        argv: List[str]

    class Spec(TypedDict, total=False):
        """What a target reads of a spec. Whatever a run does without is null, or missing in specs of older clients."""

        spec: int  # version of the format
        id: str
        project_id: str
        snapshot: str
        commands: List[Command]
        environment: Dict[str, str]
        inherit: List[str]  # variables that the script gets from the target's environment
        starter: str  # "detached", or "plugin:" and the name of a file that travelled along
        secrets: List[str]  # names; the values travel beside the spec
        compute: Dict[str, Any]
        runconfig: str
        lock: Dict[str, Any]
        prepare: bool  # the environment may be built
        path: List[str]  # folders that go before PATH
        container: Dict[str, Any]
        companions: Dict[str, Dict[str, Any]]
        spark: Dict[str, Any]  # before there were companions
        gpus: str
        timeout: float  # seconds
        grace: float
        tracked: bool
        spoken: bool  # printed ``key: value`` lines are metrics
        parent: str
        sweep: Dict[str, Any]
        client: str
        name: str


def read_spec(run: RunFolder) -> Optional[Spec]:
    """The spec in a run folder; None if there is none, or it is damaged."""
    spec: Any = read_json(run.spec)
    return spec  # type: ignore[no-any-return]


def companion_settings(spec: Spec, name: str) -> Optional[Dict[str, Any]]:
    """What the run's framework tells one companion; None: the run does without that companion."""
    settings = (spec.get("companions") or {}).get(name)
    if settings is None and name == "spark":
        return spec.get("spark") or None
    return settings
