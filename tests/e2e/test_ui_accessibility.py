"""Everybody can use every page: read by machines, by keyboard alone, in light and dark; and find it again later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError

from mlworkbench.ui.answers.projects import key_of
from tests.conftest import User, end_processes
from tests.machines.browser import Looker, chromium, looking, workbench
from tests.machines.doors import free_port, pages

TRAINS = """
import sys
import mlworkbench as mlw
mlw.log_param("lr", sys.argv[-1])
for step in range(20):
    print("epoch", step)
    mlw.log("loss", 1 / (step + 1), step=step)
    mlw.log("accuracy", step / 20, step=step)
mlw.log_text("note.md", "# A note")
mlw.log_table("table", {"x": [1, 2], "y": [3, 4]})
if sys.argv[-1] == "9":
    raise ValueError("lr is too large")
"""
# What a page of ours must not make worse than this. "moderate" and "minor" are read by people, not by this test.
GRAVE = ("serious", "critical")
COLOR_RULES = ["color-contrast", "link-in-text-block"]  # what dark colors can break


@dataclass(frozen=True)
class Used:
    """A user who has a project and some runs."""

    user: User
    root: Any
    runs: list[str]

    @property
    def key(self) -> str:
        return key_of(self.root)

    @property
    def failed(self) -> str:
        """The page of a run that failed."""
        return f"/runs/{self.runs[1]}"

    def addresses(self) -> list[str]:
        """Every page that there is, also one that is not."""
        found = [one.filled(key=self.key, name=self.runs[0], run=self.runs[0]) for one in pages()]
        full = [path + (f"?runs={','.join(self.runs)}" if path == "/compare" else "") for path in found]
        lost = ["/compare", "/p/nowhere", "/p/nowhere/runs", "/runs/no-such-run", "/no/such/page"]
        return [*full, self.failed, f"/p/{self.key}/files?path=train.py", *lost]


@pytest.fixture(scope="module")
def used(tmp_path_factory) -> Iterator[Used]:
    user = User(tmp_path_factory.mktemp("used"))
    try:
        root = user.project("demo", train=TRAINS)
        runs = [user.mlw("submit", "--name", f"try {lr}", "train.py", "--lr", lr, cwd=root).run for lr in ("0.1", "9")]
        yield Used(user, root, runs)
    finally:
        end_processes(user.store)


def open_page(looker: Looker, path: str) -> Any:
    page = looker.go(path)
    page.locator("h1:visible").first.wait_for()
    page.wait_for_load_state("networkidle")
    return page


def findings(page: Any, **options: Any) -> list[str]:
    """The grave ones of axe-core."""
    if not page.evaluate("!!window.axe"):
        page.evaluate(Axe().axe_script)
    options = {
        "resultTypes": ["violations"],
        "preload": False,
        **options,
    }  # preload: sounds and films, and we have none
    found = page.evaluate("async options => (await axe.run(options)).violations", options)
    return [
        f"{page.url}: {one['id']} ({one['impact']}): {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for one in found
        if one["impact"] in GRAVE
        for node in one["nodes"][:3]
    ]


def in_light_and_dark(page: Any) -> list[str]:
    """Findings in both: the page is the same but for its colors."""
    found = findings(page)
    with colors(page, "dark"):
        return found + [f"dark: {one}" for one in findings(page, runOnly=COLOR_RULES)]


@contextmanager
def colors(page: Any, scheme: str) -> Iterator[None]:
    """The system changes to this scheme, and back."""
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function("document.body.classList.contains('body--dark')")
    yield
    page.emulate_media(color_scheme="light")
    page.wait_for_function("!document.body.classList.contains('body--dark')")


def must_be_well_formed(page: Any, path: str) -> None:
    assert page.title().endswith("ML Workbench") and len(page.title()) > 15, (path, page.title())
    assert page.locator("h1:visible").count() == 1, path
    assert page.get_attribute("html", "lang"), path
    assert page.locator("main").count() == 1, path


def must_fit_half_a_screen(page: Any, path: str) -> None:
    """Nothing but tables, code and logs is wider than the window."""
    page.set_viewport_size({"width": 800, "height": 700})
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), f"{path} is too wide"
    page.set_viewport_size({"width": 1400, "height": 900})


# What can be pressed or filled in, but for what moves by arrow keys within one stop (tabs, grids, trees, editors).
_REACHABLE = """() => [...document.querySelectorAll(
    "header button, header a[href], nav a[href], main button, main a[href], main input, main textarea")].filter(one =>
  !one.disabled && one.checkVisibility({visibilityProperty: true, opacityProperty: true}) && one.tabIndex >= 0
  && !one.closest("[role=tablist], [role=grid], [role=tree], [role=treegrid], .cm-editor, .xterm, [inert]")
  && one.getBoundingClientRect().width > 1)"""
# Where the focus is: in the terminal, at which of them, whether it can be seen, and what has it.
_FOCUS = """async () => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const shown = () => {
    const style = getComputedStyle(one);
    return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)
      || style.boxShadow.includes("0px 0px 0px 2px")
      || !!one.closest(".q-field--focused, .cm-editor, .ag-root, .xterm, [role=grid], .q-tab, [role=tree], iframe");
  };
  const pause = () => new Promise(done => setTimeout(done, 20));
  for (let tries = 0; tries < 50 && one.isConnected && !shown(); tries++) await pause();
  if (!one.isConnected) return "drawn again";
  let at = window.reachable.indexOf(one);
  if (at < 0) at = (window.reachable = (REACHABLE)()).indexOf(one);  // it was drawn again
  return [!!one.closest(".xterm"), at, shown(), one.outerHTML.slice(0, 200)];
}""".replace("REACHABLE", _REACHABLE)
# The next Tab leads to the first element of the page.
_TO_THE_START = """() => {
  const start = Object.assign(document.createElement("span"), {tabIndex: -1});
  document.body.prepend(start);
  start.focus();
  start.remove();
}"""


def _walk(page: Any) -> list[str]:
    """Begin anew; what is to be reached."""
    page.evaluate(_TO_THE_START)
    return list(page.evaluate(f"(window.reachable = ({_REACHABLE})()).map(one => one.outerHTML.slice(0, 200))"))


def must_be_reached_by_keyboard(page: Any, path: str) -> None:
    """Every action, and the focus is seen."""
    if path.endswith("/terminal"):  # it takes the focus when it is there, and Tab is its own
        page.wait_for_function("!!document.activeElement.closest('.xterm')")
    wanted, reached, unseen = _walk(page), set(), []
    for _ in range(len(wanted) + 60):
        page.keyboard.press("Tab")
        focus = page.evaluate(_FOCUS)
        if focus == "drawn again":  # and what had the focus is gone: a page that is slow to be complete
            wanted, reached = _walk(page), set()
            continue
        if focus is None or focus[0]:
            break
        if not focus[2]:
            unseen.append(focus[3])
        reached.add(focus[1])
    if path.endswith("/terminal"):
        page.locator(".xterm-helper-textarea").focus()
        page.keyboard.press("Shift+Escape")
        assert page.evaluate("!!document.activeElement.closest('nav')"), "Shift and Escape leave it"
    missing = [html for number, html in enumerate(wanted) if number not in reached]
    assert missing == [], (path, missing)
    assert unseen == [], (path, unseen)


PARTS = 4  # of the pages, so that no test takes long


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_for_everybody(used, tmp_path, part):
    """Read by machines, in light and dark, in narrow windows, by keyboard; each tab of each page can be read, too.

    And no page complains, or asks anybody else for anything.
    """
    wrong: list[str] = []
    with looking(used.user, used.root, tmp_path, reduced_motion="reduce") as looker:
        for path in used.addresses()[part::PARTS]:
            page = open_page(looker, path)
            must_be_well_formed(page, path)
            must_be_reached_by_keyboard(page, path)
            page.evaluate("document.activeElement.blur()")
            wrong += in_light_and_dark(page)
            must_fit_half_a_screen(page, path)
            tabs = page.get_by_role("tab")
            for number in range(1, tabs.count() if path != used.failed else 0):  # those of another run are checked
                tabs.nth(number).click()
                page.wait_for_load_state("networkidle")
                wrong += in_light_and_dark(page)
        looker.complaints = [said for said in looker.complaints if "404" not in said]  # of pages that are not there
        assert "\n".join(wrong) == ""
        looker.must_be_content()


def test_jobs_and_a_dialog_can_be_read_by_machines(used, tmp_path):
    with looking(used.user, used.root, tmp_path, reduced_motion="reduce") as looker:
        page = open_page(looker, "/")
        page.get_by_role("button", name="Jobs").click()
        page.locator(".mlw-jobs").get_by_text("Jobs").first.wait_for()
        wrong = in_light_and_dark(page)
        page.get_by_role("button", name="Jobs").first.click()
        page.locator(".mlw-jobs").get_by_text("Jobs").first.wait_for(state="hidden")
        page.get_by_role("button", name="Create project").click()
        page.get_by_role("dialog").wait_for()
        wrong += in_light_and_dark(page)
        assert "\n".join(wrong) == ""
        looker.must_be_content()


# -- by keyboard -------------------------------------------------------------------------------------------


def test_a_dialog_by_keyboard(used, tmp_path):
    """Enter opens it, the focus is in it and stays there, Escape closes it, and one is where one was."""
    with looking(used.user, used.root, tmp_path) as looker:
        for path, name in (("/", "Create project"), ("/", "Open folder")):
            page = open_page(looker, path)
            page.get_by_role("button", name=name).focus()
            page.keyboard.press("Enter")
            dialog = page.get_by_role("dialog")
            dialog.wait_for()
            page.wait_for_function("!!document.activeElement.closest('[role=dialog]')")
            inside = "!document.activeElement.closest('header, nav, main')"  # the browser's own bar is between
            for _ in range(dialog.locator("button, input, a[href], [tabindex]").count() + 3):
                page.keyboard.press("Tab")
                assert page.evaluate(inside), name
            page.keyboard.press("Escape")
            dialog.wait_for(state="hidden")
            page.wait_for_function(f"document.activeElement.innerText?.includes({name!r})")
        looker.must_be_content()


# -- found again -------------------------------------------------------------------------------------------


# What makes it this view.
_VIEW = """() => ({
  address: location.href,
  title: document.title,
  heading: document.querySelector("h1")?.innerText ?? null,
  tab: document.querySelector("[role=tab][aria-selected=true]")?.innerText ?? null,
  fields: [...document.querySelectorAll("main input")].map(one => one.value),
})"""


def _settled(page: Any) -> dict[str, Any]:
    """The view, once it changes no more."""
    before: dict[str, Any] = {}
    page.locator("h1").first.wait_for()
    while (now := page.evaluate(_VIEW)) != before:
        before = now
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)
    return now


def _must_become(page: Any, view: dict[str, Any]) -> None:
    """And stay so."""
    equal = f"wanted => JSON.stringify(({_VIEW})()) === wanted"
    with suppress(TimeoutError):  # the assertion tells what differs
        page.wait_for_function(equal, arg=json.dumps(view, separators=(",", ":"), ensure_ascii=False), polling=50)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(_VIEW) == view


def test_views_are_found_again(used, tmp_path):
    """By their addresses: after a reload, in another tab, and by a server that was started anew."""
    run, key = used.runs[0], used.key
    states = [
        f"/runs?where={quote('loss < 1')}&sort=-created",
        f"/p/{key}/runs?text=try",
        f"/runs/{run}?tab=metrics",
        f"/runs/{run}?tab=log",
        f"/p/{key}/files?path=train.py",
        f"/compare?runs={','.join(used.runs)}",
        f"/p/{key}/targets",
    ]
    with workbench(used.user, used.root, tmp_path, "--port", free_port()) as bench, chromium() as browser:
        looker = Looker(browser, bench)
        before = {}
        for path in states:
            looker.go(path)
            before[path] = _settled(looker.page)
            looker.page.reload()
            _must_become(looker.page, before[path])
        port = bench.port
        looker.page.goto("about:blank")
        bench.stop()
        with workbench(used.user, used.root, tmp_path, "--keep-address", "--port", port):
            for path, view in before.items():
                looker.go(path)
                _must_become(looker.page, view)
        looker.must_be_content()
