"""The run page in a real browser: status, log, charts, outputs, environment, code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.conftest import need
from tests.machines.browser import browser_session
from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU, FakeGpus

TRAIN = r"""
import os, struct, sys, zlib
from mlworkbench import log, log_table
os.makedirs("outputs/plots", exist_ok=True)
raw = b"".join(b"\0" + bytes(v for x in range(8) for v in (x * 30, y * 30, 90)) for y in range(8))
def part(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
png = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(raw)) + part(b"IEND", b"")
open("outputs/plots/heat.png", "wb").write(png)
open("outputs/results.csv", "w").write("epoch,loss\n1,0.5\n")
open("outputs/model.json", "w").write('{"layers":[64,10]}')
open("outputs/page.html", "w").write("<script>window.parent.document.title = 'owned'</script>")
print("\x1b[31mcareful\x1b[0m <b>not bold</b>")
for step in range(3000):
    log("loss", 1 / (step + 1) + (5 if step == 1500 else 0), step=step)
    if step % 100 == 0:
        log("val/accuracy", step / 3000, step=step)
        print("step", step)
for percent in range(101):
    print("\rdone %d%%" % percent, end="")
print()
import subprocess
rank = "from mlworkbench import log\nfor step in range(3): log('val/accuracy', 7.0, step=step)"
subprocess.run([sys.executable, "-c", rank], env=dict(os.environ, RANK="1", WORLD_SIZE="2"), check=True)
log("words", "<i>fine</i>")
log_table("report", [{"class": "a", "precision": 0.9}])
"""
LATER = """
import os, time
from mlworkbench import log
at = 0
while not os.path.exists(os.environ["GO"]):
    log("beat", at, step=at)
    print("line", at, flush=True)
    at += 1
    time.sleep(0.05)
print("the end")
"""
LINES = 1_000_000
MANY = f"""
import sys
for start in range(0, {LINES}, 10000):
    sys.stdout.write("".join("line %d of many\\n" % at for at in range(start, start + 10000)))
print("needle in the haystack")
"""
ENDLESS = """
import os
print("the beginning", flush=True)
os.ftruncate(1, 8 << 40)
print("\\nthe last line", flush=True)
"""
ONE_AFTER_THE_OTHER = """
import sys
from mlworkbench import log
lr = float(sys.argv[sys.argv.index("--lr") + 1])
for step in range(5):
    log("val_loss", lr / (step + 1), step=step)
"""


def submitted(user, root: Path, *arguments: str, **more) -> str:
    done = user.mlw("experiment", "submit", "-c", "local", *arguments, cwd=root, **more)
    return done.run


def tab(page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def test_page_of_finished_run(user, tmp_path):
    root = user.project("demo", train=TRAIN, bad="import nosuchmodule\n")
    run = submitted(user, root, "train.py", "--lr", "0.1")
    need("mpiexec")
    ranks = ("--launcher", "mpiexec", "--processes", "2")
    failed = submitted(user, root, *ranks, "--retries", "1", "--retry-delay", "0.1s", "bad.py")
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/runs/{run}")
        expect(page.get_by_role("heading", level=1)).to_have_text(run)
        expect(page.locator(".mlw-run-title").get_by_text("Completed")).to_be_visible()
        expect(page.locator(".mlw-run-head").get_by_text("train.py --lr 0.1")).to_be_visible()
        expect(page.locator(".mlw-run-tile", has_text="loss").first).to_contain_text("0.000333333")
        expect(page.get_by_role("img", name=re.compile("^loss: last 0.000333333, minimum"))).to_be_visible()
        see_log(ui, run, user)
        see_metrics(ui, run)
        see_outputs(ui, run)
        see_code(ui, run, root)
        for name in ("Metrics", "Log", "Outputs", "Metrics", "Code", "Images", "Metrics", "Environment"):
            tab(page, name)  # switches tabs before a chart can be created
        expect(page.get_by_text("Existing Python", exact=True)).to_be_visible()
        expect(page.locator(".mlw-run-body > *")).to_have_count(1)
        expect(page.locator(".mlw-chart, .mlw-log, .mlw-run-browse, .mlw-run-picture")).to_have_count(0)
        expect(page.get_by_text("EXAMPLE_VARIABLE")).to_be_visible()
        page = ui.go(f"/runs/{failed}")
        expect(page.get_by_text("ModuleNotFoundError: No module named 'nosuchmodule'").first).to_be_visible()
        properties = page.locator(".mlw-card", has=page.get_by_role("heading", name="Properties"))
        expect(properties).to_contain_text("Attempts2 of 2")
        expect(properties).to_contain_text("attempt 1 failed (exit 1)")
        expect(properties).to_contain_text(re.compile(r"Ranksranks? 0"))
        page.get_by_role("link", name="View end of log").click()
        expect(page.locator(".mlw-log")).to_contain_text("nosuchmodule")
        page = ui.go("/runs/nothing-like-it")
        expect(page.get_by_text("unknown run 'nothing-like-it'")).to_be_visible()
        assert page.title() != "owned"
        ui.assert_no_errors()


def see_log(ui, run: str, user) -> None:
    page = ui.page
    tab(page, "Log")
    lines = page.locator(".mlw-log-line")
    expect(lines.first).to_contain_text("careful <b>not bold</b>")
    expect(lines.first.locator(".mlw-ansi-red")).to_have_text("careful")
    expect(page).to_have_url(re.compile(r"\?tab=log$"))
    page.reload()
    expect(lines.first).to_contain_text("careful")
    search = page.get_by_role("searchbox", name="Search the log")
    search.fill("STEP 2")
    search.press("Enter")
    expect(page.locator(".mlw-log-count")).to_have_text("1 of 11")
    page.get_by_role("button", name="Next match").click()
    expect(page.locator(".mlw-log-count")).to_have_text("2 of 11")
    expect(page.locator(".mlw-log-here")).to_contain_text("step 2000")
    search.fill("done")
    search.press("Enter")
    expect(page.locator(".mlw-log-here .mlw-log-text")).to_have_text("done 100%")
    answer = ui.request(f"/api/runs/{run}/log/raw")
    assert answer.body() == (user.folder(run) / "log").read_bytes()
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["content-disposition"].startswith("attachment")


def see_metrics(ui, run: str) -> None:
    page = ui.page
    answer = ui.request(f"/runs/{run}?tab=metrics")
    assert "/series?name=" in answer.text(), "a page that is made quickly comes whole"
    tab(page, "Metrics")
    chart = page.get_by_role("img", name=re.compile("^loss: last"))
    expect(chart).to_have_attribute("aria-label", re.compile("maximum 5.00067$"))
    expect(chart.locator("canvas")).to_be_visible()
    with page.expect_response(re.compile(r"/series\?name=loss&.*from=")) as zoomed:
        chart.focus()
        page.keyboard.press("+")
    series = zoomed.value.json()
    assert series["columns"][0][0] > 700 and series["columns"][-1][0] < 2300, "only what is seen is asked for"
    assert any(high > 5 for _, _, high, _ in series["columns"]), "a spike is never lost"
    page.locator(".mlw-chart", has=chart).get_by_role("button", name="Reset zoom").click()
    with page.expect_response(re.compile(r"/series\?name=loss&x=time")):
        page.get_by_role("button", name="Time", exact=True).click()
    page.get_by_role("checkbox", name="Log scale").click()
    expect(page).to_have_url(re.compile(r"x=time.*log=1|log=1.*x=time"))
    page.reload()
    expect(page.get_by_role("checkbox", name="Log scale")).to_be_checked()
    page.get_by_label("Search metrics").fill("accu")
    expect(page.get_by_role("img", name=re.compile("^loss: "))).to_have_count(0)
    expect(page.get_by_role("img", name=re.compile("^val.accuracy: last"))).to_be_visible()
    accuracy = page.get_by_role("img", name=re.compile("^val.accuracy: "))
    expect(accuracy).not_to_have_attribute("aria-label", re.compile("maximum 7$"))
    page.get_by_role("checkbox", name="All ranks").click()
    expect(accuracy).to_have_attribute("aria-label", re.compile("rank 1/val/accuracy: last 7, minimum 7, maximum 7$"))
    page.get_by_role("button", name="Points of val/accuracy").click()
    expect(page.get_by_role("dialog").get_by_text("30 points")).to_be_visible()
    page.get_by_role("button", name="Close").last.click()
    expect(page.get_by_text("<i>fine</i>")).to_be_visible()
    expect(page.get_by_role("region", name="report")).to_contain_text("precision")
    rows = ui.request(f"/api/runs/{run}/metrics.csv?name=loss").text().splitlines()
    assert rows[0] == "name,step,time,value" and len(rows) == 3001 and rows[1].startswith("loss,0,")


def see_outputs(ui, run: str) -> None:
    page = ui.page
    tab(page, "Outputs")
    page.get_by_role("button", name="results.csv").click()
    expect(page.get_by_role("region", name="results.csv").get_by_role("columnheader")).to_have_text(["epoch", "loss"])
    page.get_by_role("button", name="model.json").click()
    expect(page.locator("pre")).to_contain_text('"layers": [')
    page.get_by_role("button", name="page.html").click()
    expect(page.locator("pre")).to_contain_text("<script>window.parent")
    expect(page).to_have_url(re.compile("path=page.html"))
    page.reload()
    expect(page.locator("pre")).to_contain_text("<script>window.parent")
    page.get_by_role("button", name="plots").click()
    page.get_by_role("button", name="heat.png").click()
    picture = page.get_by_role("img", name="plots/heat.png")
    wait_until(lambda: picture.evaluate("one => one.naturalWidth") == 8, "the picture")
    tab(page, "Images")
    expect(page.get_by_role("heading", name="plots/heat.png")).to_be_visible()
    answer = ui.request(f"/api/runs/{run}/outputs/file?path=page.html")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"].startswith("sandbox")
    for path in ("../../spec.json", "%2e%2e/%2e%2e/spec.json", "/etc/passwd", "..%2F..%2Flog"):
        assert ui.request(f"/api/runs/{run}/outputs/file?path={path}").status == 404


def see_code(ui, run: str, root: Path) -> None:
    page = ui.page
    tab(page, "Code")
    expect(page.locator("pre")).to_contain_text("from mlworkbench import log, log_table")
    (root / "train.py").write_text(TRAIN + "print('more')\n")
    page.get_by_role("button", name="Changes since this run").click()
    expect(page.locator(".mlw-diffline-new", has_text="print('more')")).to_be_visible()
    page.get_by_role("button", name="Restore").first.click()
    dialog = page.get_by_role("dialog")
    place = root.parent / "-odd name"  # must not be parsed as an option
    dialog.get_by_role("textbox", name="New folder").fill(str(place))
    dialog.get_by_role("button", name="Restore").click()
    wait_until(lambda: (place / "train.py").exists(), "the restored code")
    assert (place / "train.py").read_text() == TRAIN


def test_page_of_an_active_run(user, tmp_path):
    root = user.project("demo", later=LATER, sweep=ONE_AFTER_THE_OTHER)
    go = tmp_path / "go"
    run = submitted(user, root, "--detach", f"--env=GO={go}", "later.py")
    sweep = submitted(user, root, "--sweep", "lr=0.1,0.3", "sweep.py")
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/runs/{run}")
        expect(page.locator(".mlw-run-title").get_by_text("Running")).to_be_visible()
        value = page.locator(".mlw-run-tile", has_text="beat").locator(".mlw-run-tile-value")
        first = int(value.inner_text())
        wait_until(lambda: int(value.inner_text()) > first, "a newer value")
        tab(page, "Log")
        wait_until(lambda: last_line(page) >= 5, "the log follows")
        line = last_line(page)
        wait_until(lambda: last_line(page) > line, "the log grows")
        tab(page, "Metrics")
        chart = page.get_by_role("img", name=re.compile("^beat: last"))
        label = chart.get_attribute("aria-label")
        wait_until(lambda: chart.get_attribute("aria-label") != label, "the chart grows")
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
        tab(page, "Log")
        wait_until(lambda: last_line(page) > line, "the log follows again")  # a finished run opens at its first line
        go.touch()
        expect(page.locator(".mlw-run-title").get_by_text("Completed")).to_be_visible(timeout=15_000)
        expect(page.locator(".mlw-log")).to_contain_text("the end", timeout=15_000)
        expect(page.get_by_label("Follow")).to_have_count(0)
        page = ui.go(f"/runs/{sweep}")
        rows = page.get_by_role("region", name="Child runs").get_by_role("row")
        expect(rows).to_have_count(3)
        expect(rows.nth(1)).to_contain_text("best")
        rows.nth(1).get_by_role("link").click()
        page.get_by_role("link", name=f"part of {sweep}").click()
        page.wait_for_url(f"**/runs/{sweep}")
        ui.assert_no_errors()


def last_line(page) -> int:
    return int(page.locator(".mlw-log-line .mlw-log-text").last.inner_text().split()[-1] or -1)


def test_log_of_a_million_lines_scrolls_and_is_searchable(user, tmp_path):
    root = user.project("demo", many=MANY)
    run = submitted(user, root, "--detach", "many.py")
    wait_until(lambda: user.info(run)["status"] == "Completed", "the run")
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/runs/{run}?tab=log")
        expect(page.get_by_text("1,000,001 lines")).to_be_visible()
        rows = page.locator(".mlw-log-line")
        box = page.locator(".mlw-log")
        box.focus()
        page.keyboard.press("End")
        expect(box).to_contain_text("needle in the haystack")
        for share in (0.9, 0.33, 0.5):
            box.evaluate("(one, share) => { one.scrollTop = share * one.scrollHeight; }", share)
            wait_until(lambda share=share: near(rows, share), f"line at {share}")
        assert rows.count() < 200
        page.get_by_role("spinbutton", name="Line").fill("500000")
        page.get_by_role("spinbutton", name="Line").press("Enter")
        expect(page.locator(".mlw-log-here")).to_contain_text("line 499999 of many")
        page.mouse.move(*center(box))
        page.mouse.wheel(0, 180)
        expect(box).to_contain_text(re.compile("line 5000[0-9]{2} of many"))
        search = page.get_by_role("searchbox", name="Search the log")
        search.fill("NEEDLE")
        search.press("Enter")
        expect(page.locator(".mlw-log-count")).to_have_text("1 of 1")
        expect(page.locator(".mlw-log-here")).to_contain_text("needle in the haystack")
        search.fill("of many")
        search.press("Enter")
        expect(page.locator(".mlw-log-count")).to_contain_text("of 10,000+")
        page.get_by_label("Wrap").check()
        expect(rows.first).to_be_visible()
        assert page.locator("*").count() < 2000
        ui.assert_no_errors()


def test_log_of_8_tb_shows_start_and_end_without_blocking(user, tmp_path):
    """A script can turn its log into a huge sparse file with one call. To index all of it would take hours."""
    root = user.project("demo", endless=ENDLESS)
    run = submitted(user, root, "--detach", "endless.py")
    wait_until(lambda: user.info(run)["status"] == "Completed", "the run")
    with browser_session(user, root, tmp_path) as ui:
        for _ in range(2):
            page = ui.go(f"/runs/{run}?tab=log")
            expect(page.locator(".mlw-log-line").first).to_contain_text("the beginning")
        box = page.locator(".mlw-log")
        box.focus()
        page.keyboard.press("End")
        expect(box).to_contain_text(re.compile("TB (not indexed yet|omitted)"))
        expect(page.locator(".mlw-log-line").last).to_contain_text("the last line")
        page = ui.go("/runs")
        expect(page.get_by_role("link", name=run).first).to_be_visible()
        ui.assert_no_errors()


def near(rows, share: float) -> bool:
    number = int(rows.first.get_attribute("data-line") or 0)
    return abs(number - share * LINES) < LINES / 100 and f"line {number - 1} of" in rows.first.inner_text()


def center(box) -> tuple[float, float]:
    place = box.bounding_box()
    return place["x"] + place["width"] / 2, place["y"] + place["height"] / 2


def test_gpu_verdict_and_charts(user, tmp_path):
    gpus = FakeGpus(tmp_path)
    for number in range(2):
        gpus.add(f"GPU-{tmp_path.name}-{number}", memory=(16 << 30, 0), name="NVIDIA H200", utilisation=0)
    user.env.update(gpus.env_nvml_only)
    script = USE_GPU + "import time\nuse_gpu(memory=3 << 30, utilisation=90)\ntime.sleep(3)\n"
    root = user.project("demo", train=script)
    run = submitted(user, root, "--gpus", "2", f"--env=MLW_FAKE_GPUS={gpus.state}", "train.py")
    assert (user.folder(run) / "effort.jsonl").exists(), "processors and memory are measured"
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/runs/{run}")
        card = page.locator("section", has=page.get_by_role("heading", name="GPU", exact=True))
        expect(card).to_contain_text("GPU partly used")
        expect(card).to_contain_text("1 of the 2 GPUs were never opened")
        expect(card).to_contain_text("How to fix: request fewer with --gpus")
        expect(card.get_by_role("region", name="GPUs")).to_contain_text("train.py (PID ")
        expect(card.get_by_role("region", name="GPUs")).to_contain_text("3.0 GiB")
        tab(page, "Metrics")
        expect(page.get_by_role("img", name=re.compile("^GPU utilization: GPU 0: NVIDIA H200: last"))).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("^CPU cores used: last"))).to_be_visible()
        charts = ui.request(f"/api/runs/{run}/machine").json()
        assert {"GPU utilization", "Memory of the run"} <= {chart["title"] for chart in charts}
        assert json.loads(ui.request("/api/openapi.json").text())["paths"]
        ui.assert_no_errors()
