"""Regression tests for bugs that were found in a first walkthrough of the UI."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from playwright.sync_api import expect

from tests.machines.browser import browser_session

TRAIN = r"""
import os, sys
from mlworkbench import log
os.makedirs("outputs/plots", exist_ok=True)
open("outputs/plots/a.txt", "w").write("hello")
open("outputs/model.bin", "wb").write(bytes(range(256)) * 1000)
os.symlink("/etc/passwd", "outputs/link")
print("\x1b[38;5;208morange\x1b[0m \x1b[48;2;255;255;0;38;5;15mpale\x1b[0m \x1b[38:2::10:200:30mgreen\x1b[0m "
      "\x1b[38;5;999mnone\x1b[0m \x1b[38;2;1;2mhalf")
log("loss", 0.25, step=1)
log("accuracy", 0.5, step=1)
log("later", 7, step=2)
"""
WAITING = """
import os, time
from mlworkbench import log
log("loss", 0.75, step=1)
log("later", 1, step=1)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
"""


def test_first_tour_regressions(user, tmp_path):
    root = user.project("demo", train=TRAIN, wait=WAITING)
    arguments = ("experiment", "submit", "-c", "local")
    run = user.mlw(*arguments, "train.py", "--note", "long " * 40, cwd=root).run
    going = user.mlw(*arguments, "--detach", f"--env=GO={tmp_path / 'go'}", "wait.py", cwd=root).run
    with browser_session(user, root, tmp_path) as ui:
        see_dashboard(ui, run, going)
        see_jobs(ui, going)
        (tmp_path / "go").touch()
        see_error_notice(ui, root)
        see_colors(ui, run)
        fetch(ui, run)
        restore(ui, run, root)
        keep(ui, run)
        ui.assert_no_errors()


def dashboard(ui):
    page = ui.go("/")
    page.get_by_role("link", name="demo").first.click()
    expect(page.get_by_role("heading", name="Recent runs")).to_be_visible()
    return page


def see_dashboard(ui, run: str, going: str) -> None:
    page = dashboard(ui)
    table = page.locator(".mlw-recent")
    expect(table.get_by_role("row").nth(0)).to_contain_text("loss")
    expect(table.get_by_role("row", name=re.compile(run))).to_contain_text("0.25")
    lasting = table.get_by_role("row", name=re.compile(going)).get_by_role("cell").last
    before = lasting.inner_text()
    expect(lasting).not_to_have_text(before)
    script = table.get_by_role("row", name=re.compile(run)).locator(".mlw-cut > *")
    assert (
        script.evaluate("box => box.scrollWidth > box.clientWidth && getComputedStyle(box).textOverflow") == "ellipsis"
    )


def see_jobs(ui, going: str) -> None:
    page = ui.page
    page.get_by_role("button", name="Jobs").click()
    pane = page.locator(".mlw-jobs")
    job = pane.locator(".mlw-job").filter(has=page.get_by_role("link", name=going))
    expect(job).to_contain_text("wait.py [2]")
    expect(job).to_contain_text("loss 0.75")
    page.keyboard.press("Escape")
    expect(pane.get_by_text("Recently finished")).to_be_hidden()


def see_error_notice(ui, root: Path) -> None:
    page = ui.page
    page.get_by_label("Arguments").fill('"open')
    for _ in range(2):
        page.get_by_role("button", name="Run", exact=True).click()
    box = page.locator(".q-notification")
    expect(box.locator(".q-notification__badge")).to_have_text("2")  # repeated notices are counted, not stacked
    expect(box).to_have_count(1)
    expect(box.locator(".q-notification__caption")).to_contain_text("Hint: quote values that contain spaces")
    box.get_by_role("button", name="Close").click()
    expect(box).to_have_count(0)
    page.get_by_label("Arguments").fill("")
    (root / "wait.py").unlink()
    page.get_by_role("button", name="Run", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(re.compile("^Hint: "))).to_be_visible()
    expect(dialog.get_by_text("wait.py").and_(dialog.locator(".mlw-bad"))).to_have_count(1)
    expect(dialog.locator(".mlw-errand-error:visible")).to_have_count(0)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def see_colors(ui, run: str) -> None:
    page = ui.go(f"/runs/{run}?tab=log")
    line = page.locator(".mlw-log-line").first
    expect(line).to_contain_text("orange pale green none half")
    color = "box => getComputedStyle(box).color"
    # Darker than the standard color 208, so that the text is readable.
    assert line.get_by_text("orange").evaluate(color) == "rgb(153, 81, 0)"
    assert line.get_by_text("pale").evaluate("box => getComputedStyle(box).backgroundColor") == "rgb(255, 255, 0)"
    assert line.get_by_text("pale").evaluate(color) != "rgb(255, 255, 255)"
    for word in ("none", "half"):
        assert line.get_by_text(word).evaluate("box => box.getAttribute('style')") is None


def fetch(ui, run: str) -> None:
    page = ui.page
    for item, name in (("Download outputs…", f"{run}-outputs.zip"), ("Diagnostics…", f"diagnostics-{run}.zip")):
        page.get_by_role("button", name="More").click()
        page.get_by_text(item).click()
        with page.expect_download() as begun:
            page.get_by_role("link", name="Download as zip").click()
        assert begun.value.suggested_filename == name
        assert zipfile.ZipFile(begun.value.path()).testzip() is None
        expect(page.get_by_role("dialog")).to_have_count(0)
    answer = ui.request(f"/api/runs/{run}/outputs.zip")
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["content-disposition"].startswith("attachment")
    archive = zipfile.ZipFile(io.BytesIO(answer.body()))
    assert archive.read(f"{run}/plots/a.txt") == b"hello"
    assert sorted(archive.namelist()) == [f"{run}-left-out.txt", f"{run}/model.bin", f"{run}/plots/a.txt"]


def restore(ui, run: str, root: Path) -> None:
    page = ui.page
    page.get_by_role("button", name="Restore").click()
    field = page.get_by_role("textbox", name="New folder")
    place = Path(f"{root}-{run.removeprefix('demo-')}")
    expect(field).to_have_value(str(place))
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    page.get_by_role("button", name="Open project").click()
    expect(page.get_by_text(str(place), exact=True)).to_be_visible()


def keep(ui, run: str) -> None:
    page = ui.go(f"/runs/{run}?tab=outputs&path=model.bin")
    page.get_by_role("button", name="Save as asset").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("added assets/model.link to the project")).to_be_visible()
    page.get_by_role("button", name="Show in Files").click()
    expect(page.get_by_text("assets/model.link").first).to_be_visible()
