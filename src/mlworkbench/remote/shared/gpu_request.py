"""GPU requests: ``2``, ``all``, ``none``, ``0,2``, UUIDs, a model, or a minimum amount of memory.

Client and target use this module. Parts are joined by colons in any order: ``2:h200:40g`` requests
two GPUs with H200 in their name and at least 40 GiB each.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

COUNT, ALL, NONE, LIST, FREE = "count", "all", "none", "list", "free"
EXAMPLES = "2, all, none, 0,2 (indexes), UUIDs, h200, or 1:40g (one GPU with at least 40 GiB)"
MAX_GPUS = 1024

_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([mgt])i?b?\Z", re.IGNORECASE)
_UNITS = {"m": 1024**2, "g": 1024**3, "t": 1024**4}
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{4,60}\Z")
_MODEL = re.compile(r"[A-Za-z][A-Za-z0-9 _.+-]{0,60}\Z")


class Request:
    """A parsed request. ``kind`` is count, all, none, list, or free (all free GPUs, at least one)."""

    def __init__(
        self,
        kind: str,
        count: int = 1,
        ids: Tuple[str, ...] = (),
        min_memory: Optional[int] = None,
        model: Optional[str] = None,
    ) -> None:
        self.kind = kind
        self.count = count
        self.ids = ids
        self.min_memory = min_memory
        self.model = model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return "Request(%s)" % ", ".join("%s=%r" % pair for pair in vars(self).items())

    def __str__(self) -> str:
        """Return a description for users: ``2 GPUs (H200, at least 40 GiB)``."""
        what = {
            ALL: "all GPUs",
            NONE: "no GPU",
            FREE: "all free GPUs",
            LIST: "GPU " + ", ".join(self.ids),
            COUNT: "%d GPU%s" % (self.count, "" if self.count == 1 else "s"),
        }[self.kind]
        conditions = [self.model] if self.model else []
        if self.min_memory:
            conditions.append("at least %g GiB" % round(self.min_memory / 1024**3, 2))
        return what + (" (%s)" % ", ".join(conditions) if conditions else "")

    def fits(self, gpu: Dict[str, Any]) -> bool:
        """Return whether the GPU matches this request, regardless of its current use."""
        if self.kind == LIST:
            return str(gpu.get("index")) in self.ids or gpu.get("uuid") in self.ids
        if self.min_memory and (gpu.get("memory_total") or 0) < self.min_memory * _MEMORY_TOLERANCE:
            return False
        return not self.model or _normalize(self.model) in _normalize(gpu.get("name") or "")


# An "80 GB" GPU reports slightly less than 80 GiB of memory.
_MEMORY_TOLERANCE = 0.92


def parse(text: str) -> Request:
    """Parse a GPU request. Raise ValueError with a message for users if it is invalid."""
    request = text.strip()
    if not request:
        raise ValueError("the GPU request is empty")
    fields: Dict[str, Any] = {}
    for part in request.split(":"):
        for name, value in _parse_part(part.strip(), request):
            if name in fields:
                raise ValueError("%s contains the same kind of condition twice" % request)
            fields[name] = value
    kind = fields.pop("kind", COUNT)
    if kind in (LIST, NONE) and ("model" in fields or "min_memory" in fields):
        raise ValueError("%s: a list of GPUs, or none, cannot have conditions" % request)
    return Request(kind, **fields)


def _parse_part(part: str, request: str) -> List[Tuple[str, Any]]:
    lowered = part.lower()
    if lowered in (ALL, NONE, FREE):
        return [("kind", lowered)]
    if part.isascii() and part.isdigit():
        if not 0 < int(part) <= MAX_GPUS:
            hint = "use none for no GPU, or 0, (with a comma) for the first GPU" if int(part) == 0 else "too many"
            raise ValueError("%s is not a valid number of GPUs: %s" % (part, hint))
        return [("kind", COUNT), ("count", int(part))]
    if "," in part or part.startswith("GPU-"):
        return [("kind", LIST), ("ids", _parse_ids(part))]
    memory = _MEMORY.match(part)
    if memory:
        return [("min_memory", int(float(memory.group(1)) * _UNITS[memory.group(2).lower()]))]
    if _MODEL.match(part) and not lowered.startswith("mig-"):
        return [("model", part)]
    raise ValueError("%s is not a valid GPU request" % request)


def _parse_ids(part: str) -> Tuple[str, ...]:
    ids = [gpu_id.strip() for gpu_id in part.split(",") if gpu_id.strip()]
    for gpu_id in ids:
        if not (gpu_id.isascii() and gpu_id.isdigit() and int(gpu_id) < MAX_GPUS) and not _UUID.match(gpu_id):
            raise ValueError("%s is neither a GPU index nor a GPU UUID" % gpu_id)
    if not ids:
        raise ValueError("no GPU specified")
    if len(set(ids)) != len(ids):
        raise ValueError("%s lists a GPU twice" % part)
    return tuple(str(int(gpu_id)) if gpu_id.isdigit() else gpu_id for gpu_id in ids)


def _normalize(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
