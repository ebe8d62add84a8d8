"""Components with very many entries create few elements and offer a search for the rest."""

from __future__ import annotations

import asyncio

import pytest
from nicegui import ui
from nicegui.client import Client
from nicegui.page import page

from mlworkbench.ui.components.compare_charts import ScatterPlot
from mlworkbench.ui.components.file_list import FileList, Row
from mlworkbench.ui.components.property_list import table
from mlworkbench.ui.components.text_table import DiffLines, TextTable
from mlworkbench.ui.pages.compare import DifferenceTable
from mlworkbench.ui.pages.run import page as run_page
from mlworkbench.ui.queries.compare import Comparison


@pytest.fixture
def client():
    with Client(page("/x")) as client:
        yield client


def build_comparison(names: int, runs: int) -> Comparison:
    metrics = {f"metric/{index:05}": [str(index + run) for run in range(runs)] for index in range(names)}
    rows = [{"id": f"run-{index}", "name": ""} for index in range(runs)]
    numbers = {f"metrics.{name}": [float(value) for value in values] for name, values in metrics.items()}
    return Comparison(rows, {"metrics": metrics}, [], {}, numbers, {})


def find_elements(client: Client, kind: type) -> list:
    return [element for element in client.elements.values() if isinstance(element, kind)]


@pytest.mark.parametrize("runs", [2, 500], ids=["side by side", "below each other"])
def test_difference_table_with_ten_thousand_metrics(client, runs):
    before = len(client.elements)
    DifferenceTable(build_comparison(10_000, runs), "metrics").build()
    assert len(client.elements) - before < 20
    (text_table,) = find_elements(client, TextTable)
    assert sum(map(len, text_table._props["rows"])) <= 15_000
    (search,) = find_elements(client, ui.input)
    (more,) = [item for item in find_elements(client, ui.label) if "more" in item.text]
    assert more.text.endswith("more; search to find them") and more.visible
    search.set_value("METRIC/0999")
    names = {
        cell for row in [[item for item, _ in text_table._props["head"]], *text_table._props["rows"]] for cell in row
    }
    assert {f"metric/0999{at}" for at in range(10)} <= names and "metric/00001" not in names
    assert not more.visible


def test_scatter_plot_with_ten_thousand_metrics(client):
    ScatterPlot(build_comparison(10_000, 2)).build()
    axis = find_elements(client, ui.select)[0]
    assert len(axis.options) <= 201
    find_elements(client, ui.input)[0].set_value("09998")
    assert "metrics.metric/09998" in axis.options and axis.value in axis.options


def test_text_table_is_rendered_by_the_browser(client):
    before = len(client.elements)
    table(["a"] * 50, (["<b>x</b>"] * 50 for _ in range(200)), "many")
    assert len(client.elements) - before == 1
    table(["a"], [[lambda: ui.label("x")]], "few")
    assert len(client.elements) - before > 3


def test_diff_is_truncated(client):
    shown = DiffLines("x", ["+a\x1b\tb"] * 10_000)._props
    assert (shown["lines"][0], len(shown["lines"]), shown["more"]) == ("+a^[\tb", 4000, 6000)
    shown = DiffLines("x", ["+" + "y" * 100_000] * 4000)._props
    assert sum(map(len, shown["lines"])) < 1_010_000 and shown["more"] > 3000


def test_only_listed_files_can_be_selected(client):
    selected = []

    async def then(path: str) -> None:
        selected.append(path)

    files = FileList(then)
    odd = "\udcff.txt"  # this name cannot be encoded as UTF-8
    files.show([Row("a", "a", "folder", ""), Row(odd, "?.txt", "description", "1 B")], odd)
    assert files._props["chosen"] == 1 and odd not in str(files._props["rows"])
    for index in (1, 2, -1, "1", None, {}):
        asyncio.run(files._handle_choose(type("Event", (), {"args": index})()))
    assert selected == [odd]


def test_leaving_a_tab_cancels_its_build(client, monkeypatch):
    built, event = [], asyncio.Event()

    async def slow(_context: object) -> None:
        await event.wait()
        built.append("slow")
        ui.label("slow")

    async def quick(_context: object) -> None:
        built.append("quick")
        ui.label("quick")

    monkeypatch.setattr(run_page, "_TABS", {"slow": ("", slow), "quick": ("", quick)})
    run_page_view = run_page.RunPage.__new__(run_page.RunPage)
    run_page_view._build_task, run_page_view._context = None, type("Context", (), {"values": {}})()
    run_page_view._body = ui.element("div")

    async def walk() -> None:
        run_page_view._tab = "slow"
        first = asyncio.create_task(run_page_view._draw_body())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        run_page_view._tab = "quick"
        await run_page_view._draw_body()
        event.set()
        await first

    asyncio.run(walk())
    assert built == ["quick"]
    assert [element.text for element in run_page_view._body.descendants() if isinstance(element, ui.label)] == ["quick"]
