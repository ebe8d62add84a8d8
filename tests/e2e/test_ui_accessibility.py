"""Accessibility of every page: axe-core, keyboard use, light and dark colors, and stable addresses."""

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

from mlworkbench.ui.queries.projects import key_of
from tests.conftest import User, end_processes
from tests.machines.browser import BrowserSession, browser_session, chromium, ui_server
from tests.machines.ui_routes import free_port, pages

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
# Impacts that fail the test. "moderate" and "minor" findings need a manual review.
SERIOUS_IMPACTS = ("serious", "critical")
COLOR_RULES = ["color-contrast", "link-in-text-block"]  # rules that dark colors can violate


@dataclass(frozen=True)
class UsedProject:
    """A user with a project and some runs."""

    user: User
    root: Any
    runs: list[str]

    @property
    def key(self) -> str:
        return key_of(self.root)

    @property
    def failed(self) -> str:
        """The address of the page of a failed run."""
        return f"/runs/{self.runs[1]}"

    def addresses(self) -> list[str]:
        """Return the addresses of all pages, and some that do not exist."""
        addresses = [route.filled(key=self.key, name=self.runs[0], run=self.runs[0]) for route in pages()]
        full = [path + (f"?runs={','.join(self.runs)}" if path == "/compare" else "") for path in addresses]
        lost = ["/compare", "/p/nowhere", "/p/nowhere/runs", "/runs/no-such-run", "/no/such/page"]
        return [*full, self.failed, f"/p/{self.key}/files?path=train.py", *lost]


@pytest.fixture(scope="module")
def used_project(tmp_path_factory) -> Iterator[UsedProject]:
    user = User(tmp_path_factory.mktemp("used"))
    try:
        root = user.project("demo", train=TRAINS)
        runs = [user.mlw("submit", "--name", f"try {lr}", "train.py", "--lr", lr, cwd=root).run for lr in ("0.1", "9")]
        yield UsedProject(user, root, runs)
    finally:
        end_processes(user.store)


def open_page(ui: BrowserSession, path: str) -> Any:
    page = ui.go(path)
    page.locator("h1:visible").first.wait_for()
    page.wait_for_load_state("networkidle")
    return page


def findings(page: Any, **options: Any) -> list[str]:
    """Return the serious findings of axe-core."""
    if not page.evaluate("!!window.axe"):
        page.evaluate(Axe().axe_script)
    options = {
        "resultTypes": ["violations"],
        "preload": False,  # load no audio and video, which our pages do not have
        **options,
    }
    violations = page.evaluate("async options => (await axe.run(options)).violations", options)
    return [
        f"{page.url}: {rule['id']} ({rule['impact']}): {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for rule in violations
        if rule["impact"] in SERIOUS_IMPACTS
        for node in rule["nodes"][:3]
    ]


def in_light_and_dark(page: Any) -> list[str]:
    """Return the findings in both color schemes. In the dark scheme, only the rules about colors are checked."""
    light = findings(page)
    with colors(page, "dark"):
        return light + [f"dark: {finding}" for finding in findings(page, runOnly=COLOR_RULES)]


@contextmanager
def colors(page: Any, scheme: str) -> Iterator[None]:
    """Switch to the dark color scheme ``scheme`` while the block runs."""
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function("document.body.classList.contains('body--dark')")
    yield
    page.emulate_media(color_scheme="light")
    page.wait_for_function("!document.body.classList.contains('body--dark')")


def assert_well_formed(page: Any, path: str) -> None:
    assert page.title().endswith("ML Workbench") and len(page.title()) > 15, (path, page.title())
    assert page.locator("h1:visible").count() == 1, path
    assert page.get_attribute("html", "lang"), path
    assert page.locator("main").count() == 1, path


def assert_fits_half_screen(page: Any, path: str) -> None:
    """Check that the page does not scroll sideways in a narrow window. Its tables, code, and logs may."""
    page.set_viewport_size({"width": 800, "height": 700})
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), f"{path} is too wide"
    page.set_viewport_size({"width": 1400, "height": 900})


# Controls that Tab must reach, except those in tab lists, grids, trees, and editors, which use arrow keys.
_REACHABLE = """() => [...document.querySelectorAll(
    "header button, header a[href], nav a[href], main button, main a[href], main input, main textarea")].filter(one =>
  !one.disabled && one.checkVisibility({visibilityProperty: true, opacityProperty: true}) && one.tabIndex >= 0
  && !one.closest("[role=tablist], [role=grid], [role=tree], [role=treegrid], .cm-editor, .xterm, [inert]")
  && one.getBoundingClientRect().width > 1)"""
# Returns whether the focus is in the terminal, the focused element's index, its visibility, and its HTML.
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
# Moves the focus to the start of the page, so that the next Tab reaches the first control.
_RESET_FOCUS = """() => {
  const start = Object.assign(document.createElement("span"), {tabIndex: -1});
  document.body.prepend(start);
  start.focus();
  start.remove();
}"""


def _walk(page: Any) -> list[str]:
    """Reset the focus and return the elements to reach."""
    page.evaluate(_RESET_FOCUS)
    return list(page.evaluate(f"(window.reachable = ({_REACHABLE})()).map(one => one.outerHTML.slice(0, 200))"))


def assert_reachable_by_keyboard(page: Any, path: str) -> None:
    """Check that every control is reachable by keyboard, and that the focus is visible."""
    if path.endswith("/terminal"):  # the terminal takes the focus on load and handles Tab itself
        page.wait_for_function("!!document.activeElement.closest('.xterm')")
    expected, reached, unseen = _walk(page), set(), []
    for _ in range(len(expected) + 60):
        page.keyboard.press("Tab")
        focus = page.evaluate(_FOCUS)
        if focus == "drawn again":  # the focused element was replaced: the page was still loading
            expected, reached = _walk(page), set()
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
    missing = [html for number, html in enumerate(expected) if number not in reached]
    assert missing == [], (path, missing)
    assert unseen == [], (path, unseen)


PARTS = 4  # number of tests that share the pages, so that none takes long


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_accessible(used_project, tmp_path, part):
    """Check pages and their tabs with axe-core, in both color schemes, in narrow windows, and by keyboard.

    Pages also log no console errors and send no requests to other hosts.
    """
    wrong: list[str] = []
    with browser_session(used_project.user, used_project.root, tmp_path, reduced_motion="reduce") as ui:
        for path in used_project.addresses()[part::PARTS]:
            page = open_page(ui, path)
            assert_well_formed(page, path)
            assert_reachable_by_keyboard(page, path)
            page.evaluate("document.activeElement.blur()")
            wrong += in_light_and_dark(page)
            assert_fits_half_screen(page, path)
            tabs = page.get_by_role("tab")
            # The tabs of run pages are checked only for the run that succeeded.
            for number in range(1, tabs.count() if path != used_project.failed else 0):
                tabs.nth(number).click()
                page.wait_for_load_state("networkidle")
                wrong += in_light_and_dark(page)
        # Pages that do not exist cause 404 messages.
        ui.console_errors = [message for message in ui.console_errors if "404" not in message]
        assert "\n".join(wrong) == ""
        ui.assert_no_errors()


def test_jobs_pane_and_dialog_are_accessible(used_project, tmp_path):
    with browser_session(used_project.user, used_project.root, tmp_path, reduced_motion="reduce") as ui:
        page = open_page(ui, "/")
        page.get_by_role("button", name="Jobs").click()
        page.locator(".mlw-jobs").get_by_text("Jobs").first.wait_for()
        wrong = in_light_and_dark(page)
        page.get_by_role("button", name="Jobs").first.click()
        page.locator(".mlw-jobs").get_by_text("Jobs").first.wait_for(state="hidden")
        page.get_by_role("button", name="Create project").click()
        page.get_by_role("dialog").wait_for()
        wrong += in_light_and_dark(page)
        assert "\n".join(wrong) == ""
        ui.assert_no_errors()


# -- by keyboard -------------------------------------------------------------------------------------------


def test_dialog_by_keyboard(used_project, tmp_path):
    """Enter opens the dialog, which keeps the focus; Escape closes it and returns the focus."""
    with browser_session(used_project.user, used_project.root, tmp_path) as ui:
        for path, name in (("/", "Create project"), ("/", "Open folder")):
            page = open_page(ui, path)
            page.get_by_role("button", name=name).focus()
            page.keyboard.press("Enter")
            dialog = page.get_by_role("dialog")
            dialog.wait_for()
            page.wait_for_function("!!document.activeElement.closest('[role=dialog]')")
            inside = "!document.activeElement.closest('header, nav, main')"  # also true in the browser's toolbar
            for _ in range(dialog.locator("button, input, a[href], [tabindex]").count() + 3):
                page.keyboard.press("Tab")
                assert page.evaluate(inside), name
            page.keyboard.press("Escape")
            dialog.wait_for(state="hidden")
            page.wait_for_function(f"document.activeElement.innerText?.includes({name!r})")
        ui.assert_no_errors()


# -- restored views ----------------------------------------------------------------------------------------


# Returns the parts of a view that must be the same after it is restored.
_VIEW = """() => ({
  address: location.href,
  title: document.title,
  heading: document.querySelector("h1")?.innerText ?? null,
  tab: document.querySelector("[role=tab][aria-selected=true]")?.innerText ?? null,
  fields: [...document.querySelectorAll("main input")].map(one => one.value),
})"""


def _settled(page: Any) -> dict[str, Any]:
    """Return the view after it stops changing."""
    before: dict[str, Any] = {}
    page.locator("h1").first.wait_for()
    while (now := page.evaluate(_VIEW)) != before:
        before = now
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)
    return now


def _assert_view(page: Any, view: dict[str, Any]) -> None:
    """Wait for the view, and check that it stays."""
    equal = f"wanted => JSON.stringify(({_VIEW})()) === wanted"
    with suppress(TimeoutError):  # the assertion below shows the difference
        page.wait_for_function(equal, arg=json.dumps(view, separators=(",", ":"), ensure_ascii=False), polling=50)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(_VIEW) == view


def test_views_are_restored_from_address(used_project, tmp_path):
    """Views are restored from their addresses after a reload, and by a restarted server."""
    run, key = used_project.runs[0], used_project.key
    states = [
        f"/runs?where={quote('loss < 1')}&sort=-created",
        f"/p/{key}/runs?text=try",
        f"/runs/{run}?tab=metrics",
        f"/runs/{run}?tab=log",
        f"/p/{key}/files?path=train.py",
        f"/compare?runs={','.join(used_project.runs)}",
        f"/p/{key}/targets",
    ]
    with (
        ui_server(used_project.user, used_project.root, tmp_path, "--port", free_port()) as server,
        chromium() as browser,
    ):
        ui = BrowserSession(browser, server)
        before = {}
        for path in states:
            ui.go(path)
            before[path] = _settled(ui.page)
            ui.page.reload()
            _assert_view(ui.page, before[path])
        port = server.port
        ui.page.goto("about:blank")
        server.stop()
        with ui_server(used_project.user, used_project.root, tmp_path, "--keep-address", "--port", port):
            for path, view in before.items():
                ui.go(path)
                _assert_view(ui.page, view)
        ui.assert_no_errors()
