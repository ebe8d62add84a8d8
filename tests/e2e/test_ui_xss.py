"""No untrusted text runs as code in the browser: 200 payloads in every field, on every page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Error, TimeoutError

from mlworkbench.sanitize import plain
from mlworkbench.ui.queries.projects import key_of
from tests.conftest import User, end_processes
from tests.machines.browser import BrowserSession, chromium, ui_server
from tests.machines.hostile import OUTPUTS, Hostile, prepare
from tests.machines.payloads import PAYLOADS, XSS_RECORDER, file_names, representative_payloads
from tests.machines.ui_routes import new_link, pages

IMAGE = PAYLOADS[27]  # <img src=x onerror=…>
# Buttons with lasting effects, such as logging out, starting a run, or deleting data.
EXCLUDED_BUTTONS = re.compile(
    r"log out|(^|\n)run$|archive|delete|remove|download|forget|copy|theme|from the list", re.IGNORECASE
)


PARTS = 3  # number of groups of pages, so that no single test takes long
BUTTONS = "main button, header button, main [role=button]"
_LABELS = """selector => [...document.querySelectorAll(selector)]
  .map(button => button.checkVisibility() ? button.innerText + (button.ariaLabel ?? '') : '')"""
# Marks the nth button with this label. A mark stays with its button, but the number of a button changes when others
# appear or disappear: "Cancel" could become "Archive", which hides all selected runs from the other tests.
_MARK = f"""([selector, label, nth]) => {{
  document.querySelector('[data-marked]')?.removeAttribute('data-marked');
  const labels = ({_LABELS})(selector);
  const number = labels.map((text, index) => [text, index]).filter(([text]) => text === label)[nth]?.[1];
  document.querySelectorAll(selector)[number]?.setAttribute('data-marked', '');
}}"""
# Returns signs that a payload ran: an evaluated template, or elements that only a payload would create.
_HARM = """() => [
  ...document.body.innerText.match(/\\b1337\\b/g) ?? [],
  ...[...document.querySelectorAll("img[src='x'], [onerror], [onload], svg[onload], [href^='javascript:' i]")]
    .map(one => one.outerHTML.slice(0, 200)),
]"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Iterator[tuple[User, Hostile]]:
    user = User(tmp_path_factory.mktemp("hostile"))
    try:
        yield user, prepare(user)
    finally:
        end_processes(user.store)


class Witness(BrowserSession):
    """Visits pages and records the payloads that run."""

    def __init__(self, browser, server) -> None:
        super().__init__(browser, server, accept_downloads=True)
        self.context.add_init_script(XSS_RECORDER)
        self.page.on("dialog", lambda dialog: (self.console_errors.append(f"RAN {dialog.message}"), dialog.dismiss()))
        self.page.on("popup", lambda other: self.console_errors.append(f"RAN and opened {other.url}"))

    def see(self, path: str, *texts: str) -> None:
        """Open a page and wait for these texts: an empty page proves nothing."""
        page = self.go(path)
        page.locator("h1").first.wait_for()
        for text in texts:
            expected = " ".join(plain(text, 60).removesuffix("…").split())
            page.get_by_text(expected).first.wait_for(state="attached")
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_load_state("networkidle")
        self.assert_no_payload_ran()

    def assert_no_payload_ran(self) -> None:
        ran = [message for message in self.console_errors if "RAN" in message]
        assert ran == [] and self.external_requests == [], self.page.url
        assert self._evaluate(_HARM) == [], self.page.url

    def _evaluate(self, function: str, argument: object = None) -> Any:
        """Call a JavaScript function in the page. A click may have led to another page, so wait for its content."""
        complete = f"argument => document.body && JSON.stringify(({function})(argument) ?? null)"
        return json.loads(self.page.wait_for_function(complete, arg=argument).json_value())

    def try_everything(self) -> None:
        """Hover over all charts, open all tabs, press all buttons, and close what they open."""
        page, address = self.page, self.page.url
        for number in range(min(page.get_by_role("tab").count(), 20)):
            page.get_by_role("tab").nth(number).click()
            self.settle()
            self._hover("canvas")
        for label, nth in self._buttons():
            self._evaluate(_MARK, [BUTTONS, label, nth])
            try:
                page.locator("[data-marked]").click(timeout=1000)
            except Exception:  # noqa: BLE001 - the button disappeared or is covered
                continue
            self.settle()
            page.keyboard.press("Escape")
            self._go_back(address)
        self._hover("canvas, time, .mlw-status")

    def _go_back(self, address: str) -> None:
        """Return to the page if a button led to another page. A navigation may already be in progress."""
        while self.page.url.partition("?")[0] != address.partition("?")[0]:
            with suppress(Error):
                self.page.goto(address)
        self.settle()

    def _buttons(self) -> list[tuple[str, int]]:
        """Return the buttons to press: the first three of those whose labels start with the same word.

        A button is its label, and its number among the buttons with that label.
        """
        labels = self._evaluate(_LABELS, BUTTONS)
        kinds: dict[str, list[tuple[str, int]]] = {}
        for number, label in enumerate(labels):
            if label.strip() and not EXCLUDED_BUTTONS.search(label):
                kinds.setdefault(label.split()[0], []).append((label, labels[:number].count(label)))
        return [button for buttons in kinds.values() for button in buttons[:3]]

    def _hover(self, what: str) -> None:
        for number in range(min(self.page.locator(what).count(), 6)):
            element = self.page.locator(what).nth(number)
            try:
                box = element.bounding_box(timeout=1000) if element.is_visible() else None
            except TimeoutError:
                continue  # the chart was redrawn or removed in the meantime
            if box:
                for share in (0.2, 0.5, 0.9):
                    self.page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
        self.assert_no_payload_ran()


@pytest.fixture(scope="module")
def server(hostile, tmp_path_factory):
    user, prepared = hostile
    with ui_server(user, prepared.root, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def witness(hostile, server, tmp_path):
    user, _ = hostile
    with chromium() as browser:
        server.link = new_link(server, user.store)  # each test logs in again, and a link works only once
        yield Witness(browser, server)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_with_all_controls(witness, hostile, part):
    """Open every page, including pages added later, and use its tabs, buttons, and tooltips."""
    _, prepared = hostile
    for route in pages()[part::PARTS]:
        path = route.filled(key=key_of(prepared.root), name=prepared.run, run=prepared.run)
        if path == "/compare":
            path += f"?runs={prepared.run},{prepared.made[27]},{prepared.made[107]}"
        witness.see(path)
        witness.try_everything()


def test_payloads_are_shown_as_text(witness, hostile):
    _, prepared = hostile
    key = key_of(prepared.root)
    witness.see("/", IMAGE, *representative_payloads()[4:8])
    witness.see("/runs", PAYLOADS[0], PAYLOADS[1])
    witness.page.get_by_role("button", name="Jobs").click()
    for text in (PAYLOADS[30], PAYLOADS[107]):
        witness.page.locator(".mlw-jobs").get_by_text(text).first.wait_for()
    witness.see(f"/p/{key}", IMAGE)
    witness.see(f"/p/{key}/runs", PAYLOADS[0], PAYLOADS[1])
    witness.see(f"/p/{key}/files", file_names()[3])
    witness.see(f"/p/{key}/targets", "t0", PAYLOADS[27 + 3 * 9], "[x](data:text/html,<script>")
    witness.see(f"/runs/{prepared.run}", PAYLOADS[28], PAYLOADS[29])
    witness.see(f"/runs/{prepared.run}?tab=log", PAYLOADS[0], IMAGE)
    witness.see(f"/runs/{prepared.run}?tab=metrics", PAYLOADS[0], IMAGE)
    witness.see(f"/runs/{prepared.run}?tab=outputs", file_names()[3])
    witness.see(f"/runs/{prepared.run}?tab=code", "train.py")
    witness.see(f"/compare?runs={prepared.made[27]},{prepared.made[107]}", IMAGE, PAYLOADS[107])


def test_all_grid_rows(witness, hostile):
    """Scroll through runs in which each payload is a name, script, target, tag, argument, parameter, and cause."""
    _, prepared = hostile
    witness.see("/runs", PAYLOADS[0])
    body = witness.page.locator(".ag-body-viewport, .mlw-grid, main").first
    body.hover()
    for _ in range(40):
        witness.page.mouse.wheel(0, 400)
        witness.assert_no_payload_ran()
    witness.settle()


def test_runs_and_projects_with_one_payload(witness, hostile):
    _, prepared = hostile
    for text, root in zip(representative_payloads(), prepared.others, strict=True):
        run = prepared.made[PAYLOADS.index(text)]
        witness.see(f"/runs/{run}", text)
        witness.see(f"/p/{key_of(root)}", text)
    for number in range(0, len(representative_payloads()), 8):
        runs = [prepared.made[PAYLOADS.index(text)] for text in representative_payloads()[number : number + 8]]
        witness.see(f"/compare?runs={','.join(runs)}", representative_payloads()[number])


def test_hostile_files_in_previews_and_editor(witness, hostile):
    """Open hostile files as previews, in the editor, and at their own addresses, where a browser might render them."""
    _, prepared = hostile
    key, names = key_of(prepared.root), file_names()
    for name in (*OUTPUTS, names[0], names[1] + ".png"):
        witness.see(f"/runs/{prepared.run}?tab=outputs&path={quote(name, safe='')}")
        api = f"/api/runs/{prepared.run}/outputs/file?path={quote(name, safe='')}"
        answer = witness.request(api)
        assert answer.status == 200, (name, answer.text())
        assert answer.headers["content-security-policy"].startswith("sandbox"), name
        assert answer.headers["content-disposition"].startswith("attachment"), name
        kind = answer.headers["content-type"].partition(";")[0]
        # An SVG runs no code as an image; at its own address it is a sandboxed download, like all files.
        plain_kinds = ("application/octet-stream", "image/png", "image/gif", "image/svg+xml", "text/plain")
        assert kind in plain_kinds, (name, kind)
        witness.page.evaluate("address => { const f = document.createElement('iframe'); f.src = address;"
                              " document.body.append(f); }", api)  # fmt: skip
        witness.assert_no_payload_ran()
    for path in ("readme.md", f"{names[5]}.md", f"{names[6]}.svg", f"{names[3]}/{names[4]}.py", "picture.png",
                 "aml_config/broken.compute", "aml_config/broken.runconfig", f"data/{names[0]}"):  # fmt: skip
        witness.see(f"/p/{key}/files?path={quote(path, safe='')}")
    for word in (IMAGE, "javascript:xss(1)"):  # payloads in the address itself
        for path in (f"/runs?q={quote(word)}&sort={quote(word)}&where={quote(word)}", f"/compare?runs={quote(word)}",
                     f"/p/{quote(word, safe='')}", f"/runs/{quote(word, safe='')}?tab={quote(word)}",
                     f"/p/{key}/files?path={quote(word)}", f"/p/{key}/targets?name={quote(word)}",
                     f"/{quote(word, safe='')}"):  # fmt: skip
            witness.go(path)
            witness.settle()
