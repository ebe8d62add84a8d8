"""The line about files outside of outputs/, whose names come from the script."""

from __future__ import annotations

import yaml

from mlworkbench.model import Run
from mlworkbench.report.output_locations import describe_unkept
from tests.unit.history.test_store import spec


def line_for(*names: str) -> str | None:
    return describe_unkept(Run(spec(0), unkept=names))


def suggested(line: str | None) -> dict[str, list[str]]:
    assert line
    return yaml.safe_load(line.split("runconfig: ", 1)[1])


def test_names_and_the_key_that_collects_them():
    assert line_for() is None
    file = f"aml_config/{spec(0).runconfig}.runconfig"
    assert line_for("wandb/") == f"wandb/; to collect it, add to {file}: Keep: [wandb/]"
    line = line_for(*(f"f{number}" for number in range(7)))
    assert line and line.startswith("f0, f1, f2, f3, f4, and 2 more; to collect them")
    assert suggested(line) == {"Keep": ["f0", "f1", "f2", "f3", "f4"]}


def test_hostile_name_stays_in_quotes():
    names = ['x], "Target": [y', "a b", "'", '"', "#", "null: 1", "- x"][:5]
    assert suggested(line_for(*names)) == {"Keep": names}
    line = line_for("\x1b[31mred\nGpus: all")
    assert line and "\x1b" not in line and "\n" not in line
