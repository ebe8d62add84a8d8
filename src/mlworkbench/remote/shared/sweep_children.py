"""The spec of a child of a sweep as it travels: what differs from its parent's."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]  # a spec, or a part of one


def difference(parent: Data, child: Data) -> Data:
    """What of the child's spec is not its parent's; of mappings, the entries that differ."""
    found: Data = {}
    for name, value in child.items():
        mine = parent.get(name)
        if value == mine:
            continue
        if isinstance(value, dict) and isinstance(mine, dict) and not mine.keys() - value.keys():
            value = {"+": {key: one for key, one in value.items() if key not in mine or mine[key] != one}}
        else:
            value = {"=": value}
        found[name] = value
    return found


def merged(parent: Data, change: Data) -> Data:
    """The child's spec again."""
    child = dict(parent)
    for name, value in change.items():
        child[name] = value["="] if "=" in value else dict(parent[name], **value["+"])
    return child
