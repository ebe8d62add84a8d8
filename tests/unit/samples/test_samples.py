"""The sample projects are complete, valid, and documented, and their documentation is correct."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest

from mlworkbench.cli.command_tree import mlw
from mlworkbench.config import keys
from mlworkbench.config.gallery import GALLERY, load_samples
from mlworkbench.config.project_folder import Project, create_project
from mlworkbench.config.validation import validate_project
from mlworkbench.remote.inrun.mlworkbench._spark import find
from tests.test_docs import commands

NAMES = [one.name for one in load_samples()]
GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "spark.md"
OLDEST = (3, 8)


@pytest.fixture(params=NAMES)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return create_project("demo", tmp_path, request.param)


def test_the_plainest_comes_first() -> None:
    assert NAMES[0] == "default" and {"mnist-tensorflow", "mnist-pytorch", "mnist-cntk", "mlflow-keras"} < set(NAMES)


def test_what_is_created_is_valid_and_runs_a_script_of_its_own(project: Project) -> None:
    assert validate_project(project) == []
    for name in project.runconfigs():
        (script,) = project.runconfig(name).argument_vector
        assert (project.root / script).is_file()
    files = [path for path in project.root.rglob("*") if path.is_file() and path.suffix not in (".py", ".gz")]
    texts = [path.read_text() for path in files]
    assert not [text for text in texts if re.search(r"__[A-Z_]+__", text)]


def test_every_key_is_explained(project: Project) -> None:
    """Each file contains the keys that have an effect there, set or commented out, and no others."""
    for kind in ("local", "docker"):
        for suffix, table in (("compute", keys.COMPUTE), ("runconfig", keys.RUNCONFIG)):
            text = (project.folder / f"{kind}.{suffix}").read_text()
            for key in table:
                wanted = key.field and (not keys.applies_to(key) or kind in keys.applies_to(key))
                assert bool(re.search(rf"^#?{key.name}:", text, re.MULTILINE)) == bool(wanted), (kind, key.name)


def test_scripts_are_for_every_python_that_they_may_meet(project: Project) -> None:
    packages = (project.folder / "conda_dependencies.yml").read_text()
    (asked,) = re.findall(r"^  - python=3\.(\d+)$", packages, re.MULTILINE)
    oldest = min(OLDEST, (3, int(asked)))
    for path in project.root.glob("*.py"):
        text = path.read_text()
        ast.parse(text, feature_version=oldest)
        assert max(len(line) for line in text.splitlines()) <= 120, path


# -- spark-sweep -------------------------------------------------------------------------------------


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of the sample spark-sweep, imported with a fake pyspark."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(GALLERY / "spark-sweep"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    session = SimpleNamespace(SparkSession=None)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(StorageLevel=None, sql=session))
    monkeypatch.setitem(sys.modules, "pyspark.sql", session)
    import curve  # type: ignore[import-not-found]
    import shards  # type: ignore[import-not-found]
    import sweep as driver  # type: ignore[import-not-found]

    yield SimpleNamespace(curve=curve, shards=shards, driver=driver)
    for name in {"curve", "shards", "sweep"} - before:
        sys.modules.pop(name, None)


def test_sums_of_shards_are_as_good_as_all_the_rows(sweep: SimpleNamespace) -> None:
    frequency, penalty = 1.1, 0.01
    parts = [sweep.shards.make_shard(number, 1000, 7) for number in range(3)]
    learn, judge = sum(sweep.shards.sums(part, frequency) for part in parts)
    weights = sweep.driver.fit(learn, penalty)

    def design(rows: np.ndarray) -> np.ndarray:
        inputs = rows[:, :-1]
        return np.hstack([np.ones((len(rows), 1)), np.sin(frequency * inputs), np.cos(frequency * inputs)])

    known, held_out = np.vstack([part[200:] for part in parts]), np.vstack([part[:200] for part in parts])
    burden = np.eye(len(weights)) * penalty * len(known)
    burden[0, 0] = 0
    whole = np.linalg.solve(design(known).T @ design(known) + burden, design(known).T @ known[:, -1])
    assert np.allclose(weights, whole)
    wrong = design(held_out) @ whole - held_out[:, -1]
    assert sweep.driver.error(judge, weights) == pytest.approx(np.mean(wrong**2))


def test_a_lost_shard_is_made_again_the_same(sweep: SimpleNamespace) -> None:
    first, again, other = (sweep.shards.make_shard(number, 100, 7) for number in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.nbytes == 100 * sweep.shards.BYTES_PER_ROW


def test_the_readme_counts_as_the_script_does(sweep: SimpleNamespace) -> None:
    text = (GALLERY / "spark-sweep" / "readme.md").read_text()
    assert f"{sweep.shards.BYTES_PER_ROW} bytes" in text
    side = 2 * sweep.shards.COLUMNS + 2
    assert f"{side} × {side} sums" in text
    assert sweep.shards.sums(sweep.shards.make_shard(0, 1000, 7), 1.0).shape == (2, side, side)
    for rows, size in re.findall(r"^\| ([\d,]+)[^|]*\| ([\d.]+ [MG]B) ", text, re.MULTILINE):
        number, unit = size.split()
        scale = {"MB": 1e6, "GB": 1e9}[unit]
        counted = int(rows.replace(",", "")) * sweep.shards.BYTES_PER_ROW / scale
        assert float(number) == pytest.approx(counted, abs=0.5 if unit == "MB" else 0.05)


def test_the_plot_has_a_line_for_each_penalty(sweep: SimpleNamespace, tmp_path: Path) -> None:
    found = [{"frequency": f, "penalty": p, "mse": f + p} for f in (0.5, 1.5) for p in (0.1, 1.0, 10.0)]
    sweep.curve.draw(found, tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().count("<polyline") == 3


# -- guide and readme files --------------------------------------------------------------------------


def pages() -> list[Path]:
    return [GUIDE, *(GALLERY / name / "readme.md" for name in NAMES)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: f"{page.parent.name}-{page.name}")
def test_commands_of_the_guide_exist(page: Path) -> None:
    text = re.sub(r"^mlw ", "$ mlw ", page.read_text(), flags=re.MULTILINE)
    found = list(commands(text))
    assert len(found) >= 4
    for words in found:
        command: click.Command | None = mlw
        for word in words:
            if not isinstance(command, click.Group):
                break
            command = command.get_command(click.Context(command), word)
            assert command, f"{page}: mlw {' '.join(words)}"


def test_links_of_the_guide_lead_somewhere() -> None:
    text = GUIDE.read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in re.findall(r"^#+ (.+)$", text, re.M)
    }
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    for link in links:
        assert link[1:] in headings if link.startswith("#") else (GUIDE.parent / link).is_file(), link


def test_the_guide_names_all_places_and_keys() -> None:
    text = GUIDE.read_text()
    for home in find._HOMES:
        assert f"`{home}`" in text
    for key in keys.SPARK_DEPENDENCIES:
        assert f"| `{key.name}` |" in text
