"""GPU requests, selection, and lease holders."""

from __future__ import annotations

import pytest

from mlworkbench.remote.gpus.abstract_sockets import AbstractSocket
from mlworkbench.remote.gpus.gpu_selection import GpuUnavailable, describe_use, find_candidates, pick_gpus
from mlworkbench.remote.gpus.lease_sockets import match_holders
from mlworkbench.remote.shared.gpu_request import ALL, COUNT, FREE, LIST, NONE, Request, parse

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("1", Request(COUNT, 1)),
        (" 2 ", Request(COUNT, 2)),
        ("all", Request(ALL)),
        ("ALL", Request(ALL)),
        ("free", Request(FREE)),
        ("none", Request(NONE)),
        ("0,2", Request(LIST, ids=("0", "2"))),
        ("0,", Request(LIST, ids=("0",))),
        ("GPU-1f2e", Request(LIST, ids=("GPU-1f2e",))),
        ("GPU-1f2e,GPU-00aa", Request(LIST, ids=("GPU-1f2e", "GPU-00aa"))),
        ("h200", Request(COUNT, model="h200")),
        ("Tesla K80", Request(COUNT, model="Tesla K80")),
        ("40g", Request(COUNT, min_memory=40 * GIB)),
        ("1:40GB", Request(COUNT, 1, min_memory=40 * GIB)),
        ("2:h200:1.5t", Request(COUNT, 2, min_memory=1536 * GIB, model="h200")),
        ("a100:2", Request(COUNT, 2, model="a100")),
        ("all:512m", Request(ALL, min_memory=512 * 1024**2)),
    ],
)
def test_requests(text, request_):
    assert parse(text) == request_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("0", "use none for no GPU"),
        ("9999", "too many"),
        ("1:2", "twice"),
        ("all:none", "twice"),
        ("none:40g", "condition"),
        ("0,1:40g", "condition"),
        ("0,0", "twice"),
        ("0,x", "neither"),
        (",", "no GPU specified"),
        ("-1", "not a valid GPU request"),
        ("1:$(rm)", "not a valid GPU request"),
        ("MIG-1234", "not a valid GPU request"),
        ("GPU-a b", "neither"),
    ],
)
def test_invalid_requests(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def gpu(index, **more):
    facts = {"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H200", "memory_total": 140 * GIB, "error": None}
    return {**facts, "memory_used": 0, "processes": [], **more}


TWO = {"gpus": [gpu(0), gpu(1)], "problem": None}


@pytest.mark.parametrize(
    ("text", "inventory", "message"),
    [
        ("1", {"gpus": [], "problem": "the NVIDIA driver is not loaded"}, "no usable GPU: the NVIDIA driver"),
        ("3", TWO, "cannot provide 3 GPUs; it has 2 GPUs: 0 NVIDIA H200"),
        ("0,7", TWO, "no GPU 7; it has 2 GPUs"),
        ("GPU-zzzz", TWO, "no GPU GPU-zzzz"),
        ("a100", TWO, r"cannot provide 1 GPU \(a100\)"),
        ("1:200g", TWO, "at least 200 GiB"),
        ("2", {"gpus": [gpu(0), gpu(1, error="it must be reset")], "problem": None}, "GPU 1: it must be reset"),
        ("0,1", {"gpus": [gpu(0), gpu(1, uuid=None, error="lost")], "problem": None}, "GPU 1: lost"),
        ("all", {"gpus": [gpu(0, error="lost")], "problem": None}, "GPU 0: lost"),
    ],
)
def test_requests_that_can_never_be_fulfilled(text, inventory, message):
    with pytest.raises(GpuUnavailable, match=message):
        find_candidates(parse(text), inventory)


@pytest.mark.parametrize(
    ("text", "taken", "reserved", "uuids", "reason"),
    [
        ("1", {}, {}, ["GPU-0"], None),
        ("1", {"GPU-0": "held by run a"}, {}, ["GPU-1"], None),
        ("2", {"GPU-0": "held by run a"}, {}, [], "GPU 0 held by run a"),
        ("all", {"GPU-1": "held by run a"}, {}, [], "GPU 1 held by run a"),
        ("free", {"GPU-1": "held by run a"}, {}, ["GPU-0"], None),
        (
            "free",
            {"GPU-0": "held by run a", "GPU-1": "held by run b"},
            {},
            [],
            "GPU 0 held by run a; GPU 1 held by run b",
        ),
        ("free", {}, {}, ["GPU-0", "GPU-1"], None),
        ("1,", {"GPU-0": "x"}, {}, ["GPU-1"], None),
        ("0,", {"GPU-0": "held by run a"}, {}, [], "GPU 0 held by run a"),
        ("1", {"GPU-0": "held by run a"}, {"GPU-1": "is for run b"}, [], "GPU 0 held by run a; GPU 1 is for run b"),
        ("h200", {"GPU-0": "held by run a", "GPU-1": "held by run a"}, {}, [], "GPU 0, 1 held by run a"),
    ],
)
def test_pick_gpus(text, taken, reserved, uuids, reason):
    request = parse(text)
    assert pick_gpus(request, find_candidates(request, TWO), taken, reserved) == (uuids, reason)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, None),
        ({"processes": None}, None),
        ({"memory_used": None, "memory_total": None}, None),
        ({"processes": [{"pid": 7, "memory": 5, "kind": "compute"}]}, "used by process 7"),
        (
            {"processes": [{"pid": 7, "kind": "compute", "name": "train.py", "user": "bob"}]},
            "used by process 7 (train.py, user bob)",
        ),
        ({"processes": [{"pid": 7, "memory": 20 * GIB, "kind": "graphics"}], "memory_used": 21 * GIB}, None),
        ({"memory_used": 7 * GIB}, None),  # 5 % of its memory
        ({"memory_used": 14 * GIB}, "used by unknown processes: 10 % of its memory is in use"),
    ],
)
def test_graphics_does_not_count_as_use(facts, why):
    assert describe_use(gpu(0, **facts)) == why


def test_labels_of_other_users_are_ignored():
    names = [
        ("GPU-a", 1001),
        ("GPU-a/0/demo-swift", 1001),  # the user ID in the label is ignored: the holder can write any number
        ("GPU-a/1001/other", 1002),
        ("GPU-b", 1003),
        ("GPU-b/1003/\x1b[31mbad", 1003),
        ("GPU-c/1002/label-only", 1002),
        ("GPU-\x1b[31m", 1002),
        ("", 1002),
    ]
    holders = match_holders([AbstractSocket(f"mlw-gpu-{name}", uid, 0) for name, uid in names])
    assert {uuid: (holder.uid, holder.run, holder.verified) for uuid, holder in holders.items()} == {
        "GPU-a": (1001, "demo-swift", True),
        "GPU-b": (1003, None, True),
    }


def test_an_old_kernel_reports_no_owners():
    names = ("GPU-a", "GPU-a/1001/demo-swift", "GPU-b")
    holders = match_holders([AbstractSocket(f"mlw-gpu-{name}", None, 0) for name in names])
    assert {uuid: (holder.uid, holder.run, holder.verified) for uuid, holder in holders.items()} == {
        "GPU-a": (1001, "demo-swift", False),
        "GPU-b": (None, None, False),
    }
