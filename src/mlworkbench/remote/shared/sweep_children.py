"""The spec of a sweep's child run, sent as its difference from the parent's spec."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]  # a spec or part of one


def spec_difference(parent: Data, child: Data) -> Data:
    """Return how a child's spec differs from its parent's. Mappings contain only changed entries."""
    changes: Data = {}
    for name, value in child.items():
        parent_value = parent.get(name)
        if value == parent_value:
            continue
        if isinstance(value, dict) and isinstance(parent_value, dict) and not parent_value.keys() - value.keys():
            value = {
                "+": {key: item for key, item in value.items() if key not in parent_value or parent_value[key] != item}
            }
        else:
            value = {"=": value}
        changes[name] = value
    return changes


def merge_spec(parent: Data, change: Data) -> Data:
    """Return the child's complete spec."""
    child = dict(parent)
    for name, value in change.items():
        child[name] = value["="] if "=" in value else dict(parent[name], **value["+"])
    return child
