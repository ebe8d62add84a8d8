"""Projects in a real browser: create, open, adopt, run, and forget; readmes are untrusted text."""

from __future__ import annotations

import re
import shutil
from urllib.parse import urlencode

from playwright.sync_api import expect

from mlworkbench.ui.queries.projects import key_of
from tests.machines.browser import browser_session
from tests.machines.network import wait_until

README = """# Title

First words with `code`, **bold** and a [link](src/model.py).

<script>window.hit = 1</script><img src=x onerror="window.hit = 2">

[a](javascript:window.hit=3) [b](JaVaScRiPt:window.hit=4) [c](data:text/html,<script>window.hit=5</script>)
[d](//evil.example/x) [e](../../etc/passwd) [f](https://example.org/page) [g](&#106;avascript:window.hit=6)

![ours](dot.png) ![theirs](http://evil.example/x.png) ![sneaky](../dot.png)

| a | b |
|---|---|
| 1 | 2 |

```python
print("<b>hello</b>")
```
"""
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def create(page) -> None:
    """Search the samples and create a project from one of them. An invalid name is rejected first."""
    page.get_by_role("button", name="Create project").click()
    dialog = page.get_by_role("dialog", name="Create project")
    expect(dialog.get_by_role("radio", name="default")).to_have_attribute("aria-checked", "true")
    dialog.get_by_label("Search samples").fill("no such sample")
    expect(dialog.get_by_role("radio")).to_have_count(0)
    dialog.get_by_label("Search samples").fill("moons")
    expect(dialog.get_by_role("radio")).to_have_count(1)
    dialog.get_by_label("Name").fill("--bad name")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_text("invalid project name")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    dialog.get_by_label("Name").fill("moons")
    dialog.get_by_role("button", name="Create").click()
    page.wait_for_url(re.compile("/p/[0-9a-f]{12}$"))
    expect(page.get_by_role("heading", name="moons", level=1)).to_be_visible()
    expect(page.get_by_text("No runs yet")).to_be_visible()
    expect(page.get_by_text("No problems found.")).to_be_visible(timeout=20_000)


def run_it(page) -> str:
    """Run a script with arguments and return the run ID. An unclosed quote is rejected first."""
    page.get_by_label("Script").fill("tell.py")
    page.get_by_role("option", name="tell.py").click()
    page.get_by_label("Arguments").fill("--text 'not closed")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert").get_by_text("invalid arguments")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    page.get_by_label("Arguments").fill("--text 'two words' --name x")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Name", exact=True).fill("--first one")
    page.get_by_label("Tags").fill("good, better")
    expect(page.get_by_text("mlw submit -c local '--name=--first one' --tag=good")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url(re.compile("/runs/moons-"), timeout=30_000)
    run = page.url.rpartition("/")[2].partition("?")[0]
    return run


def test_create_and_run_first_project(user, tmp_path):
    """Create a project from a sample and run a script in it. The run includes unsaved changes from the editor."""
    with browser_session(user, user.home, tmp_path) as ui:
        page = ui.page
        expect(page.get_by_text("No projects yet")).to_be_visible()
        create(page)
        dashboard = page.url
        root = user.home / "moons"
        (root / "tell.py").write_text("import sys\nprint(sys.argv[1:])\n")
        page.goto(f"{dashboard}/files?" + urlencode({"path": "tell.py"}))
        page.locator(".cm-content").click()
        page.keyboard.press("Control+Home")
        page.keyboard.insert_text("print('typed, not saved')\n")
        expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()
        page.goto(dashboard)
        run = run_it(page)
        wait_until(lambda: user.info(run)["status"] == "Completed", "the run")
        log = user.mlw("logs", run).out
        assert "typed, not saved" in log and "['--text', 'two words', '--name', 'x']" in log
        facts = user.info(run)
        assert facts["name"] == "--first one" and facts["tags"] == ["good", "better"]
        page.goto(dashboard)
        expect(page.get_by_role("link", name="--first one")).to_be_visible()
        expect(page.get_by_text("Completed")).to_be_visible()
        expect(page.get_by_label("Arguments")).to_have_value("--text 'two words' --name x")
        ui.assert_no_errors()


def test_open_adopt_and_forget_project(user, tmp_path):
    listed = user.project("known")
    assert user.mlw("submit", "train.py", cwd=listed).code == 0
    code = user.home / "code"
    code.mkdir()
    (code / "a.py").write_text("print(1)\n")
    gone = user.project("gone")
    with browser_session(user, gone, tmp_path) as ui:
        page = ui.page
        expect(page.get_by_role("link", name="known", exact=True)).to_be_visible()
        expect(page.get_by_text("Completed")).to_be_visible()
        shutil.rmtree(gone)
        page.reload()
        expect(page.get_by_text("the folder no longer exists")).to_be_visible()
        page.get_by_role("button", name="Remove gone from the list").click()
        expect(page.get_by_text("the folder no longer exists")).to_have_count(0)

        page.get_by_role("button", name="Open folder").click()
        dialog = page.get_by_role("dialog", name="Open folder")
        field = dialog.get_by_label("Folder on this machine")
        field.fill(f"{user.home}/co")
        expect(dialog.get_by_role("button", name="known")).to_have_count(0)  # does not match the typed text
        dialog.get_by_role("button", name="code").click()
        expect(field).to_have_value(f"{code}/")
        expect(dialog.get_by_text("is not a project yet")).to_be_visible()
        field.fill(f"{user.home}/nowhere")
        dialog.get_by_role("button", name="Open", exact=True).click()
        expect(page.get_by_text("nowhere does not exist")).to_be_visible()
        page.get_by_role("button", name="Close").click()
        field.fill(str(code))
        dialog.get_by_role("button", name="Open", exact=True).click()
        dialog.get_by_role("button", name="Initialize project").click()
        page.wait_for_url(re.compile("/p/[0-9a-f]{12}$"))
        expect(page.get_by_role("heading", name="code", level=1)).to_be_visible()
        assert (code / "aml_config").is_dir() and (code / "a.py").read_text() == "print(1)\n"

        page = ui.go("/")
        page.get_by_role("button", name="Remove known from the list").click()
        expect(page.get_by_role("link", name="known", exact=True)).to_have_count(0)
        page.reload()
        expect(page.get_by_role("link", name="code", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="known", exact=True)).to_have_count(0)
        assert listed.is_dir()
        page = ui.go("/p/0123456789ab")
        expect(page.get_by_text("unknown project")).to_be_visible()
        ui.assert_no_errors()


def test_readme_runs_no_code(user, tmp_path):
    root = user.project()
    (root / "readme.md").write_text(README)
    (root / "dot.png").write_bytes(PIXEL)
    (root / "aml_config/local.compute").write_text("type: lokal\n")
    key = key_of(root)
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/p/{key}")
        readme = page.locator(".mlw-readme")
        expect(
            readme.get_by_text('<script>window.hit = 1</script><img src=x onerror="window.hit = 2">')
        ).to_be_visible()
        links = {link.inner_text(): link.get_attribute("href") for link in readme.get_by_role("link").all()}
        inside = f"/p/{key}/files?path="
        assert links == {
            "link": f"{inside}src%2Fmodel.py",
            "f": "https://example.org/page",
            "[image: theirs]": "http://evil.example/x.png",
        }
        pictures = [link.get_attribute("src") for link in readme.locator("img").all()]
        assert pictures == [f"/api/projects/{key}/picture?path=dot.png"]
        page.wait_for_function("document.querySelector('.mlw-readme img').naturalWidth === 1")
        expect(readme.get_by_text('print("<b>hello</b>")')).to_be_visible()
        expect(readme.get_by_role("cell", name="2")).to_be_visible()
        assert page.evaluate("window.hit") is None

        problem = page.get_by_role("button", name="aml_config/local.compute:1")
        problem.click(timeout=20_000)
        page.wait_for_url(re.compile("line=1"))
        expect(page.locator(".mlw-line-error")).to_have_text("type: lokal")
        ui.assert_no_errors()
