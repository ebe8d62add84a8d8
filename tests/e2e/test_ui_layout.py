"""The layout of all pages: the menu on small screens, the notice after a logout, and a second `mlw ui`."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.machines.browser import browser_session

NAN = """
import math
import mlworkbench
for step in range(40):
    mlworkbench.log("spiky", math.nan if step % 10 == 5 else step, step=step)
mlworkbench.log("never", math.nan)
"""


def test_small_screen_expired_session_and_second_server(user, tmp_path):
    root = user.project(train=NAN)
    run = user.mlw("submit", "train.py", cwd=root).run
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/runs/{run}?tab=metrics")
        expect(page.get_by_text("4 non-finite values omitted")).to_be_visible()
        expect(page.get_by_text("no finite values")).to_be_visible()

        page.set_viewport_size({"width": 640, "height": 800})
        ui.go("/runs")
        expect(page.get_by_role("heading", name="All runs")).to_be_visible()
        expect(page.get_by_role("link", name="Projects")).not_to_be_in_viewport()
        page.get_by_role("button", name="Menu").click()
        expect(page.get_by_role("link", name="Projects")).to_be_in_viewport()

        port = ui.server.port
        again = user.mlw("ui", "--no-browser", "--port", port, cwd=root)
        assert again.code == 0 and "already running" in again.err
        with ui.context.browser.new_context() as another:
            visitor = another.new_page()
            visitor.goto(re.findall(r"http://\S+", again.err)[0])
            expect(visitor.get_by_role("heading", name="Projects")).to_be_visible()
        ui.assert_no_errors()

        other = ui.new_tab()
        other.goto(ui.server.address)
        other.get_by_role("button", name="Log out").click()
        other.wait_for_url("**/login")
        expect(page.get_by_role("alert").filter(has_text="You are logged out")).to_be_visible(timeout=30_000)
        page.get_by_role("button", name="Reload").click()
        expect(page.get_by_text("Run mlw ui again")).to_be_visible()
