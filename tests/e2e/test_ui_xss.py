"""No text of anybody's becomes a program in the browser: 200 that try, in every field, on every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

import pytest
from playwright.sync_api import Error, TimeoutError

from mlworkbench.report.plain import plain
from mlworkbench.ui.answers.projects import key_of
from tests.conftest import User, end_processes
from tests.machines.browser import Looker, chromium, workbench
from tests.machines.doors import new_link, pages
from tests.machines.hostile import OUTPUTS, Hostile, prepare
from tests.machines.payloads import LISTENING, PAYLOADS, file_names, telling

IMAGE = PAYLOADS[27]  # <img src=x onerror=…>
# What a click must not do here: it ends the visit, or starts and ends things by the dozen.
LEAVE = re.compile(r"log out|^run$|archive|delete|remove|download|forget|copy|theme|from the list", re.IGNORECASE)


PARTS = 3  # of the pages, so that no test takes long
BUTTONS = "main button, header button, main [role=button]"
# A template that was filled in, and elements that only a payload would make.
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


class Witness(Looker):
    """Looks at pages, and hears whatever a payload says that has run."""

    def __init__(self, browser, bench) -> None:
        super().__init__(browser, bench, accept_downloads=True)
        self.context.add_init_script(LISTENING)
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"RAN {dialog.message}"), dialog.dismiss()))
        self.page.on("popup", lambda other: self.complaints.append(f"RAN and opened {other.url}"))

    def see(self, path: str, *texts: str) -> None:
        """Go there, and wait for these texts: what shows nothing proves nothing."""
        page = self.go(path)
        page.locator("h1").first.wait_for()
        for text in texts:
            wanted = " ".join(plain(text, 60).removesuffix("…").split())
            page.get_by_text(wanted).first.wait_for(state="attached")
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_load_state("networkidle")
        self.must_be_unharmed()

    def must_be_unharmed(self) -> None:
        ran = [said for said in self.complaints if "RAN" in said]
        assert ran == [] and self.outside == [], self.page.url
        found = self.page.wait_for_function(
            f"JSON.stringify(({_HARM})())"
        )  # a click may lead to another page meanwhile
        assert found.json_value() == "[]", self.page.url

    def try_everything(self) -> None:
        """Hover over all charts, turn to all tabs, press all buttons and close what they open."""
        page, there = self.page, self.page.url
        for number in range(min(page.get_by_role("tab").count(), 20)):
            page.get_by_role("tab").nth(number).click()
            self.settle()
            self._hover("canvas")
        for number in self._buttons():
            try:
                page.locator(BUTTONS).nth(number).click(timeout=1000)
            except Exception:  # noqa: BLE001 - it went away, or something lies over it
                continue
            self.settle()
            page.keyboard.press("Escape")
            self._go_back(there)
        self._hover("canvas, time, .mlw-status")

    def _go_back(self, address: str) -> None:
        """If a button has led away. It may do so while the page is on its way back already."""
        while self.page.url.partition("?")[0] != address.partition("?")[0]:
            with suppress(Error):
                self.page.goto(address)
        self.settle()

    def _buttons(self) -> list[int]:
        """The numbers of those to press: of each kind, which is the first word of a button, the first three."""
        labels = self.page.locator(BUTTONS).evaluate_all(
            "all => all.map(one => one.checkVisibility() ? one.innerText + (one.ariaLabel ?? '') : '')"
        )
        kinds: dict[str, list[int]] = {}
        for number, label in enumerate(labels):
            if label.strip() and not LEAVE.search(label):
                kinds.setdefault(label.split()[0], []).append(number)
        return sorted(number for numbers in kinds.values() for number in numbers[:3])

    def _hover(self, what: str) -> None:
        for number in range(min(self.page.locator(what).count(), 6)):
            one = self.page.locator(what).nth(number)
            try:
                box = one.bounding_box(timeout=1000) if one.is_visible() else None
            except TimeoutError:
                continue  # the chart was drawn again or went away meanwhile
            if box:
                for share in (0.2, 0.5, 0.9):
                    self.page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
        self.must_be_unharmed()


@pytest.fixture(scope="module")
def bench(hostile, tmp_path_factory):
    user, found = hostile
    with workbench(user, found.root, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def witness(hostile, bench, tmp_path):
    user, _ = hostile
    with chromium() as browser:
        bench.link = new_link(bench, user.store)  # for each test a browser of its own
        yield Witness(browser, bench)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_with_everything(witness, hostile, part):
    """All routes that are pages, whatever comes later; with their tabs, dialogs and tooltips."""
    _, found = hostile
    for one in pages()[part::PARTS]:
        path = one.filled(key=key_of(found.root), name=found.run, run=found.run)
        if path == "/compare":
            path += f"?runs={found.run},{found.made[27]},{found.made[107]}"
        witness.see(path)
        witness.try_everything()


def test_what_the_pages_show_of_it(witness, hostile):
    """The very texts stand there, as texts."""
    _, found = hostile
    key = key_of(found.root)
    witness.see("/", IMAGE, *telling()[4:8])
    witness.see("/runs", PAYLOADS[0], PAYLOADS[1])
    witness.page.get_by_role("button", name="Jobs").click()
    for text in (PAYLOADS[30], PAYLOADS[107]):
        witness.page.locator(".mlw-jobs").get_by_text(text).first.wait_for()
    witness.see(f"/p/{key}", IMAGE)
    witness.see(f"/p/{key}/runs", PAYLOADS[0], PAYLOADS[1])
    witness.see(f"/p/{key}/files", file_names()[3])
    witness.see(f"/p/{key}/targets", "t0", PAYLOADS[27 + 3 * 9], "[x](data:text/html,<script>")
    witness.see(f"/runs/{found.run}", PAYLOADS[28], PAYLOADS[29])
    witness.see(f"/runs/{found.run}?tab=log", PAYLOADS[0], IMAGE)
    witness.see(f"/runs/{found.run}?tab=metrics", PAYLOADS[0], IMAGE)
    witness.see(f"/runs/{found.run}?tab=outputs", file_names()[3])
    witness.see(f"/runs/{found.run}?tab=code", "train.py")
    witness.see(f"/compare?runs={found.made[27]},{found.made[107]}", IMAGE, PAYLOADS[107])


def test_all_rows_of_the_grid(witness, hostile):
    """Each payload as a name, a script, a target, a tag, an argument, a parameter, a cause."""
    _, found = hostile
    witness.see("/runs", PAYLOADS[0])
    body = witness.page.locator(".ag-body-viewport, .mlw-grid, main").first
    body.hover()
    for _ in range(40):
        witness.page.mouse.wheel(0, 400)
        witness.must_be_unharmed()
    witness.settle()


def test_runs_and_projects_with_one_payload_each(witness, hostile):
    _, found = hostile
    for text, root in zip(telling(), found.others, strict=True):
        run = found.made[PAYLOADS.index(text)]
        witness.see(f"/runs/{run}", text)
        witness.see(f"/p/{key_of(root)}", text)
    for number in range(0, len(telling()), 8):
        runs = [found.made[PAYLOADS.index(text)] for text in telling()[number : number + 8]]
        witness.see(f"/compare?runs={','.join(runs)}", telling()[number])


def test_files_that_are_looked_at(witness, hostile):
    """As previews, in the editor, and by their own addresses, where a browser would make pages of them."""
    _, found = hostile
    key, names = key_of(found.root), file_names()
    for name in (*OUTPUTS, names[0], names[1] + ".png"):
        witness.see(f"/runs/{found.run}?tab=outputs&path={quote(name, safe='')}")
        api = f"/api/runs/{found.run}/outputs/file?path={quote(name, safe='')}"
        answer = witness.ask(api)
        assert answer.status == 200, (name, answer.text())
        assert answer.headers["content-security-policy"].startswith("sandbox"), name
        assert answer.headers["content-disposition"].startswith("attachment"), name
        kind = answer.headers["content-type"].partition(";")[0]
        # A drawing runs nothing as a picture; by its own address it is a download in a sandbox, as all of them.
        plain_kinds = ("application/octet-stream", "image/png", "image/gif", "image/svg+xml", "text/plain")
        assert kind in plain_kinds, (name, kind)
        witness.page.evaluate("address => { const f = document.createElement('iframe'); f.src = address;"
                              " document.body.append(f); }", api)  # fmt: skip
        witness.must_be_unharmed()
    for path in ("readme.md", f"{names[5]}.md", f"{names[6]}.svg", f"{names[3]}/{names[4]}.py", "picture.png",
                 "aml_config/broken.compute", "aml_config/broken.runconfig", f"data/{names[0]}"):  # fmt: skip
        witness.see(f"/p/{key}/files?path={quote(path, safe='')}")
    for word in (IMAGE, "javascript:xss(1)"):  # what an address itself brings
        for path in (f"/runs?q={quote(word)}&sort={quote(word)}&where={quote(word)}", f"/compare?runs={quote(word)}",
                     f"/p/{quote(word, safe='')}", f"/runs/{quote(word, safe='')}?tab={quote(word)}",
                     f"/p/{key}/files?path={quote(word)}", f"/p/{key}/targets?name={quote(word)}",
                     f"/{quote(word, safe='')}"):  # fmt: skip
            witness.go(path)
            witness.settle()
