"""The compute targets page in a real browser, with a real sshd: attach, GPUs, check, prepare, clean, detach."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from mlworkbench.ui.queries.projects import key_of
from tests.e2e.attach_helpers import SECRET, files_containing, new_project, watch_for_secrets
from tests.e2e.test_environment import enable_managed_environment
from tests.machines.browser import browser_session, ui_server
from tests.machines.channel import depend
from tests.machines.network import wait_until
from tests.machines.nvml import FakeGpus

GIB = 1 << 30
GPU = "GPU-5fd4f087-86f3-4c73-93e9-5ed0a2a3c7d1"
NEVER = "Accepted password"


def with_gpus(host: Any) -> FakeGpus:
    """Add a simulated GPU to the host. The test can change its values."""
    fake = FakeGpus(host.home)
    fake.set(driver="570.86", cuda=12080)
    fake.add(GPU, memory=(16 * GIB, 2 * GIB), name="NVIDIA H200", utilisation=7, temperature=41, power=(120000, 700000))
    for path in [fake.folder, *fake.folder.rglob("*")]:
        os.chown(path, host.uid, host.uid)
    start_file = host.home / ".bashrc"
    exports = "".join(f"export {name}={value}\n" for name, value in fake.env_nvml_only.items())
    start_file.write_text(exports + (start_file.read_text() if start_file.exists() else ""))
    return fake


class Targets:
    """The targets page, with the actions of a user."""

    def __init__(self, ui: Any, project: Path) -> None:
        self.ui, self.project, self.key = ui, project, key_of(project)
        self.page = ui.go(f"/p/{self.key}/targets")
        self.page.get_by_role("heading", name="Compute targets").wait_for()

    def fill(self, host: Any, name: str = "box") -> None:
        page = self.page
        page.get_by_role("button", name="Attach a machine").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Run scripts").click()
        page.get_by_role("option", name="As a job of a Slurm cluster (slurm)").click()
        dialog.get_by_label("Partition").fill("gpu")
        dialog.get_by_label("Time limit").fill("2:00:00")
        dialog.get_by_text("attach slurm --partition=gpu --time=2:00:00").wait_for()
        dialog.get_by_label("Run scripts").click()
        page.get_by_role("option", name="With Python on the machine (remote)").click()
        dialog.get_by_label("Target name").fill(name)
        dialog.get_by_label("Address").fill(host.address)
        dialog.get_by_label("User").fill(host.user)

    def send(self, password: str = SECRET) -> Any:
        """Type the password and submit the form."""
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_label("Password", exact=True).fill(password)
        dialog.get_by_role("button", name="Attach", exact=True).click()
        return dialog

    def card(self, name: str) -> Any:
        return self.page.get_by_role("region", name=name, exact=True)

    def more(self, name: str, act: str) -> Any:
        self.card(name).get_by_role("button", name=f"More for {name}").click()
        self.page.get_by_role("menuitem").filter(has_text=act).click()
        return self.page.get_by_role("dialog")

    def post(self, path: str, **body: Any) -> Any:
        return self.ui.request(path, "POST", data=body)

    def assert_not_stored(self, *secrets: str) -> None:
        """Check that the page, its address, and the browser storage contain none of these secrets."""
        kept = "JSON.stringify([location.href, {...localStorage}, {...sessionStorage}, document.cookie])"
        inputs = "[...document.querySelectorAll('input, textarea')].map(one => one.value).join()"
        for text in (self.page.content(), self.page.evaluate(kept), self.page.evaluate(inputs)):
            assert not any(secret in text for secret in secrets)


def test_target_life_cycle(laptop, machine, tmp_path):
    """Attach, check, clean, and detach a target. The password is not stored, and the host key must be confirmed."""
    host = machine(password=SECRET)
    gpus = with_gpus(host)
    project = new_project(laptop)
    (project / "train.py").write_text("open('outputs/model', 'w').write('x' * 9000)\n")
    with watch_for_secrets(SECRET) as leaks, browser_session(laptop, project, tmp_path) as ui:
        targets = Targets(ui, project)
        page = targets.page
        attach(targets, host)
        # -- The configuration files exist, and the password is not stored.
        assert {"box.compute", "box.runconfig"} <= {path.name for path in (project / "aml_config").iterdir()}
        targets.assert_not_stored(SECRET)
        assert files_containing(SECRET, laptop.store, project, laptop.home, laptop.runtime, tmp_path) == []
        page.get_by_role("dialog").get_by_role("button", name="Done").click()
        gauges(targets, host, gpus)
        check(targets)
        clean(targets, laptop, host)
        allow(targets, laptop)
        detach(targets, host, project)
        assert leaks == [], "no process had the password among its words or variables"
        assert files_containing(SECRET, laptop.store, project, laptop.home, laptop.runtime, tmp_path) == []
        ui.assert_no_errors()


def attach(targets: Targets, host: Any) -> None:
    targets.fill(host)
    dialog = targets.send()
    dialog.locator(
        ".mlw-fingerprint", has_text=host.host_key_fingerprint
    ).wait_for()  # by class, because other lines also contain the fingerprint
    targets.assert_not_stored(SECRET)
    dialog.get_by_role("button", name="Reject key").click()
    dialog.get_by_text("host key rejected").wait_for()
    assert NEVER not in host.log, "no password goes to a machine that nobody vouches for"
    assert not (targets.project / "aml_config" / "box.compute").exists()
    dialog.get_by_role("button", name="Attach", exact=True).click()
    dialog.get_by_text("Enter the password").wait_for()
    targets.send()
    dialog.locator(
        ".mlw-fingerprint", has_text=host.host_key_fingerprint
    ).wait_for()  # by class, because other lines also contain the fingerprint
    dialog.get_by_role("button", name="Trust key").click()
    dialog.get_by_text(f"box is attached: {host.user}@{host.address}:22").wait_for(timeout=60_000)
    assert NEVER in host.log
    link = dialog.get_by_role("link", name="aml_config/box.runconfig")
    assert link.get_attribute("href") == f"/p/{targets.key}/files?path=aml_config%2Fbox.runconfig"


def gauges(targets: Targets, host: Any, gpus: FakeGpus) -> None:
    """GPU values update live; a machine that stops responding is reported, and so is its recovery."""
    card = targets.card("box")
    load = card.get_by_role("meter", name="GPU 0 NVIDIA H200 Utilization")
    load.wait_for(timeout=30_000)
    card.get_by_text("reachable, driver 570.86, CUDA 12.8").wait_for()
    card.get_by_text("2.0 of 16.0 GiB").wait_for()
    assert card.get_by_text("41 °C · 120 W of 700").is_visible()
    wait_until(lambda: load.get_attribute("aria-valuenow") == "7", "the first figure")
    gpus.change(GPU, utilisation=73, memory=(16 * GIB, 15 * GIB))
    wait_until(lambda: load.get_attribute("aria-valuenow") == "73", "the next figure")
    host.cut()
    card.get_by_text("unreachable: ").wait_for(timeout=30_000)
    host.heal()
    card.get_by_text("reachable, driver").wait_for(timeout=90_000)


def check(targets: Targets) -> None:
    targets.card("box").get_by_role("button", name="Check box").click()
    dialog = targets.page.get_by_role("dialog")
    dialog.get_by_text("Ready for runs", exact=True).wait_for(timeout=60_000)
    assert dialog.get_by_text("round trip").is_visible(), "the findings"
    dialog.get_by_role("button", name="Close").click()
    targets.card("box").get_by_text("just now").wait_for()


def clean(targets: Targets, laptop: Any, host: Any) -> None:
    """Submit a run through the API, and delete its files on the target with Clean."""
    answer = targets.post("/api/submit", project=targets.key, configuration="box", script="train.py", name="--help")
    assert answer.status == 200, answer.text()
    run = answer.json()["run"]
    assert laptop.mlw("logs", "-f", run, cwd=targets.project).code == 0
    assert laptop.info(run)["name"] == "--help"
    wait_until(lambda: not any("supervis" in line for line in host.processes().values()), "the end of supervisors")
    dialog = targets.more("box", "Clean")
    dialog.get_by_text("can be deleted").wait_for(timeout=30_000)
    row = dialog.get_by_role("row").filter(has_text="runs")
    assert re.search(r"kB", row.inner_text()), row.inner_text()
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_text("kB deleted").wait_for(timeout=30_000)
    assert not (host.home / ".mlw" / "runs" / run).exists()
    dialog.get_by_role("button", name="Close").click()
    dialog = targets.more("box", "Environments")
    dialog.get_by_text("No environments yet").wait_for(timeout=30_000)
    dialog.get_by_role("button", name="Close").click()


def allow(targets: Targets, laptop: Any) -> None:
    dialog = targets.more("box", "Allowed mounts")
    dialog.get_by_label("Add folder").fill("--yes")
    dialog.get_by_role("button", name="Save").click()
    targets.page.get_by_text("--allow-mount --yes is not an absolute path on the target").first.wait_for()
    targets.page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    dialog = targets.more("box", "Allowed mounts")
    dialog.get_by_label("Add folder").fill("/data")
    dialog.get_by_role("button", name="Save").click()

    def allowed() -> bool:
        done = laptop.mlw("computetarget", "show", "box", "-o", "json", cwd=targets.project)
        return json.loads(done.out)["allowedMounts"] == ["/data"]

    wait_until(allowed, "the folder is allowed")
    targets.card("box").get_by_text("/data").wait_for()
    dialog = targets.more("box", "Allowed networks")
    dialog.get_by_label("Add network").fill("host")
    dialog.get_by_role("button", name="Save").click()
    targets.card("box").get_by_text("Networks").wait_for()
    shown = json.loads(laptop.mlw("computetarget", "show", "box", "-o", "json", cwd=targets.project).out)
    assert (shown["allowedMounts"], shown["allowedNetworks"]) == (["/data"], ["host"])


def detach(targets: Targets, host: Any, project: Path) -> None:
    dialog = targets.more("box", "Detach")
    dialog.get_by_role("checkbox", name="Also delete ~/.mlw on the machine").click()
    dialog.get_by_role("button", name="Detach").click()
    wait_until(lambda: not (project / "aml_config" / "box.compute").exists(), "the files are gone", 60)
    targets.card("box").wait_for(state="detached")
    assert not (host.home / ".mlw").exists()
    assert b"mlw-" not in (host.home / ".ssh" / "authorized_keys").read_bytes()


def test_append_key_and_api_refusals(laptop, machine, tmp_path):
    host = machine(password=SECRET)
    project = new_project(laptop)
    wrong = "SHA256:" + "A" * 43
    with browser_session(laptop, project, tmp_path, color_scheme="dark") as ui:
        targets = Targets(ui, project)
        page = targets.page
        request = {
            "project": targets.key,
            "name": "box",
            "kind": "remote",
            "address": host.address,
            "username": host.user,
        }
        response = targets.post("/api/targets/attach", **request, password=SECRET)
        assert response.json()["asks"] == "host_key" and response.json()["host_key"] == host.host_key_fingerprint
        refused = targets.post("/api/targets/attach", **request, password=SECRET, host_key=wrong)
        assert refused.status == 502 and f"not {wrong}; nothing was sent" in refused.json()["error"]
        odd = targets.post("/api/targets/attach", **request, password=SECRET, port=99999)
        assert odd.status == 422 and SECRET not in odd.text()
        assert targets.post("/api/targets/attach", **{**request, "name": "--help"}).status == 400
        assert NEVER not in host.log and not (project / "aml_config" / "box.compute").exists()
        # -- As in the original, the user adds a public key to the machine.
        targets.fill(host)
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("radio", name="New key that I add to the machine").click()
        dialog.get_by_role("button", name="Attach", exact=True).click()
        dialog.get_by_role("button", name="Trust key").click()
        line = dialog.get_by_text(re.compile("^restrict ssh-"))
        line.wait_for(timeout=30_000)
        with (host.home / ".ssh" / "authorized_keys").open("a") as file:
            file.write(line.inner_text() + "\n")
        dialog.get_by_role("button", name="Continue").click()
        dialog.get_by_text("box is attached").wait_for(timeout=60_000)
        dialog.get_by_role("button", name="Done").click()
        targets.card("box").get_by_text(re.compile("^reachable")).wait_for(timeout=30_000)
        listed = ui.request(f"/api/targets?project={targets.key}").json()
        assert {row["name"]: row["elsewhere"] for row in listed} == {"box": True, "docker": False, "local": False}
        ui.assert_no_errors()


def test_build_output_is_shown_live_and_after_reload(user, channel, tmp_path):
    root = user.project("demo")
    depend(root, channel, "six==1.16.0")
    enable_managed_environment(root, "local")
    with browser_session(user, root, tmp_path) as ui:
        targets = Targets(ui, root)
        page = targets.page
        targets.card("local").get_by_role("button", name="Prepare local").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("log").get_by_text(re.compile("conda|pip|solv")).first.wait_for(timeout=60_000)
        assert re.search(r"/targets\?operation=[0-9a-f]{16}$", page.url)
        page.reload()
        dialog.get_by_role("log").get_by_text("environment ready").wait_for(timeout=120_000)
        dialog.get_by_text("Done", exact=True).wait_for()
        dialog.get_by_role("button", name="Close").click()
        page.wait_for_url(re.compile("/targets$"))
        dialog = targets.more("local", "Environments")
        dialog.get_by_role("button", name=re.compile("Remove environment")).click(timeout=60_000)
        dialog.get_by_text("No environments yet").wait_for(timeout=60_000)
        assert list((user.store / "envs").glob("?" * 64)) == []
        ui.assert_no_errors()


def test_targets_api(user, tmp_path):
    """Programs call the API. Values in requests never become options, and secrets reach only the script."""
    root = user.project("demo", train="import os\nprint(len(os.environ['TOKEN_OF_MINE']))\n")
    with ui_server(user, root, tmp_path) as server:
        token = json.loads((user.store / "ui" / "server.json").read_text())["token"]
        host, _, port = server.numeric.removeprefix("http://").rpartition(":")

        def post(path: str, **body: Any) -> tuple[int, Any]:
            with closing(HTTPConnection(host, int(port), timeout=60)) as connection:
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                connection.request("POST", path, json.dumps({"project": key_of(root), **body}), headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

        status, run = post("/api/submit", script="train.py", tags=["-x"], secrets={"TOKEN_OF_MINE": SECRET})
        assert status == 200, run
        assert user.mlw("logs", "-f", run["run"]).out == f"{len(SECRET)}\n"
        assert user.info(run["run"])["tags"] == ["-x"]
        assert files_containing(SECRET, user.store, root) == []
        # Secrets can have any name. In the environment of mlw, some names would change its store or prevent its start.
        named = {"HOME": "/nowhere", "DOCKER_HOST": SECRET, "HTTPS_PROXY": SECRET, "MLW_HOME": "/nowhere"}
        (root / "told.py").write_text(
            "import os\nprint(os.environ['DOCKER_HOST'] == os.environ['HTTPS_PROXY'])\n"
            "print([name for name in os.environ if name.startswith('MLW_SECRET')])\n"
        )
        status, run = post("/api/submit", script="told.py", secrets=named)
        assert status == 200, run
        assert user.mlw("logs", "-f", run["run"]).out == "True\n[]\n"
        for wrong in (
            {"script": "--help"},
            {"script": "a", "module": "b"},
            {"script": "a", "secrets": {"A=B": SECRET}},
        ):
            status, error = post("/api/submit", **wrong)
            assert status == 422 and SECRET not in json.dumps(error), error
        status, error = post("/api/submit", configuration="nothing", script="train.py")
        assert status == 404 and "unknown run configuration 'nothing'" in error["error"]
        status, error = post("/api/submit", script="train.py", wait=False, secrets={"TOKEN_OF_MINE": "x"})
        assert status == 200 and error["run"] is None and len(error["operation"]) == 16
        assert error["errand"] == error["operation"], "the former name, until 1.0"
        status, error = post("/api/prepare", configuration="local")
        assert status == 200 and error["command"][:3] == ["mlw", "experiment", "prepare"]


def test_unattached_target(user, tmp_path):
    """The page offers to attach a target of a cloned project, and reports an invalid .compute file."""
    root = user.project("demo")
    (root / "aml_config" / "far.compute").write_text("type: remote\naddress: 192.0.2.7\nusername: ada\n")
    (root / "aml_config" / "broken.compute").write_text("type: [\n")
    with browser_session(user, root, tmp_path) as ui:
        targets = Targets(ui, root)
        card = targets.card("far")
        card.get_by_text("which you have not attached").wait_for()
        card.get_by_role("button", name="Attach far").click()
        dialog = targets.page.get_by_role("dialog")
        assert dialog.get_by_label("Address").input_value() == "192.0.2.7"
        dialog.get_by_role("button", name="Cancel").click()
        assert targets.card("broken").get_by_text("broken.compute").first.is_visible()
        ui.assert_no_errors()
