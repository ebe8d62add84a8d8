"""Project files in a real browser: edit, check, and save without losing changes."""

from __future__ import annotations

import http.client
import json
import os
import re
import stat
from contextlib import closing
from urllib.parse import urlencode

from playwright.sync_api import expect

from mlworkbench.ui.queries.projects import key_of
from tests.machines.browser import BrowserSession, browser_session, chromium, ui_server
from tests.machines.network import wait_until
from tests.machines.ui_routes import free_port

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


OUTSIDE = ("../secret.txt", "up/secret.txt", "leak.txt", "/etc/passwd", "aml_config/../../secret.txt", "a\0b")


def editor(page):
    return page.locator(".cm-content")


def open_file(ui, key: str, path: str):
    page = ui.go(f"/p/{key}/files?" + urlencode({"path": path}))
    expect(editor(page)).to_be_visible()
    return page


def insert_at_start(page, text: str) -> None:
    editor(page).click()
    page.keyboard.press("Control+Home")
    page.keyboard.insert_text(text)


def test_unsaved_changes_survive_reload_and_conflicts(user, tmp_path):
    root = user.project(train="print(1)\n", other="print(2)\n")
    script = root / "train.py"
    script.chmod(0o755)
    key = key_of(root)
    with browser_session(user, root, tmp_path) as ui:
        page = open_file(ui, key, "train.py")
        insert_at_start(page, "# mine\n")
        expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()

        page.reload()
        expect(editor(page)).to_contain_text("# mine")
        page.get_by_role("treeitem", name="other.py").click()
        expect(editor(page)).to_contain_text("print(2)")
        page.wait_for_url("**path=other.py")
        expect(page.get_by_role("treeitem", name="train.py")).to_contain_text("unsaved")
        page.get_by_role("treeitem", name="train.py").click()
        expect(editor(page)).to_contain_text("# mine")
        assert script.read_text() == "print(1)\n"

        page.keyboard.press("Control+s")
        wait_until(lambda: script.read_text() == "# mine\nprint(1)\n", "the file is written")
        assert stat.S_IMODE(script.stat().st_mode) == 0o755
        expect(page.get_by_text("Unsaved changes", exact=True)).to_have_count(0)

        script.write_text("print('from outside')\n")
        expect(editor(page)).to_contain_text("from outside")

        insert_at_start(page, "# typed\n")
        script.write_text("print('again')\n")
        expect(page.get_by_text("was changed on disk.")).to_be_visible()
        page.keyboard.press("Control+s")
        page.get_by_role("button", name="Show differences").click()
        expect(page.get_by_text("+# typed")).to_be_visible()
        expect(page.get_by_text("-print('again')")).to_be_visible()
        page.get_by_role("button", name="Close").click()
        assert script.read_text() == "print('again')\n", "nobody has chosen yet"
        page.reload()
        expect(page.get_by_text("was changed on disk after you started")).to_be_visible()
        page.get_by_role("button", name="Overwrite").click()
        wait_until(lambda: script.read_text() == "# typed\nprint('from outside')\n", "the file is overwritten")
        expect(page.get_by_text("was changed on disk")).to_have_count(0)

        insert_at_start(page, "# away\n")
        expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()
        page.get_by_role("button", name="Discard").click()
        page.get_by_role("dialog").get_by_role("button", name="Discard").click()
        expect(page.get_by_text("Unsaved changes", exact=True)).to_have_count(0)
        expect(editor(page)).not_to_contain_text("# away")
        ui.assert_no_errors()


def test_unsaved_changes_survive_server_restart(user, tmp_path):
    """Text typed while the server was away is kept, too."""
    root = user.project(train="print(1)\n")
    key, port = key_of(root), str(free_port())
    with chromium() as browser:
        with ui_server(user, root, tmp_path, "--port", port) as first:
            ui = BrowserSession(browser, first)
            page = open_file(ui, key, "train.py")
            insert_at_start(page, "# kept\n")
            expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()
            first.stop()
        insert_at_start(page, "# away\n")
        page.wait_for_function("Object.values(sessionStorage).some(text => text.startsWith('# away'))")
        with ui_server(user, root, tmp_path, "--keep-address", "--port", port):
            page.reload()
            expect(editor(page)).to_contain_text("# away# kept")
            expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()
            assert (root / "train.py").read_text() == "print(1)\n"


def test_unsaved_changes_of_deleted_file(user, tmp_path):
    """A draft does not block runs forever: the user can find it again, and save or discard it."""
    root = user.project(train="print('it ran')\n", other="print(2)\n")
    (root / "deep").mkdir()
    (root / "deep/lost.py").write_text("print(3)\n")
    key = key_of(root)
    with browser_session(user, root, tmp_path) as ui:
        for path in ("deep/lost.py", "other.py"):
            page = open_file(ui, key, path)
            insert_at_start(page, "# typed\n")
            expect(page.get_by_text("Unsaved changes", exact=True)).to_be_visible()
        (root / "other.py").unlink()
        expect(page.get_by_text("other.py was deleted on disk.")).to_be_visible()
        (root / "deep/lost.py").unlink()
        (root / "deep").rmdir()

        page = ui.go(f"/p/{key}")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_text("deep/lost.py was deleted on disk")).to_be_visible()
        page = ui.go(f"/p/{key}/files")
        unsaved = page.get_by_role("group", name="Unsaved files")
        unsaved.get_by_role("button", name="deep/lost.py").click()
        expect(page.get_by_text("deep/lost.py was deleted on disk.")).to_be_visible()
        expect(editor(page)).to_contain_text("# typed")
        page.get_by_role("button", name="Save again").click()
        wait_until(
            lambda: (root / "deep/lost.py").exists() and (root / "deep/lost.py").read_text() == "# typed\nprint(3)\n",
            "the file is there again",
        )
        expect(page.get_by_text("was deleted on disk")).to_have_count(0)
        unsaved.get_by_role("button", name="other.py").click()
        expect(page.get_by_text("other.py was deleted on disk.")).to_be_visible()
        page.get_by_role("alert").get_by_role("button", name="Discard").click()
        page.get_by_role("dialog").get_by_role("button", name="Discard").click()
        expect(unsaved.get_by_role("button")).to_have_count(0)
        assert not (root / "other.py").exists()

        page = ui.go(f"/p/{key}")
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url(re.compile("/runs/"), timeout=30_000)
        ui.assert_no_errors()


def test_config_files_are_validated_while_typing_and_have_forms(user, tmp_path):
    root = user.project()
    compute, runconfig = root / "aml_config/docker.compute", root / "aml_config/local.runconfig"
    before, key = runconfig.read_text(), key_of(root)
    with browser_session(user, root, tmp_path) as ui:
        page = open_file(ui, key, "aml_config/docker.compute")
        editor(page).click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text("type: docker\nnvidiaDoker: true\n")
        expect(page.get_by_role("button", name="line 2")).to_be_visible()
        expect(page.get_by_text("did you mean 'nvidiaDocker'?")).to_be_visible()
        expect(page.locator(".mlw-line-error")).to_have_text("nvidiaDoker: true")
        assert "nvidiaDoker" not in compute.read_text(), "the text in the editor is checked, not the file"
        page.keyboard.press("Control+a")
        page.keyboard.insert_text("type: docker\nnvidiaDocker: true\n")
        expect(page.get_by_role("button", name="line 2")).to_have_count(0)

        page = open_file(ui, key, "aml_config/local.runconfig")
        form = page.get_by_role("region", name="Form")
        form.get_by_label("Gpus").fill("2")
        expect(page.locator(".cm-line", has_text="Gpus: 2")).to_have_count(1)
        form.get_by_label("ArgumentVector").fill("train.py\n--lr\n0.5")
        expect(editor(page)).to_contain_text('"0.5"')
        page.keyboard.press("Control+s")
        wait_until(lambda: "Gpus: 2" in runconfig.read_text(), "the form is saved")
        kept = [line for line in before.splitlines() if line.startswith("# ")]
        assert [line for line in runconfig.read_text().splitlines() if line.startswith("# ")] == kept
        assert user.mlw("project", "validate", cwd=root).code == 0

        editor(page).click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text("Target: local\nFramework: Python\nGpus: all\n")
        expect(form.get_by_label("Gpus")).to_have_value("all")
        page.keyboard.press("Control+a")
        page.keyboard.insert_text("Target:local\n")
        expect(form.get_by_text("Fix the errors in the text")).to_be_visible()
        ui.assert_no_errors()


def test_file_types(user, tmp_path):
    root = user.project()
    key = key_of(root)
    (root / "dot.png").write_bytes(PIXEL)
    (root / "model.bin").write_bytes(b"\0\1\2")
    (root / "big.csv").write_text("1,2\n" * 400_000)
    (root / "<img src=x onerror=alert(1)>.txt").write_text("<script>alert(2)</script>\n")
    (root / "windows.txt").write_bytes(b"one\r\ntwo\r\n")
    os.symlink("/etc", root / "out")
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/p/{key}/files")
        page.get_by_role("treeitem", name="dot.png").click()
        expect(page.get_by_role("img", name="dot.png")).to_be_visible()
        page.wait_for_function("document.querySelector('.mlw-picture').naturalWidth === 1")
        page.get_by_role("treeitem", name="model.bin").click()
        expect(page.get_by_text("the file is not text")).to_be_visible()
        page.get_by_role("treeitem", name="big.csv").click()
        expect(page.get_by_text("larger than 1.0 MB")).to_be_visible()
        page.get_by_role("treeitem", name="out").click()
        expect(page.get_by_text("a symbolic link, which mlw does not follow")).to_be_visible()
        page.get_by_role("treeitem", name="onerror").click()
        expect(editor(page)).to_contain_text("<script>alert(2)</script>")

        page.get_by_role("treeitem", name="windows.txt").click()
        expect(editor(page)).to_contain_text("two")
        insert_at_start(page, "zero\n")
        page.get_by_role("button", name="Save").click()
        wait_until(lambda: (root / "windows.txt").read_bytes() == b"zero\r\none\r\ntwo\r\n", "saved with its line ends")

        page = ui.go(f"/p/{key}/files?" + urlencode({"path": "../../etc/passwd"}))
        expect(page.get_by_text("the name leads outside the folder")).to_be_visible()
        ui.assert_no_errors()


def test_file_tree(user, tmp_path):
    root = user.project()
    key = key_of(root)
    with browser_session(user, root, tmp_path) as ui:
        page = ui.go(f"/p/{key}/files")
        (root / "aml_config" / "gpu.compute").write_text("type: local\n")
        page.get_by_role("treeitem", name="aml_config").click()
        page.get_by_role("button", name="Refresh").click()
        expect(page.get_by_role("treeitem", name="gpu.compute")).to_be_visible()
        page.get_by_label("Search files").fill("gpu.comp")
        expect(page.get_by_role("treeitem")).to_have_count(1)
        page.get_by_label("Search files").fill("")

        page.get_by_role("treeitem", name="train.py").click()
        page.get_by_role("button", name="New file").click()
        page.get_by_label("Path in the project").fill("src/new.py")
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        wait_until((root / "src/new.py").exists, "the new file")
        expect(page.get_by_role("treeitem", name="new.py")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("button", name="Rename").click()
        page.get_by_label("Path in the project").fill("../escaped.py")
        page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        expect(page.get_by_text("the name leads outside the folder")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert (root / "src/new.py").exists() and not (user.home / "escaped.py").exists()
        page.get_by_role("button", name="Rename").click()
        page.get_by_label("Path in the project").fill("src/newer.py")
        page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        wait_until((root / "src/newer.py").exists, "the new name")
        expect(page.get_by_role("treeitem", name="newer.py")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        wait_until(lambda: not (root / "src/newer.py").exists(), "the file is deleted")
        ui.assert_no_errors()


def test_files_api_is_limited_to_project(user, tmp_path):
    root = user.project()
    key = key_of(root)
    (user.home / "secret.txt").write_text("s3cret")
    os.symlink(user.home, root / "up")
    os.symlink(user.home / "secret.txt", root / "leak.txt")
    with ui_server(user, root, tmp_path) as server:
        token = json.loads((user.store / "ui/server.json").read_text())["token"]

        def request(method: str, path: str, body: object = None) -> tuple[int, str]:
            host, _, port = server.numeric.removeprefix("http://").rpartition(":")
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Origin": server.numeric}
            with closing(http.client.HTTPConnection(host, int(port), timeout=20)) as connection:
                connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        base = f"/api/projects/{key}"
        assert [row["name"] for row in json.loads(request("GET", "/api/projects")[1])] == ["demo"]
        shown = json.loads(request("GET", base)[1])
        assert [row["name"] for row in shown["targets"]] == ["docker", "local"]
        for path in (
            "../secret.txt",
            "up/secret.txt",
            "leak.txt",
            "/etc/passwd",
            "aml_config/../../secret.txt",
            "a\0b",
        ):
            for way in ("file", "picture"):
                status, text = request("GET", f"{base}/{way}?" + urlencode({"path": path}))
                assert status in (400, 422) and "s3cret" not in text and "root:" not in text, (path, text)
            assert request("PUT", f"{base}/file", {"path": path, "text": "x"})[0] in (400, 422)
            assert request("POST", f"{base}/files/rename", {"path": "train.py", "to": path})[0] in (400, 422)
            gone = request("DELETE", f"{base}/files?" + urlencode({"path": path}))[0]
            assert gone == 200 if path == "leak.txt" else gone in (400, 422), "a link goes as a link"
        assert (user.home / "secret.txt").read_text() == "s3cret" and (root / "train.py").exists()
        assert request("DELETE", f"{base}/files?path=aml_config")[0] == 400
        read = json.loads(request("GET", f"{base}/file?path=train.py")[1])
        assert request("PUT", f"{base}/file", {"path": "train.py", "text": "a", "base": "0" * 64})[0] == 409
        assert request("PUT", f"{base}/file", {"path": "train.py", "text": "a\n", "base": read["digest"]})[0] == 200
        assert (root / "train.py").read_text() == "a\n"
        wrong = {"path": "aml_config/x.compute", "text": "type: lokal\n"}
        findings = json.loads(request("POST", f"{base}/file/check", wrong)[1])
        assert findings[0]["line"] == 1 and "lokal" in findings[0]["message"] and "/tmp" not in findings[0]["message"]
