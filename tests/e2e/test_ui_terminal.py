"""The command prompt in a real browser: a real shell behind a real terminal."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import expect

from mlworkbench.ui.answers.projects import key_of
from tests.conftest import REAL_PYTHON
from tests.machines.browser import looking
from tests.machines.network import wait_until


def screen(page):
    return page.locator(".xterm-rows")


def type_line(page, text: str) -> None:
    page.keyboard.insert_text(text)
    page.keyboard.press("Enter")


def python_of_its_own(place: Path) -> Path:
    """A Python with a pip beside it that says whose it is."""
    place.mkdir(parents=True)
    for name, line in (("python", f'exec {REAL_PYTHON} "$@"'), ("pip", 'echo "pip of $(dirname "$0")"')):
        (place / name).write_text(f"#!/bin/sh\n{line}\n")
        (place / name).chmod(0o755)
    return place / "python"


def take_the_python(page, folder: Path) -> None:
    """What the project names is not on PATH before the user puts it there, with the command that is shown."""
    command = f"PATH={folder}:$PATH"
    expect(screen(page)).to_contain_text(f"if you trust the project, run: {command}")
    type_line(page, "echo before=[$(command -v pip)]")
    expect(screen(page)).to_contain_text("before=[/")
    expect(screen(page)).not_to_contain_text(f"before=[{folder}")
    type_line(page, command)


def away_and_back(page, root: Path) -> None:
    """It is the same shell after a reload; what was said while the page had no connection comes with it, once."""
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


def test_a_shell_in_the_folder_of_the_project(user, tmp_path):
    root = user.project()
    python = python_of_its_own(user.home / "own" / "bin")
    (root / "aml_config/local.compute").write_text(f"type: local\npythonLocation: {python}\n")
    user.env["SHELL"] = "/bin/bash"
    (user.home / ".bashrc").write_text("PATH=/usr/bin:$PATH\nPS1='ready> '\n")
    with looking(user, root, tmp_path) as looker:
        page = looker.go(f"/p/{key_of(root)}/terminal")
        expect(screen(page)).to_contain_text(f"for target local: {python}")
        expect(screen(page)).to_contain_text("ready>")
        page.locator(".xterm-screen").click()
        take_the_python(page, python.parent)
        type_line(page, "echo at $(pwd); pip; echo $(mlw --version | head -c 3)-works > told; tput colors")
        expect(screen(page)).to_contain_text(f"at {root}")
        expect(screen(page)).to_contain_text(f"pip of {python.parent}")
        expect(screen(page)).to_contain_text("256")
        wait_until(lambda: (root / "told").exists() and "-works" in (root / "told").read_text(), "mlw is there")
        assert (root / "told").read_text().startswith("mlw")

        # Ctrl-C reaches the program in front: between two programs of the line, it would reach none.
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
        away_and_back(page, root)

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
        looker.must_be_content()
        looker.bench.stop()
        wait_until(lambda: not os.path.exists(f"/proc/{shell}"), "the shell ends with the server")


def _narrower(page, root: Path, columns: int) -> bool:
    """Asks once and waits for the answer: what is typed meanwhile would only queue up."""
    answer = root / "size2"
    answer.unlink(missing_ok=True)
    type_line(page, "stty size > size2")
    wait_until(lambda: answer.exists() and answer.read_text().endswith("\n"), "the size of the terminal")
    return int(answer.read_text().split()[1]) < columns


def test_to_be_asked_for_the_page_starts_nothing(user, tmp_path):
    """Only an open page does: no address runs a program."""
    asked, root = user.project("asked"), user.project("opened")
    user.env["SHELL"] = str(user.home / "shell")
    started = user.home / "started"
    (user.home / "shell").write_text(f"#!/bin/sh\npwd >> {started}\nexec /bin/sh\n")
    (user.home / "shell").chmod(0o755)
    with looking(user, asked, tmp_path) as looker:
        for project in (asked, root):
            assert user.mlw("submit", "train.py", cwd=project).code == 0
        page = looker.go("/")  # both projects are known from their runs
        expect(page.get_by_role("link", name="opened", exact=True)).to_be_visible()
        answer = looker.ask(f"/p/{key_of(asked)}/terminal")
        assert answer.status == 200
        page = looker.go(f"/p/{key_of(root)}/terminal")
        wait_until(lambda: started.exists() and started.read_text() == f"{root}\n", "the shell of the open page only")
        page.locator(".xterm-screen").click()
        type_line(page, "exit")
        expect(screen(page)).to_contain_text("the shell has ended")
        assert started.read_text() == f"{root}\n"
        looker.must_be_content()
