"""The steps of the original's GPU article in a real browser, with a real machine and Docker."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.test_gpu_article import PASSWORD, files_with_password
from tests.machines.browser import browser_session
from tests.machines.channel import depend

pytestmark = pytest.mark.installed

TRAIN = """import argparse, os, sys, time
import hello, six
import mlworkbench

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
lr = parser.parse_args().lr
print("with", six.__version__, "uid", os.getuid(), flush=True)
mlworkbench.log_params({"lr": lr})
for step in range(30):
    mlworkbench.log("loss", (1 - lr) ** step, step=step)
    print("step", step, flush=True)
    if step == 10:
        while not os.path.exists(os.environ["AZUREML_NATIVE_SHARE_DIRECTORY"] + "go"):
            time.sleep(0.05)
mlworkbench.log("accuracy", 0.8 + lr / 10)
with open("outputs/loss.svg", "w") as file:
    file.write('<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60">')
    file.write('<rect width="90" height="60" fill="teal"/></svg>')
print("done")
"""


def shot(page: Any, name: str) -> None:
    """Save a screenshot if SHOTS=/some/folder is set."""
    if os.environ.get("SHOTS"):
        page.wait_for_timeout(600)
        page.screenshot(path=f"{os.environ['SHOTS']}/{name}.png")


def create(page: Any, home: Path) -> Path:
    page.get_by_role("button", name="Create project").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("mnist")
    shot(page, "create")
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="mnist").first).to_be_visible(timeout=20_000)
    projects = [path.parent for path in home.rglob("aml_config") if path.parent.name == "mnist"]
    assert len(projects) == 1
    return projects[0]


def attach(page: Any, host: Any) -> None:
    page.get_by_role("link", name="Targets", exact=True).click()
    page.get_by_role("button", name="Attach a machine").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Target name").fill("my_dsvm")
    dialog.get_by_label("Address").fill(host.address)
    dialog.get_by_label("User").fill(host.user)
    dialog.get_by_label("Password", exact=True).fill(PASSWORD)
    dialog.get_by_role("button", name="Attach", exact=True).click()
    expect(dialog.get_by_text(host.host_key_fingerprint, exact=True)).to_be_visible(timeout=30_000)
    shot(page, "fingerprint")
    dialog.get_by_role("button", name="Trust key").click()
    expect(dialog.get_by_text(re.compile("my_dsvm is attached"))).to_be_visible(timeout=60_000)
    shot(page, "attached")
    dialog.get_by_role("button", name="Done").click()
    expect(page.get_by_role("region", name="my_dsvm", exact=True)).to_be_visible()


def write_file(page: Any, name: str, text: str) -> None:
    """Open a file in the tree, edit its text, and save it."""
    page.get_by_role("treeitem", name=name).last.click()
    content = page.locator(".cm-content")
    expect(page.locator(".mlw-pane-path")).to_contain_text(name)
    content.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    unsaved = page.get_by_text("Unsaved changes", exact=True)
    expect(unsaved).to_be_visible()  # otherwise it may be hidden because it has not appeared yet
    page.keyboard.press("Control+s")
    expect(unsaved).to_be_hidden()


def run(page: Any, arguments: str) -> str:
    page.get_by_role("link", name="Dashboard", exact=True).click()
    page.get_by_label("Run configuration").click()
    page.get_by_role("option", name="my_dsvm").click()
    page.get_by_label("Arguments").fill(arguments)
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[^?]+"), timeout=120_000)
    return str(re.search(r"/runs/([^?]+)", page.url)[1])  # type: ignore[index]


def see_the_new_files(page: Any) -> None:
    page.get_by_role("link", name="Files", exact=True).click()
    page.get_by_role("treeitem", name="aml_config").click()
    page.get_by_role("button", name="Refresh").click()
    expect(page.get_by_role("treeitem", name="my_dsvm.compute")).to_be_visible()
    expect(page.get_by_role("treeitem", name="my_dsvm.runconfig")).to_be_visible()


def edit(page: Any, project: Path, image: str) -> None:
    compute = project / "aml_config" / "my_dsvm.compute"
    changed = re.sub("(?m)^baseDockerImage: .*$", f"baseDockerImage: {image}", compute.read_text())
    write_file(page, "my_dsvm.compute", changed)
    shot(page, "compute")
    assert compute.read_text() == changed
    runconfig = (project / "aml_config" / "my_dsvm.runconfig").read_text()
    write_file(page, "my_dsvm.runconfig", runconfig + "# edited in the browser\n")
    write_file(page, "train.py", TRAIN)
    assert (project / "train.py").read_text() == TRAIN


def watch(page: Any, host: Any) -> None:
    """Check the run page while the run is active, and at its end."""
    page.get_by_role("tab", name="Log").click()
    expect(page.get_by_text("step 10", exact=True)).to_be_visible(timeout=180_000)
    expect(page.get_by_text("Running").first).to_be_visible()
    shot(page, "live")
    page.get_by_role("tab", name="Metrics").click()
    expect(page.locator("canvas").first).to_be_visible()
    share = next(path for path in (host.home / ".mlw" / "share").glob("*"))
    (share / "go").touch()
    expect(page.get_by_text("Completed").first).to_be_visible(timeout=60_000)
    expect(page.get_by_text("30 points")).to_be_visible()  # all points are shown, too
    shot(page, "ended")
    page.get_by_role("tab", name="Images").click()
    expect(page.get_by_role("img", name=re.compile("loss.svg"))).to_be_visible()
    shot(page, "pictures")


def restore(page: Any, place: Path) -> None:
    page.get_by_role("button", name="Restore").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="New folder").fill(str(place))
    dialog.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("status").filter(has_text=str(place))).to_be_visible()
    assert (place / "train.py").read_text() == TRAIN


def test_gpu_article_in_browser(laptop, machine, engine, channel, tmp_path):
    host = machine(password=PASSWORD, docker="yes")
    with browser_session(laptop, laptop.home, tmp_path) as ui:
        page = ui.page
        page.set_default_timeout(30_000)
        project = create(page, laptop.home)
        depend(project, channel, "six==1.16.0")
        page.get_by_role("link", name="Files", exact=True).click()
        page.get_by_role("treeitem", name="aml_config").click()
        expect(page.get_by_role("treeitem", name="local.compute")).to_be_visible()
        assert page.get_by_role("treeitem", name="my_dsvm.compute").count() == 0
        attach(page, host)
        see_the_new_files(page)
        edit(page, project, engine.image)

        first = run(page, "--lr 0.1")
        watch(page, host)
        record = laptop.info(first)
        assert (record["status"], record["target"], record["accuracy"]) == ("Completed", "my_dsvm", 0.81)
        second = run(page, "--lr 0.3")
        expect(page.get_by_text("Completed").first).to_be_visible(timeout=120_000)

        page.goto(f"{ui.server.address}/compare?runs={first},{second}")
        expect(page.get_by_role("cell", name="0.3", exact=True).first).to_be_visible()
        expect(page.locator("canvas").first).to_be_visible()
        shot(page, "compare")
        page.goto(f"{ui.server.address}/runs/{first}")
        restore(page, tmp_path / "restored")
        assert PASSWORD not in page.content()
        ui.assert_no_errors()
    assert files_with_password(laptop.home, laptop.store) == []
