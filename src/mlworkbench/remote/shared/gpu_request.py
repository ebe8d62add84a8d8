"""What a run asks for: ``2``, ``all``, ``none``, ``0,2``, UUIDs, a model, a least memory. Pure; both ends read it.

Parts are joined by colons, in any order: ``2:h200:40g`` is two GPUs with H200 in their name and 40 GiB at least.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

COUNT, ALL, NONE, LIST, FREE = "count", "all", "none", "list", "free"
EXAMPLES = "2, all, none, 0,2 (indexes), UUIDs, h200, or 1:40g (one GPU with at least 40 GiB)"
MOST = 1024

_MEMORY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([mgt])i?b?\Z", re.IGNORECASE)
_UNITS = {"m": 1024**2, "g": 1024**3, "t": 1024**4}
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{4,60}\Z")
_MODEL = re.compile(r"[A-Za-z][A-Za-z0-9 _.+-]{0,60}\Z")


class Request:
    """``kind``: count, all, none, list, or free (all that are free now, at least one)."""

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
        """For people: ``2 GPUs (H200, at least 40 GiB)``."""
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
        """Whether a GPU is one that this request may get, if nobody else has it."""
        if self.kind == LIST:
            return str(gpu.get("index")) in self.ids or gpu.get("uuid") in self.ids
        if self.min_memory and (gpu.get("memory_total") or 0) < self.min_memory * _NEARLY:
            return False
        return not self.model or _plain(self.model) in _plain(gpu.get("name") or "")


# A card of "80 GB" tells a little less than 80 GiB of memory.
_NEARLY = 0.92


def parse(text: str) -> Request:
    """The request that a text stands for; raises ValueError with a sentence for people."""
    words = text.strip()
    if not words:
        raise ValueError("the GPU request is empty")
    found: Dict[str, Any] = {}
    for part in words.split(":"):
        for name, value in _part(part.strip(), words):
            if name in found:
                raise ValueError("%s contains the same kind of condition twice" % words)
            found[name] = value
    kind = found.pop("kind", COUNT)
    if kind in (LIST, NONE) and ("model" in found or "min_memory" in found):
        raise ValueError("%s: a list of GPUs, or none, cannot have conditions" % words)
    return Request(kind, **found)


def _part(part: str, words: str) -> List[Tuple[str, Any]]:
    low = part.lower()
    if low in (ALL, NONE, FREE):
        return [("kind", low)]
    if part.isascii() and part.isdigit():
        if not 0 < int(part) <= MOST:
            hint = "use none for no GPU, or 0, (with a comma) for the first GPU" if int(part) == 0 else "too many"
            raise ValueError("%s is not a valid number of GPUs: %s" % (part, hint))
        return [("kind", COUNT), ("count", int(part))]
    if "," in part or part.startswith("GPU-"):
        return [("kind", LIST), ("ids", _ids(part))]
    memory = _MEMORY.match(part)
    if memory:
        return [("min_memory", int(float(memory.group(1)) * _UNITS[memory.group(2).lower()]))]
    if _MODEL.match(part) and not low.startswith("mig-"):
        return [("model", part)]
    raise ValueError("%s is not a valid GPU request" % words)


def _ids(part: str) -> Tuple[str, ...]:
    ids = [one.strip() for one in part.split(",") if one.strip()]
    for one in ids:
        if not (one.isascii() and one.isdigit() and int(one) < MOST) and not _UUID.match(one):
            raise ValueError("%s is neither a GPU index nor a GPU UUID" % one)
    if not ids:
        raise ValueError("no GPU specified")
    if len(set(ids)) != len(ids):
        raise ValueError("%s lists a GPU twice" % part)
    return tuple(str(int(one)) if one.isdigit() else one for one in ids)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
