"""Runs in the browser: the grid, actions on selected runs, the jobs pane, and comparison."""

from __future__ import annotations

import http.client
import json
import re
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.history import rows
from mlworkbench.history.rows import ReadPosition
from mlworkbench.history.store import History
from mlworkbench.history.value_index import ValueWriter
from mlworkbench.model import Run, Status
from mlworkbench.paths import UserPaths
from mlworkbench.ui.queries.projects import key_of
from tests.machines.browser import browser_session, ui_server
from tests.machines.network import wait_until
from tests.unit.history.test_store import spec

TRAIN = """
import argparse, base64, os, time
from azureml.logging import get_azureml_logger
log = get_azureml_logger()
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--wait", action="store_true")
lr = parser.parse_args().lr
for step in range(5):
    log.log("loss", 1.0 / (1 + step * lr))
os.makedirs("outputs", exist_ok=True)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
open("outputs/map.png", "wb").write(base64.b64decode(PNG))
while parser.parse_args().wait:
    time.sleep(0.1)
"""


@pytest.fixture
def demo(user):
    root = user.project("demo", train=TRAIN)
    ids = []
    for lr in ("0.5", "0.1"):
        done = user.mlw("submit", "-c", "local", "--name", f"lr {lr}", "train.py", "--lr", lr, cwd=root)
        assert done.code == 0, done
        ids.append(done.run)
        (root / "train.py").write_text(TRAIN + "# changed\n")
    return root, ids


def seed(user, count: int) -> None:
    """Add finished runs of another project to the index, without run folders."""
    history = History(UserPaths(user.store))

    def pour(connection: Any) -> None:
        values = ValueWriter(connection)
        for at in range(count):
            run = replace(spec(at), project_name="<i>many</i>", id=f"many-{at:05}", key=f"many-{at}")
            done = Run(run, status=Status.COMPLETED, started=2000.0, ended=2000.0 + at, metrics={"score": at})
            rows.bulk_insert(connection, rows.encode(done, ReadPosition(), {}), values)
        values.flush()
        rows.recount_account(connection)

    history._database.write(pour)
    history.close()


def row(page, run: str):
    return page.locator(".ag-center-cols-container .ag-row").and_(page.locator(f'[row-id="{run}"]'))


def choose(page, run: str) -> None:
    page.locator(f'.ag-pinned-left-cols-container .ag-row[row-id="{run}"] input[type=checkbox]').check()


def shown(page) -> list[str]:
    """Return the run IDs in the grid from top to bottom."""
    rows = page.locator(".ag-pinned-left-cols-container .ag-row")
    placed = [(int(row.get_attribute("row-index")), row.get_attribute("row-id")) for row in rows.all()]
    return [name for _, name in sorted(placed) if name]


def command(page, name: str):
    return page.get_by_role("toolbar", name="Selected runs").get_by_role("button", name=name, exact=True)


def test_archived_filter_shows_archived_runs(user, demo, tmp_path):
    root, runs = demo
    assert user.mlw("history", "archive", *runs, cwd=root).code == 0
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go("/runs")
        page.get_by_role("checkbox", name="Archived").click()
        page.get_by_text("2 runs", exact=True).wait_for()
        ui.assert_no_errors()


def test_filter_columns_and_actions_on_runs(user, demo, tmp_path):
    root, (first, second) = demo
    failed = user.mlw("submit", "-c", "local", "train.py", "--oops", cwd=root).run
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/p/{key_of(root)}/runs")
        page.get_by_text("3 runs", exact=True).wait_for()
        assert shown(page) == [failed, second, first]
        row(page, failed).get_by_text("Failed (exit 2)").wait_for()
        _narrow(page, failed, second)
        _columns(page, first, second)
        page.reload()
        page.get_by_text("2 runs", exact=True).wait_for()
        wait_until(lambda: shown(page) == [first, second], "the same filter, order and columns after a reload")
        row(page, second).get_by_text("0.714286").wait_for()
        _tag_and_archive(user, page, first)
        _delete(user, page, failed, root)
        _compare(page, first, second)
        _rerun(page, user, second)
        _sweep(page, user, root)
        ui.assert_no_errors()


def _narrow(page, failed: str, second: str) -> None:
    page.get_by_role("button", name="Failed 1").click()
    page.get_by_text("1 run", exact=True).wait_for()
    assert shown(page) == [failed] and "status=Failed" in page.url
    page.get_by_role("button", name="Failed 1").click()
    page.get_by_text("3 runs", exact=True).wait_for()
    where = page.get_by_label("Condition, e.g.")
    where.fill("loss <")
    page.get_by_text(re.compile("expected a number or a quoted string")).wait_for()
    assert page.locator(".mlw-grid[inert]").count() == 1, "rows of another condition are not to be taken for its own"
    page.get_by_text("Filter not applied: invalid condition").wait_for()
    where.fill("los < 3")
    page.get_by_text(re.compile("unknown metric.* 'los' – did you mean 'loss'. – available:.*loss")).wait_for()
    assert page.get_by_text("--where").count() == 0, "it is a field, not an option"
    where.fill("loss < 3")
    page.get_by_text("2 runs", exact=True).wait_for()
    page.get_by_text(re.compile("unknown metric")).wait_for(state="detached")
    assert page.locator(".mlw-grid[inert]").count() == 0
    page.get_by_role("button", name=re.compile("^Failed")).wait_for(state="hidden")  # none of these runs failed
    page.get_by_role("button", name="Completed 2").wait_for()
    page.get_by_label("Search", exact=True).fill("lr 0.1")
    page.get_by_text("1 run", exact=True).wait_for()
    assert shown(page) == [second]
    assert page.get_by_text("mlw history list --text lr --text 0.1 --where 'loss < 3'").count() == 1
    page.get_by_label("Search", exact=True).fill("")
    page.get_by_text("2 runs", exact=True).wait_for()


def _columns(page, first: str, second: str) -> None:
    row(page, first).get_by_text("0.333333").wait_for()  # differing metrics and parameters are shown by default
    usual = ["Run ID", "Status", "Name", "lr", "loss", "Started", "Duration", "Script", "Target", "Arguments"]
    assert headers(page) == usual
    page.get_by_role("button", name="Columns").click()
    dialog = page.get_by_role("dialog", name="Columns")
    dialog.get_by_role("checkbox", name="Script", exact=True).click()
    dialog.get_by_label("Search columns").fill("num")
    dialog.get_by_role("checkbox", name="loss", exact=True).wait_for(state="detached")
    dialog.get_by_role("checkbox", name="Run number", exact=True).click()
    dialog.get_by_role("button", name="Show").click()
    wait_until(lambda: headers(page)[-2:] == ["Arguments", "Run number"], "the chosen columns")
    head = page.locator(".ag-header-cell").filter(has_text="loss")
    head.click()
    wait_until(lambda: shown(page) == [first, second], "the smallest loss above")
    assert "sort=metrics.loss" in page.url and "column=metrics.loss" in page.url


def headers(page) -> list[str]:
    """Return the visible columns from left to right."""
    cells = page.locator(".ag-header-cell[col-id]:not([col-id^=ag-Grid])")
    placed = cells.evaluate_all("all => all.map(one => [Number(one.ariaColIndex), one.innerText.trim()])")
    return [name for _, name in sorted(placed)]


def test_views_are_shared_with_the_command_line(user, demo, tmp_path):
    root, (first, second) = demo
    hostile = "<img src=x onerror=alert(1)>"
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/p/{key_of(root)}/runs?where=loss+%3C+0.5&sort=-metrics.loss&column=status&column=metrics.loss")
        page.get_by_text("1 run", exact=True).wait_for()
        _save_view(page, "low loss")
        page.get_by_text("saved view low loss").wait_for()
        [saved] = json.loads(user.mlw("history", "view", "list", "-o", "json", cwd=root).out)
        assert saved["name"] == "low loss"
        listed = json.loads(user.mlw("history", "list", "--view", "low loss", "-o", "json", cwd=root).out)
        assert [run["run_id"] for run in listed] == [first]
        page.get_by_role("checkbox", name="Archived").click()
        _save_view(page, "low loss")
        page.get_by_role("dialog", name="Replace view low loss?").get_by_role("button", name="Replace").click()
        show = ("history", "view", "show", "low loss", "-o", "json")
        wait_until(lambda: json.loads(user.mlw(*show, cwd=root).out).get("archived"), "the changed view")
        settings = ("--sort=loss", "--where", "loss < 3", "--columns", "status,lr", "-L", "5")
        assert user.mlw("history", "view", "save", hostile, *settings, cwd=root).code == 0
        page.get_by_role("button", name="Views").click()
        page.get_by_role("menuitem", name="low loss").wait_for()
        page.get_by_role("menuitem", name=hostile).get_by_text("Command line only: --limit=5").wait_for()
        page.get_by_role("menuitem", name=hostile).click()
        page.get_by_text("2 runs", exact=True).wait_for()
        wait_until(lambda: shown(page) == [first, second], "the order of the view")
        assert headers(page) == ["Run ID", "Status", "lr", "loss"]
        assert "where=loss+%3C+3" in page.url and "sort=metrics.loss" in page.url
        _manage_views(user, page, root, hostile)
        ui.assert_no_errors()


def _save_view(page, name: str) -> None:
    page.get_by_role("button", name="Views").press("Enter")
    page.get_by_role("menuitem", name="Save view…").press("Enter")
    dialog = page.get_by_role("dialog", name="Save view")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Name").press("Enter")


def _manage_views(user, page, root: Path, hostile: str) -> None:
    """Rename and delete views, and open one that the command line has deleted."""

    def names() -> list[str]:
        return [view["name"] for view in json.loads(user.mlw("history", "view", "list", "-o", "json", cwd=root).out)]

    for action in ("Rename", "Delete"):
        page.get_by_role("button", name="Views").click()
        page.get_by_role("menuitem", name="Rename or delete…").click()
        name = hostile if action == "Rename" else "second"
        page.get_by_role("button", name=f"{action} {name}", exact=True).click()
        dialog = page.get_by_role("dialog", name=f"{action} view {name}")
        if action == "Rename":
            dialog.get_by_label("Name").fill("second")
        dialog.get_by_role("button", name=action).click()
        expected = ["low loss", "second"] if action == "Rename" else ["low loss"]
        wait_until(lambda expected=expected: names() == expected, f"{action} in the browser")
    page.get_by_role("button", name="Views").click()
    page.get_by_role("menuitem", name="low loss").wait_for()
    assert user.mlw("history", "view", "delete", "low loss", cwd=root).code == 0
    page.get_by_role("menuitem", name="low loss").click()
    page.get_by_role("alert").filter(has_text="unknown view 'low loss'").wait_for()


def _tag_and_archive(user, page, first: str) -> None:
    choose(page, first)
    page.get_by_text("1 selected").wait_for()
    command(page, "Tag").click()
    dialog = page.get_by_role("dialog", name=f"Tags of {first}")
    dialog.get_by_label("Add tags").fill("--remove=x")
    dialog.get_by_label("Add tags").press("Enter")
    dialog.get_by_label("Add tags").fill("draft")
    dialog.get_by_role("button", name="Save").click(delay=300)  # a user holds the button down longer than a script
    wait_until(lambda: user.info(first)["tags"] == ["--remove=x", "draft"], "the tags, whatever they look like")
    page.get_by_text("1 selected").wait_for()
    command(page, "Archive").click()
    page.get_by_text("1 run", exact=True).wait_for()
    assert user.info(first)["archived"] is True
    page.get_by_text("0 selected").wait_for()
    page.get_by_role("checkbox", name="Archived").click()
    page.get_by_text("2 runs", exact=True).wait_for()
    choose(page, first)
    command(page, "Unarchive").click()
    page.locator(".mlw-grid-mark", has_text="archived").wait_for(state="detached")
    page.get_by_role("checkbox", name="Archived").click()


def _delete(user, page, failed: str, root: Path) -> None:
    page.goto(page.url.partition("?")[0])
    wait_until(lambda: "Run number" in headers(page) and "Script" not in headers(page), "the columns of the last time")
    place = command(page, "Compare").bounding_box()
    choose(page, failed)
    page.get_by_text("1 selected").wait_for()
    assert command(page, "Compare").bounding_box() == place, "buttons stay where they are"
    command(page, "Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text(failed).first.wait_for()
    dialog.get_by_role("button", name="Delete").click()
    page.get_by_text("2 runs", exact=True).wait_for()
    assert user.mlw("history", "info", failed, cwd=root).code != 0


def _compare(page, first: str, second: str) -> None:
    for run in (first, second):
        choose(page, run)
    page.get_by_text("2 selected").wait_for()
    command(page, "Compare").click()
    page.get_by_role("heading", name="Compare 2 runs").wait_for()
    table = page.get_by_role("region", name="Parameters")
    assert table.locator("tbody tr").all_inner_texts()[0].split() == ["lr", "0.5", "0.1"]
    page.get_by_role("group", name=re.compile("^loss: .*last")).wait_for()
    assert page.get_by_role("img", name=re.compile("Scatter plot: 2 runs")).count() == 1
    wait_until(
        lambda: page.evaluate("[...document.querySelectorAll('.mlw-beside img')].map(i => i.naturalWidth)") == [1, 1],
        "both images",
    )
    page.get_by_role("region", name="Code of").get_by_text("+# changed").wait_for()
    page.get_by_role("button", name=f"Remove {first}").click()
    page.get_by_text("Only one run selected").wait_for()
    assert first not in page.url


def _rerun(page, user, second: str) -> None:
    page.goto(page.url.partition("/compare")[0] + "/runs")
    choose(page, second)
    command(page, "Rerun").click()
    dialog = page.get_by_role("dialog", name=f"Rerun {second}")
    dialog.get_by_text("The code has not changed since this run.").wait_for()
    assert dialog.get_by_label("Arguments").input_value() == "--lr 0.1"
    dialog.get_by_label("Arguments").fill("--lr 0.25")
    dialog.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/demo-"))
    new = page.url.rpartition("/")[2]
    wait_until(lambda: user.info(new)["status"] == "Completed", "the new run")
    assert user.info(new)["arguments"] == ["--lr", "0.25"]


def _sweep(page, user, root: Path) -> None:
    """A sweep links to its child runs, and Compare on a sweep compares them. The pages stay within the project."""
    assert user.mlw("submit", "-c", "local", "--sweep", "lr=0.3,0.4", "train.py", cwd=root).code == 0
    page.goto(page.url.partition("/runs/")[0] + f"/p/{key_of(root)}/runs")
    page.get_by_role("link", name="2 runs", exact=True).click()
    page.get_by_text("Child runs of").wait_for()
    page.get_by_text("2 runs", exact=True).wait_for()
    sweep = page.url.partition("parent=")[2].partition("&")[0]
    page.get_by_role("button", name="Select all").click()
    page.get_by_text("2 selected").wait_for()
    page.get_by_role("button", name=f"Remove filter: child runs of {sweep}").click()
    page.get_by_text("0 selected").wait_for()
    choose(page, sweep)
    command(page, "Compare").click()
    page.get_by_role("heading", name="Compare 2 runs").wait_for()
    assert page.get_by_role("navigation", name="Navigation").get_by_role("link", name="Dashboard").count() == 1
    page.goto(page.url.partition("/compare")[0] + f"/runs/{sweep}")
    page.get_by_role("link", name="Compare all").click()
    page.get_by_role("heading", name="Compare 2 runs").wait_for()


def test_grid_updates_with_thousands_of_runs(user, demo, tmp_path):
    """A run from the command line appears in the grid and is canceled in the jobs pane; the selection is kept."""
    root, (first, _) = demo
    seed(user, 2500)
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go("/runs")
        page.get_by_text("2,502 runs", exact=True).wait_for()
        going = user.mlw("submit", "-c", "local", "--detach", "train.py", "--lr", "1", "--wait", cwd=root).out.split()[
            0
        ]
        row(page, going).get_by_text("Running").wait_for()
        choose(page, first)
        page.get_by_role("button", name="Jobs").click()
        page.get_by_role("button", name=f"Cancel run {going}").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
        row(page, going).get_by_text("Canceled").wait_for()
        assert page.get_by_text("1 selected").count() == 1
        page.get_by_role("button", name="Jobs").click()
        _by_keyboard(page, going)
        page.go_back()
        _far_down(page)
        ui.assert_no_errors()


def _by_keyboard(page, going: str) -> None:
    row(page, going).locator(".ag-cell").first.click()
    page.keyboard.press("Space")
    page.get_by_text("2 selected").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{going}")


def _far_down(page) -> None:
    page.get_by_text("2,503 runs", exact=True).wait_for()
    body = page.locator(".ag-body-viewport")
    body.evaluate("one => one.scrollTop = one.scrollHeight")
    row(page, "many-00000").wait_for()
    row(page, "many-00000").get_by_text("<i>many</i>").wait_for()
    assert page.locator(".ag-center-cols-container .ag-row").count() < 100
    page.get_by_role("button", name="Select all").click()
    page.get_by_text("1,000 selected").wait_for()
    page.get_by_text("Only the first 1,000 runs are selected.").wait_for()
    body.evaluate("one => one.scrollTop = 0")
    page.locator('.ag-row[row-index="0"].ag-row-selected').first.wait_for()
    page.get_by_role("button", name="Select none").click()
    page.get_by_text("0 selected").wait_for()


def test_runs_api(user, demo, tmp_path):
    """Programs of the user call the API. Values in their requests never become command options."""
    root, (first, second) = demo
    with browser_session(user, root, tmp_path) as ui:
        request = _api_client(user, ui.server.numeric)
        page = request("GET", "/runs/rows?column=metrics.loss&sort=metrics.loss&limit=1")
        assert page["total"] == 2 and page["rows"][0]["id"] == first
        assert page["rows"][0]["values"]["metrics.loss"] == pytest.approx(1 / 3)
        assert request("GET", "/runs/names") == {"metrics": ["loss"], "params": ["lr"]}
        assert request("GET", f"/runs/{first}")["params"] == {"lr": "0.5"}
        assert request("GET", "/runs/nobody", expected=404)["error"].startswith("unknown run")
        assert "expected" in request("GET", "/runs/rows?where=x+%3C", expected=400)["error"]
        mistyped = request("GET", "/runs/rows?where=los+%3C+3", expected=404)
        assert "'los'" in mistyped["error"] and "loss" in mistyped["error"] and "'loss'" in mistyped["hint"]
        assert request("GET", "/runs/rows?where=loss+%3C+-3")["total"] == 0, (
            "a right name that no run fits is no mistake"
        )
        request("GET", "/runs/rows?limit=100000", expected=422)
        request("PUT", f"/runs/{first}/name", {"name": "--clear"})
        request("PUT", f"/runs/{first}/note", {"note": "--clear\n<b>two lines</b>"})
        request("POST", "/runs/tags", {"runs": [first, second], "add": ["-x"]})
        info = user.info(first)
        assert (info["name"], info["tags"]) == ("--clear", ["-x"])
        assert info["description"] == "--clear\n<b>two lines</b>"
        request("PUT", f"/runs/{first}/note", {"note": ""})
        request("PUT", f"/runs/{first}/name", {"name": None})
        assert user.info(first)["name"] == "lr 0.5" and user.info(first)["description"] is None
        request("POST", "/runs/tags", {"runs": ["--help"], "add": ["x"]}, expected=422)
        request("DELETE", "/runs/--yes", expected=404)
        request("POST", "/runs/archive", {"runs": [first]})
        assert request("GET", "/runs/rows")["total"] == 1
        request("DELETE", f"/runs/{first}")
        assert request("GET", "/runs/rows?archived=true")["total"] == 1
        ui.assert_no_errors()


def _api_client(user, address: str) -> Any:
    host, _, port = address.removeprefix("http://").rpartition(":")
    token = json.loads((user.store / "ui" / "server.json").read_text())["token"]

    def request(method: str, path: str, body: Any = None, expected: int = 200) -> Any:
        with closing(http.client.HTTPConnection(host, int(port), timeout=60)) as connection:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request(method, f"/api{path}", json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            result = json.loads(answer.read())
            assert answer.status == expected, (answer.status, result)
            return result

    return request


def test_api_follows_run_without_open_page(user, tmp_path):
    root = user.project(train="import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('done')\n")
    with ui_server(user, root, tmp_path) as server:
        token = json.loads((user.store / "ui" / "server.json").read_text())["token"]

        def request(path: str, body: dict[str, Any] | None = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(server.numeric + path, data, headers)) as answer:
                return json.load(answer)

        project = request("/api/projects")[0]["key"]
        run = request("/api/submit", {"project": project, "configuration": "local", "script": "train.py"})["run"]
        wait_until(lambda: request(f"/api/runs/{run}")["status"] == "Completed", "the end of the run")
        wait_until(lambda: "done" in str(request(f"/api/runs/{run}/log/lines?first=0&count=10")), "its log")
