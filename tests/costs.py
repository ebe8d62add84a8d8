"""Record the cost of each test with `--costs FILE`: CPU seconds of all its processes, and elapsed time.

Each test process gets a control group, which its children inherit (`python -m tests` removes it). Engines and
containers have separate groups.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.sandbox import Sandbox

_V1, _V2 = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", metavar="FILE", help="add a line for each test: name, processor seconds, seconds")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--costs")
    if file and (os.environ.get("PYTEST_XDIST_WORKER") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Costs(Path(file)))


class Costs:
    """pytest plugin that measures the tests of this process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._group = (_V1 if _V1.is_dir() else _V2) / f"mlw-costs-{uuid.uuid4().hex[:8]}"
        self._group.mkdir()
        self._latest: dict[Path, float] = {}
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        processor, clock = self._used(), time.monotonic()
        yield
        with self._file.open("a") as file:
            file.write(f"{item.nodeid}\t{self._used() - processor:.3f}\t{time.monotonic() - clock:.3f}\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self._used()  # the teardown of the last test removes the groups of its engines

    def _used(self) -> float:
        groups = [self._group, *(self._group.parent / cgroup for cgroup in Sandbox.groups)]
        self._latest.update({group: max(_seconds(group), self._latest.get(group, 0.0)) for group in groups})
        return sum(self._latest.values())


def _seconds(group: Path) -> float:
    """Return the CPU seconds of a group and its subgroups, or 0 if the group does not exist yet."""
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    if (group / "cpu.stat").exists():
        fields = (group / "cpu.stat").read_text().split()
        return int(fields[fields.index("usage_usec") + 1]) / 1e6
    return 0.0
