"""External input is accepted or rejected with an error message. This campaign is short; `make fuzz` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import CRASHES, Surface, attempt, run
from tests.fuzz.surfaces import SURFACES

SEED, CASES = 17, 4000  # CASES is the total for all surfaces, which takes a few seconds
_TOTAL = sum(one.share for one in SURFACES)
_BY_NAME = {one.name: one for one in SURFACES}


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
def test_every_case_ends_in_a_sentence(surface: Surface, tmp_path: Path) -> None:
    outcome = run(surface, SEED, range(int(CASES * surface.share / _TOTAL)), tmp_path)
    assert [f"{finding.place}: {finding.error} ({finding.case[:80]!r})" for finding in outcome.findings.values()] == []
    assert outcome.cases > 5


@pytest.mark.parametrize("path", sorted(CRASHES.glob("*-*")), ids=lambda path: path.name)
def test_what_once_crashed(path: Path, tmp_path: Path) -> None:
    """Run an input on which an earlier campaign crashed. Its file name starts with the name of the surface."""
    surface = _BY_NAME[path.name.rpartition("-")[0]]
    finding = attempt(surface, path.read_bytes(), tmp_path)
    assert isinstance(finding, bool), finding


def test_a_reader_that_crashes_is_found(tmp_path: Path) -> None:
    """The campaign reports the exceptions of a reader that does not validate its input."""
    import json

    blind = Surface(
        "blind", [{"a": [1, 2]}], lambda case, folder: json.loads(case)["a"][1], expected=(ZeroDivisionError,)
    )
    kinds = {finding.error.partition(":")[0] for finding in run(blind, SEED, range(300), tmp_path).findings.values()}
    assert {"KeyError", "IndexError", "TypeError", "JSONDecodeError"} <= kinds
