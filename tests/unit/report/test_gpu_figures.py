"""The figures of each GPU on the page of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlworkbench.model import Run
from mlworkbench.report.gpu_figures import gpu_lines
from tests.unit.test_plan import PARTS, plan

GIB = 1 << 30


def lines(gpus):
    return gpu_lines(replace(Run(plan(PARTS, "run-1", "k", 0)), gpu={"used": "yes", "gpus": gpus}))


def test_each_of_several_gpus_has_a_line():
    used = {"index": 0, "mean_utilisation": 91.4, "peak_memory": 71 * GIB, "energy_wh": 41.2}
    used["pids"] = {"7": {"rank": 1}, "8": {"rank": 0}}
    idle = {"index": 1, "mean_utilisation": 0.0, "peak_memory": None, "pids": {}}
    assert lines([used, idle]) == [
        ("GPU 0", "91 % of the time, peak 71 GiB, 41.20 Wh, ranks 0-1"),
        ("GPU 1", "not used, 0 % of the time"),
    ]
    assert lines([used]) == [], "the verdict contains the figures of a single GPU"


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [7], {"a": []}, float("nan"), True, "\x1b[31m"])
def test_malformed_data(odd):
    assert lines(odd) == []
    names = ("index", "mean_utilisation", "peak_memory", "energy_wh", "pids")
    shown = lines([dict.fromkeys(names, odd), {"pids": {"1": odd, "2": {"rank": odd}}}])
    assert len(shown) == 2 and "\x1b" not in str(shown)
