"""Foreign bytes end in success or in one sentence. A short, seeded campaign; `make fuzz` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import CRASHES, Surface, attempt, run
from tests.fuzz.surfaces import SURFACES

SEED, CASES = 17, 4000  # of all surfaces together: a few seconds
_TOTAL = sum(one.share for one in SURFACES)
_BY_NAME = {one.name: one for one in SURFACES}


@pytest.mark.parametrize("surface", SURFACES, ids=lambda one: one.name)
def test_every_case_ends_in_a_sentence(surface: Surface, tmp_path: Path) -> None:
    outcome = run(surface, SEED, range(int(CASES * surface.share / _TOTAL)), tmp_path)
    assert [f"{one.place}: {one.error} ({one.case[:80]!r})" for one in outcome.findings.values()] == []
    assert outcome.cases > 5


@pytest.mark.parametrize("path", sorted(CRASHES.glob("*-*")), ids=lambda one: one.name)
def test_what_once_crashed(path: Path, tmp_path: Path) -> None:
    """Inputs that earlier campaigns found, by the name of their surface."""
    surface = _BY_NAME[path.name.rpartition("-")[0]]
    found = attempt(surface, path.read_bytes(), tmp_path)
    assert isinstance(found, bool), found


def test_a_reader_that_crashes_is_found(tmp_path: Path) -> None:
    """The campaign would see it: bytes that are no JSON reach a reader that believes in them."""
    import json

    blind = Surface(
        "blind", [{"a": [1, 2]}], lambda case, folder: json.loads(case)["a"][1], expected=(ZeroDivisionError,)
    )
    kinds = {one.error.partition(":")[0] for one in run(blind, SEED, range(300), tmp_path).findings.values()}
    assert {"KeyError", "IndexError", "TypeError", "JSONDecodeError"} <= kinds
