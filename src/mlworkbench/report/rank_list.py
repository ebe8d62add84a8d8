"""Ranks of a run for display: the processes that a launcher such as torchrun started, and how each ended."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ..model import JsonDict, Run
from ..remote.shared.process_launchers import format_ranks
from ..sanitize import plain

_MAX_LINES = 20


def rank_records(run: Run) -> list[JsonDict]:
    """Return the ranks of the last attempt, for programs."""
    return [dict(rank) for rank in run.ranks]


def rank_lines(ranks: Sequence[JsonDict]) -> list[str]:
    """Return one line for all ranks of a host that ended the same way, such as ``ranks 0-1, 3 on gpu1: exit 0``."""
    groups: dict[tuple[str, str], list[JsonDict]] = {}
    for rank in ranks:
        groups.setdefault((plain(str(rank.get("host") or ""), 100), _outcome(rank)), []).append(rank)
    lines = [_describe(host, outcome, members) for (host, outcome), members in groups.items()]
    return lines if len(lines) <= _MAX_LINES else [*lines[: _MAX_LINES - 1], "…"]


def rank_pairs(run: Run) -> list[tuple[str, str]]:
    """Return the lines for a page."""
    return [("" if number else "Ranks", line) for number, line in enumerate(rank_lines(run.ranks))]


def _describe(host: str, outcome: str, ranks: list[JsonDict]) -> str:
    where = f" on {host}" if host else ""
    pid = ranks[0].get("pid") if len(ranks) == 1 else None
    return f"{format_ranks([rank['rank'] for rank in ranks])}{where}: {outcome}" + (f" (PID {pid})" if pid else "")


def _outcome(rank: JsonDict) -> str:
    code, number = rank.get("exit"), rank.get("signal")
    if number is None:
        return "exit status unknown" if code is None else f"exit {code}"
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
