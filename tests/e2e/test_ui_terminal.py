"""The terminal in a real browser: a real shell in a pseudoterminal."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import expect

from mlworkbench.ui.queries.projects import key_of
from tests.conftest import REAL_PYTHON
from tests.machines.browser import browser_session
from tests.machines.network import wait_until


def screen(page):
    return page.locator(".xterm-rows")


def type_line(page, text: str) -> None:
    page.keyboard.insert_text(text)
    page.keyboard.press("Enter")


def create_python(place: Path) -> Path:
    """Create a Python whose pip prints its folder."""
    place.mkdir(parents=True)
    for name, line in (("python", f'exec {REAL_PYTHON} "$@"'), ("pip", 'echo "pip of $(dirname "$0")"')):
        (place / name).write_text(f"#!/bin/sh\n{line}\n")
        (place / name).chmod(0o755)
    return place / "python"


def use_displayed_python(page, folder: Path) -> None:
    """Check that the project's Python is not on PATH, and run the displayed command that adds it."""
    command = f"PATH={folder}:$PATH"
    expect(screen(page)).to_contain_text(f"if you trust the project, run: {command}")
    type_line(page, "echo before=[$(command -v pip)]")
    expect(screen(page)).to_contain_text("before=[/")
    expect(screen(page)).not_to_contain_text(f"before=[{folder}")
    type_line(page, command)


def reload_page(page, root: Path) -> None:
    """Check that the shell has survived a reload, and that output during a disconnection appears exactly once."""
    type_line(page, "echo same shell $PS1")
    expect(screen(page)).to_contain_text("same shell still>")
    type_line(page, "until [ -e go ]; do sleep 0.1; done; echo once=$((0 + 1)); touch gone")
    page.evaluate("window.socket.disconnect()")
    (root / "go").touch()
    wait_until((root / "gone").exists, "the shell has spoken while the page was away")
    page.evaluate("window.socket.connect()")
    expect(screen(page)).to_contain_text("once=1")
    type_line(page, "echo twice=$((1 + 1))")
    expect(screen(page)).to_contain_text("twice=2")
    assert screen(page).inner_text().count("once=1") == 1


def test_shell_in_project_folder(user, tmp_path):
    root = user.project()
    python = create_python(user.home / "own" / "bin")
    (root / "aml_config/local.compute").write_text(f"type: local\npythonLocation: {python}\n")
    user.env["SHELL"] = "/bin/bash"
    (user.home / ".bashrc").write_text("PATH=/usr/bin:$PATH\nPS1='ready> '\n")
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/p/{key_of(root)}/terminal")
        expect(screen(page)).to_contain_text(f"for target local: {python}")
        expect(screen(page)).to_contain_text("ready>")
        page.locator(".xterm-screen").click()
        use_displayed_python(page, python.parent)
        type_line(page, "echo at $(pwd); pip; echo $(mlw --version | head -c 3)-works > told; tput colors")
        expect(screen(page)).to_contain_text(f"at {root}")
        expect(screen(page)).to_contain_text(f"pip of {python.parent}")
        expect(screen(page)).to_contain_text("256")
        wait_until(lambda: (root / "told").exists() and "-works" in (root / "told").read_text(), "mlw is there")
        assert (root / "told").read_text().startswith("mlw")

        # Wait for the output of the inner program: Ctrl-C between two programs of the line would reach neither.
        type_line(page, "stty size > size; sh -c 'echo front=$((1 + 1)); sleep 1000'; echo ended with $?")
        expect(screen(page)).to_contain_text("front=2")
        rows, columns = map(int, (root / "size").read_text().split())
        assert rows > 30 and columns > 100, "it fills the page"
        page.keyboard.press("Control+c")
        expect(screen(page)).to_contain_text("^C")
        page.set_viewport_size({"width": 900, "height": 600})
        wait_until(lambda: _narrower(page, root, columns), "the shell learns its new size")

        type_line(page, "echo kept=$((40 + 2)); PS1='still> '")
        expect(screen(page)).to_contain_text("kept=42")
        page.reload()
        expect(screen(page)).to_contain_text("kept=42")
        page.locator(".xterm-screen").click()
        reload_page(page, root)

        page.get_by_role("button", name="New terminal").click()
        expect(page.get_by_role("button", name="2", exact=True)).to_have_attribute("aria-pressed", "true")
        expect(screen(page)).to_contain_text("ready>")
        expect(screen(page)).not_to_contain_text("kept=42")
        type_line(page, "echo $$ > pid; seq 1 200000; echo all of them")
        expect(screen(page)).to_contain_text("all of them", timeout=30_000)
        shell = int((root / "pid").read_text())
        page.get_by_role("button", name="1", exact=True).click()
        expect(screen(page)).to_contain_text("kept=42")
        page.get_by_role("button", name="Close").click()
        expect(screen(page)).to_contain_text("all of them")
        ui.assert_no_errors()
        ui.server.stop()
        wait_until(lambda: not os.path.exists(f"/proc/{shell}"), "the shell ends with the server")


def _narrower(page, root: Path, columns: int) -> bool:
    """Return whether the terminal has fewer columns. Wait for each answer, because further input would queue up."""
    answer = root / "size2"
    answer.unlink(missing_ok=True)
    type_line(page, "stty size > size2")
    wait_until(lambda: answer.exists() and answer.read_text().endswith("\n"), "the size of the terminal")
    return int(answer.read_text().split()[1]) < columns


def test_page_request_alone_starts_no_shell(user, tmp_path):
    """A request for the page starts no shell; only a page that is open in a browser does."""
    asked, root = user.project("asked"), user.project("opened")
    user.env["SHELL"] = str(user.home / "shell")
    started = user.home / "started"
    (user.home / "shell").write_text(f"#!/bin/sh\npwd >> {started}\nexec /bin/sh\n")
    (user.home / "shell").chmod(0o755)
    with browser_session(user, asked, tmp_path) as ui:
        for project in (asked, root):
            assert user.mlw("submit", "train.py", cwd=project).code == 0
        page = ui.go("/")  # lists both projects, because they have runs
        expect(page.get_by_role("link", name="opened", exact=True)).to_be_visible()
        answer = ui.request(f"/p/{key_of(asked)}/terminal")
        assert answer.status == 200
        page = ui.go(f"/p/{key_of(root)}/terminal")
        wait_until(lambda: started.exists() and started.read_text() == f"{root}\n", "the shell of the open page only")
        page.locator(".xterm-screen").click()
        type_line(page, "exit")
        expect(screen(page)).to_contain_text("the shell has ended")
        assert started.read_text() == f"{root}\n"
        ui.assert_no_errors()
