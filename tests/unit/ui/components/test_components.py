"""What stands in a page when there is very much to show: few elements, and a way to the rest."""

from __future__ import annotations

import asyncio

import pytest
from nicegui import ui
from nicegui.client import Client
from nicegui.page import page

from mlworkbench.ui.answers.compare import Comparison
from mlworkbench.ui.pages.compare import Differing
from mlworkbench.ui.pages.run import page as run_page
from mlworkbench.ui.parts.comparecharts import Spread
from mlworkbench.ui.parts.facts import table
from mlworkbench.ui.parts.filelist import FileList, Row
from mlworkbench.ui.parts.sheet import DiffLines, Sheet


@pytest.fixture
def client():
    with Client(page("/x")) as made:
        yield made


def compared(names: int, runs: int) -> Comparison:
    metrics = {f"metric/{at:05}": [str(at + run) for run in range(runs)] for at in range(names)}
    told = [{"id": f"run-{at}", "name": ""} for at in range(runs)]
    numbers = {f"metrics.{name}": [float(one) for one in values] for name, values in metrics.items()}
    return Comparison(told, {"metrics": metrics}, [], {}, numbers, {})


def found(client: Client, kind: type) -> list:
    return [one for one in client.elements.values() if isinstance(one, kind)]


@pytest.mark.parametrize("runs", [2, 500], ids=["side by side", "below each other"])
def test_ten_thousand_metrics_that_differ(client, runs):
    before = len(client.elements)
    Differing(compared(10_000, runs), "metrics").build()
    assert len(client.elements) - before < 20
    (sheet,) = found(client, Sheet)
    assert sum(map(len, sheet._props["rows"])) <= 15_000
    (search,) = found(client, ui.input)
    (more,) = [one for one in found(client, ui.label) if "more" in one.text]
    assert more.text.endswith("more; search to find them") and more.visible
    search.set_value("METRIC/0999")
    names = {cell for row in [[one for one, _ in sheet._props["head"]], *sheet._props["rows"]] for cell in row}
    assert {f"metric/0999{at}" for at in range(10)} <= names and "metric/00001" not in names
    assert not more.visible


def test_ten_thousand_metrics_to_draw(client):
    Spread(compared(10_000, 2)).build()
    axis = found(client, ui.select)[0]
    assert len(axis.options) <= 201
    found(client, ui.input)[0].set_value("09998")
    assert "metrics.metric/09998" in axis.options and axis.value in axis.options


def test_a_table_of_words_is_drawn_by_the_browser(client):
    before = len(client.elements)
    table(["a"] * 50, (["<b>x</b>"] * 50 for _ in range(200)), "many")
    assert len(client.elements) - before == 1
    table(["a"], [[lambda: ui.label("x")]], "few")
    assert len(client.elements) - before > 3


def test_a_difference_has_an_end(client):
    shown = DiffLines("x", ["+a\x1b\tb"] * 10_000)._props
    assert (shown["lines"][0], len(shown["lines"]), shown["more"]) == ("+a^[\tb", 4000, 6000)
    shown = DiffLines("x", ["+" + "y" * 100_000] * 4000)._props
    assert sum(map(len, shown["lines"])) < 1_010_000 and shown["more"] > 3000


def test_only_files_that_are_listed_can_be_chosen(client):
    chosen = []

    async def then(path: str) -> None:
        chosen.append(path)

    files = FileList(then)
    odd = "\udcff.txt"  # no browser can be told this name
    files.show([Row("a", "a", "folder", ""), Row(odd, "?.txt", "description", "1 B")], odd)
    assert files._props["chosen"] == 1 and odd not in str(files._props["rows"])
    for at in (1, 2, -1, "1", None, {}):
        asyncio.run(files._chosen(type("Event", (), {"args": at})()))
    assert chosen == [odd]


def test_a_tab_that_was_left_is_not_made_any_more(client, monkeypatch):
    made, come = [], asyncio.Event()

    async def slow(_context: object) -> None:
        await come.wait()
        made.append("slow")
        ui.label("slow")

    async def quick(_context: object) -> None:
        made.append("quick")
        ui.label("quick")

    monkeypatch.setattr(run_page, "_TABS", {"slow": ("", slow), "quick": ("", quick)})
    shown = run_page.RunPage.__new__(run_page.RunPage)
    shown._build, shown._context = None, type("Context", (), {"values": {}})()
    shown._body = ui.element("div")

    async def walk() -> None:
        shown._tab = "slow"
        first = asyncio.create_task(shown._draw_body())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        shown._tab = "quick"
        await shown._draw_body()
        come.set()
        await first

    asyncio.run(walk())
    assert made == ["quick"]
    assert [one.text for one in shown._body.descendants() if isinstance(one, ui.label)] == ["quick"]
