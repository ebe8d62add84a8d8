"""GPU use by rank, for runs of several processes. Pure functions."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence

    Facts = Dict[str, Any]

UNEVEN_RATIO = 0.5  # a load is uneven if one part is less than this share of another
_NOTABLE_LOAD = 5.0  # percent of a GPU; smaller differences are not worth mentioning


def ranks_of(gpu: Facts) -> List[int]:
    """Return the ranks that opened a GPU; an empty list if they are not known."""
    return sorted(
        {facts["rank"] for facts in (gpu.get("pids") or {}).values() if (facts or {}).get("rank") is not None}
    )


def describe_uneven_ranks(gpus: Sequence[Facts]) -> Optional[str]:
    """Describe ranks that share a GPU but not its load, or return None."""
    for gpu in gpus:
        loads: Dict[int, float] = {}
        for facts in (gpu.get("pids") or {}).values():
            if facts.get("rank") is not None and facts.get("load") is not None:
                loads[facts["rank"]] = loads.get(facts["rank"], 0.0) + facts["load"]
        ordered = sorted((load, rank) for rank, load in loads.items())
        if len(ordered) < 2 or ordered[-1][0] < _NOTABLE_LOAD or ordered[0][0] >= UNEVEN_RATIO * ordered[-1][0]:
            continue
        most, least = ordered[-1], ordered[0]
        text = "the load was uneven: rank %d used %.0f %% of GPU %s, rank %d %.0f %%"
        return text % (most[1], most[0], gpu.get("index"), least[1], least[0])
    return None
