"""Facts about a Slurm cluster: version, partitions with their GPUs, and the accounts of the user.

All programs run at the same time. Their output is treated as untrusted text.
"""

from __future__ import annotations

import os
import re
import time

from ..parallel_programs import StartedProgram, collect_output, start_program
from .slurm_programs import SlurmMissing, find_program, program_environment

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    Fields = Dict[str, str]
    Facts = Dict[str, Any]
    Results = Dict[str, Tuple[Optional[str], Optional[int], str, str]]

TIMEOUT = 20.0  # seconds; a busy controller may take several
NO_PROGRAM, NO_RESPONSE = "no-program", "no-response"  # values of the key "problem"
MAX_PARTITIONS, MAX_NODES, MAX_ACCOUNTS = 500, 50_000, 500
# States of nodes that run no new jobs. A suffix such as * or ~ is removed before.
_UNUSABLE = frozenset("DOWN DRAIN DRAINED DRAINING FAIL FAILING MAINT NOT_RESPONDING INVAL ERROR UNKNOWN".split())
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9:/_]*)=(\S*)")
_GRES = re.compile(r"gpu(?::([A-Za-z0-9_.+-]+?))?:([0-9]{1,6})\Z")
_TRES = re.compile(r"gres/gpu(?::([^=,]+))?=([0-9]{1,6})\Z")


def gather_facts(root: str, nodes_only: bool = False) -> Facts:
    """Return the facts, or the key ``problem`` if this machine cannot submit jobs. ``root``: mlw's folder.

    ``nodes_only``: only partitions and their nodes, for callers that ask again and again.
    """
    try:
        find_program("scontrol")
        find_program("sbatch")
    except SlurmMissing as error:
        return {"problem": NO_PROGRAM, "reason": error.failure["message"]}
    user = _user_name()
    programs = {  # -a: partitions may be hidden, although the user may submit to them
        "partitions": _start("scontrol", "-a", "-o", "show", "partition"),
        "nodes": _start("scontrol", "-a", "-o", "-d", "show", "node"),
    }
    if not nodes_only:
        fields = "format=account,partition,qos,defaultqos"
        programs["version"] = _start("sbatch", "--version")
        programs["config"] = _start("scontrol", "show", "config")
        programs["accounts"] = _start("sacctmgr", "-n", "-P", "show", "assoc", "user=" + user, fields)
    until = time.monotonic() + TIMEOUT
    results = {name: collect_output(program, until) for name, program in programs.items()}
    for name in ("partitions", "nodes"):
        _, code, _, problem = results[name]
        if code != 0:
            lines = (problem.strip() or "scontrol did not respond").splitlines()
            return {"problem": NO_RESPONSE, "reason": lines[0][:300]}
    rows = summarize(parse_lines(results["partitions"][2]), parse_lines(results["nodes"][2]))
    return {"partitions": rows} if nodes_only else dict(_cluster_facts(results, user, root), partitions=rows)


def _cluster_facts(results: Results, user: str, root: str) -> Facts:
    config = _parse_config(results["config"][2])
    accounts = results["accounts"]
    return {
        "version": _parse_version(results["version"][2]) or config.get("SLURM_VERSION"),
        "cluster": config.get("ClusterName"),
        "max_array_size": _count(config.get("MaxArraySize", "")),
        "gres": [name for name in config.get("GresTypes", "").split(",") if name and name != "(null)"],
        "accounting": config.get("AccountingStorageType", "accounting_storage/none") != "accounting_storage/none",
        "user": user,
        "accounts": parse_accounts(accounts[2]) if accounts[1] == 0 else None,
        "file_system": find_file_system(root),
    }


def _start(name: str, *arguments: str) -> Optional[StartedProgram]:
    try:
        return start_program(find_program(name), *arguments, env=program_environment())
    except SlurmMissing:
        return None


def _user_name() -> str:
    import pwd  # noqa: PLC0415 - not available on every client

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _parse_version(text: str) -> Optional[str]:
    match = re.search(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?", text)
    return match.group() if match else None


def _parse_config(text: str) -> Fields:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def parse_lines(text: str) -> List[Fields]:
    """Return the fields of each line that ``scontrol -o show`` printed."""
    lines = text.splitlines()[:MAX_NODES]
    return [dict(_FIELD.findall(line)) for line in lines if "=" in line]


def parse_accounts(text: str) -> List[Facts]:
    rows = [line.split("|") for line in text.splitlines()[:MAX_ACCOUNTS] if line.count("|") >= 3]
    return [
        {
            "account": row[0],
            "partition": row[1] or None,
            "qos": [name for name in row[2].split(",") if name],
            "default_qos": row[3] or None,
        }
        for row in rows
        if row[0]
    ]


def summarize(partitions: List[Fields], nodes: List[Fields]) -> List[Facts]:
    """Return the partitions, with what their nodes have in total and at most."""
    rows = {}  # type: Dict[str, Facts]
    for fields in partitions[:MAX_PARTITIONS]:
        rows[fields.get("PartitionName", "")] = {
            "name": fields.get("PartitionName", ""),
            "default": fields.get("Default") == "YES",
            "state": fields.get("State", "").lower(),
            "max_time": parse_seconds(fields.get("MaxTime", "")),
            "default_time": parse_seconds(fields.get("DefaultTime", "")),
            "nodes": 0,
            "usable": 0,
            "cpus": 0,
            "memory": 0,
            "gpus": {},
        }
    for fields in nodes:
        for name in fields.get("Partitions", "").split(","):
            if name in rows:
                _add_node(rows[name], fields)
    for row in rows.values():
        row["gpus"] = [dict(gpus, model=model or None) for model, gpus in sorted(row["gpus"].items())]
    return [row for name, row in rows.items() if name]


def _add_node(row: Facts, node: Fields) -> None:
    usable = is_usable(node.get("State", ""))
    row["nodes"] += 1
    row["usable"] += usable
    row["cpus"] = max(row["cpus"], _count(node.get("CPUTot", "")) or 0)
    row["memory"] = max(row["memory"], _count(node.get("RealMemory", "")) or 0)  # MiB
    used = count_used_gpus(node)
    for model, count in parse_gres(node.get("Gres", "")).items():
        gpus = row["gpus"].setdefault(model, {"total": 0, "used": 0, "unusable": 0, "per_node": 0})
        busy = min(count, used.get(model, 0))
        gpus["total"] += count
        gpus["used"] += busy
        gpus["unusable"] += 0 if usable else count - busy
        gpus["per_node"] = max(gpus["per_node"], count)


def is_usable(state: str) -> bool:
    """Return whether a node with a state such as ``IDLE+DRAIN`` or ``MIXED*`` starts new jobs."""
    if state.endswith("*"):
        return False  # does not respond
    return not any(re.sub(r"[^A-Z_]", "", part) in _UNUSABLE for part in state.upper().split("+"))


def parse_gres(text: str) -> Dict[str, int]:
    """Return the number of GPUs per model in text such as ``gpu:a100:4(S:0-1),gpu:2``. The model may be empty."""
    counts = {}  # type: Dict[str, int]
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        match = _GRES.match(part.strip())
        if match:
            counts[match.group(1) or ""] = counts.get(match.group(1) or "", 0) + int(match.group(2))
    return counts


def count_used_gpus(node: Fields) -> Dict[str, int]:
    """Return the number of allocated GPUs per model, from AllocTRES if Slurm tracks GPUs there."""
    models = list(parse_gres(node.get("Gres", "")))
    matches = [_TRES.match(part) for part in node.get("AllocTRES", "").split(",")]
    counts = {match.group(1) or "": int(match.group(2)) for match in matches if match}
    if len(models) == 1 and "" in counts:
        return {models[0]: counts[""]}
    if set(models) & set(counts) or (not counts and "gres/gpu" in node.get("CfgTRES", "")):
        return counts
    return parse_gres(node.get("GresUsed", ""))


def parse_seconds(text: str) -> Optional[int]:
    """Return the seconds of a time such as ``1-00:00:00``; None for UNLIMITED, NONE, and INFINITE."""
    match = re.match(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-9]{1,2})(?::([0-9]{1,2}))?\Z", text)
    if not match:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    hours, minutes, seconds = (first, second, third) if third is not None or days is not None else (0, first, second)
    return (((days or 0) * 24 + (hours or 0)) * 60 + (minutes or 0)) * 60 + (seconds or 0)


def _count(text: str) -> Optional[int]:
    match = re.match(r"[0-9]{1,12}", text)
    return int(match.group()) if match else None


def find_file_system(path: str, mounts: str = "/proc/self/mountinfo") -> Optional[str]:
    """Return the type of the file system that contains ``path``, such as ``nfs4``; None if it is not known."""
    path = os.path.realpath(path)
    best, kind = "", None
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                fields = before.split(" ")
                if len(fields) < 5 or not after:
                    continue
                point = fields[4].replace("\\040", " ")
                if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
                    best, kind = point, after.split(" ")[0]
    except OSError:
        return None
    return kind
