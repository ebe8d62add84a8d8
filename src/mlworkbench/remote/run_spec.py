"""The spec of a run as its target reads it. It contains all client decisions (``RunSpec`` in ``model.py``)."""

from __future__ import annotations

from .shared.atomic_files import read_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, TypedDict

    from .shared.layout import RunFolder

    class Command(TypedDict):
        """One command of a run. The last command is the user's."""

        step: str
        argv: List[str]

    class Spec(TypedDict, total=False):
        """Keys of a spec that a target reads. Unused keys are null, or missing from older specs."""

        spec: int  # format version
        id: str
        project_id: str
        snapshot: str
        commands: List[Command]
        environment: Dict[str, str]
        inherit: List[str]  # variables that the script inherits from the target
        unpassed: List[str]  # known variables that were set in the submitting shell, but not passed
        starter: str  # "detached", or "plugin:" followed by the name of an uploaded file
        scheduler: Dict[
            str, Any
        ]  # what a scheduler is asked for: partition, time in seconds, gpus, setup, options, ...
        secrets: List[str]  # names; the values are sent separately
        compute: Dict[str, Any]
        runconfig: str
        lock: Dict[str, Any]
        prepare: bool  # whether the environment may be built
        path: List[str]  # folders to prepend to PATH
        container: Dict[str, Any]
        companions: Dict[str, Dict[str, Any]]
        spark: Dict[str, Any]  # used by older clients, now in companions
        gpus: str
        processes: Dict[str, Any]  # several processes of the command: launcher, count, python, library
        timeout: float  # seconds
        grace: float
        retries: Dict[str, Any]  # "limit", "causes", and "delay" in seconds
        resumed: str  # ID of the run whose checkpoints this run starts with
        checkpoints: str  # digest of a snapshot with these checkpoints, if they were on another machine
        tracked: bool
        spoken: bool  # whether printed ``key: value`` lines are metrics
        keep: List[str]  # files and folders of the working copy that are collected with the outputs
        parent: str
        sweep: Dict[str, Any]
        client: str
        name: str


TRACKING_OFF = ("off", "0", "no", "false", "none", "disabled")  # values of MLW_TRACKING, as in the in-run library


def read_spec(run: RunFolder) -> Optional[Spec]:
    """Return the spec in a run folder, or None if it is missing or damaged."""
    spec: Any = read_json(run.spec)
    return spec  # type: ignore[no-any-return]


def is_tracked(spec: Spec) -> bool:
    """Return whether data of the run is recorded."""
    setting = (spec.get("environment") or {}).get("MLW_TRACKING", "").strip().lower()
    return spec.get("tracked") is not False and setting not in TRACKING_OFF


def requested_gpus(spec: Spec) -> Optional[str]:
    """Return the GPU request of a run, from this machine or from its scheduler."""
    count = (spec.get("scheduler") or {}).get("gpus")
    return spec.get("gpus") or (str(count) if count else None)


def companion_settings(spec: Spec, name: str) -> Optional[Dict[str, Any]]:
    """Return the settings of a companion such as ``spark``, or None if the run does not use it."""
    settings = (spec.get("companions") or {}).get(name)
    if settings is None and name == "spark":
        return spec.get("spark") or None
    return settings
