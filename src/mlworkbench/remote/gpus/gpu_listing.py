"""List the GPUs of this machine with the runs and users that use them."""

from __future__ import annotations

import os

from ..attempts import newest_attempt
from ..markers import is_alive, read_started
from ..shared.atomic_files import read_json
from ..shared.layout import Root
from ..spark.application_marker import read_application_id
from . import inventory_process
from .gpu_inventory import find_pci_cards
from .presence import may_have_gpu
from .process_owner import Owner, ProcessTable, add_owners, user_name

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set


def list_gpus(root: Root, timeout: float = inventory_process.TIMEOUT) -> "Dict[str, Any]":
    """Return the inventory with each process's run, user, and name, and each GPU's lease holder (``held``)."""
    if not may_have_gpu():
        return inventory_process.empty_inventory(
            "an NVIDIA card is installed, but there is no driver for it" if find_pci_cards() else None
        )
    inventory = inventory_process.query_gpus(timeout)
    pids = {process["pid"] for gpu in inventory["gpus"] for process in gpu["processes"] or ()}
    owners = _possible_owners(root, pids)
    holders = _describe_holders()
    for gpu in inventory["gpus"]:
        add_owners(gpu["processes"], owners)
        gpu["held"] = holders.get(gpu["uuid"])
    return inventory


def _describe_holders() -> "Dict[str, Dict[str, Any]]":
    try:
        from .lease_sockets import list_holders  # noqa: PLC0415 - Linux only
    except ImportError:
        return {}
    return {
        uuid: {
            "user": None if holder.uid is None else user_name(holder.uid),
            "run": holder.run,
            "pid": holder.pid() if holder.run is None else None,
        }
        for uuid, holder in list_holders().items()
    }


def _possible_owners(root: Root, pids: "Set[int]") -> List[Owner]:
    """Return the runs that the processes may belong to.

    Most processes have their run's ID in their environment. If one has none, all unfinished runs are candidates.
    """
    table = ProcessTable()
    run_ids: Set[str] = set()
    has_unmarked = False
    for pid in pids:
        values = [table.run_variables(ancestor).get("MLW_RUN_ID") for ancestor in table.ancestors(pid)]
        marked = {run_id for run_id in values if run_id and "/" not in run_id and run_id[0] != "."}
        run_ids |= marked
        has_unmarked = has_unmarked or not marked
    if has_unmarked:
        run_ids |= set(_unfinished_runs(root))
    return [_create_owner(root, run_id) for run_id in sorted(run_ids) if os.path.isdir(root.run(run_id).path)]


def _unfinished_runs(root: Root) -> List[str]:
    try:
        names = os.listdir(root.runs)
    except OSError:
        return []
    runs = ((name, newest_attempt(root.run(name))) for name in names)
    return [name for name, run in runs if os.path.exists(run.started) and not os.path.exists(run.exit)]


def _create_owner(root: Root, run_id: str) -> Owner:
    run = newest_attempt(root.run(run_id))
    facts = read_started(run) or {}
    process = (facts.get("pid"), facts.get("start"))
    init = _container_init_pid(run.container, run.spec)
    return Owner(run_id, run.path, [process[0]] if is_alive(process) else [], init, lambda: read_application_id(run))


def _container_init_pid(marker: str, spec: str) -> "Any":
    """Return the PID of the first process in the run's container, or None. Queries the container engine."""
    if not os.path.exists(marker):
        return None
    container = (read_json(spec) or {}).get("container")
    if not container:
        return None
    from ..engine import Engine  # noqa: PLC0415 - rarely needed

    try:
        return Engine(container).inspect().get("pid") or None
    except (OSError, KeyError, TypeError, ValueError):
        return None
