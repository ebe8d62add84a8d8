"""A copied project has the original's ID. It shares folder, home, and history only after the user confirms."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pexpect
import pytest
from playwright.sync_api import expect

from mlworkbench.ui.queries.projects import key_of
from tests.conftest import MLW, Done, User
from tests.machines.browser import browser_session

KEEP = "import os\nopen(os.environ['AZUREML_NATIVE_SHARE_DIRECTORY'] + 'token', 'w').write('hf_secret')\n"
LOOK = "import os\nprint('seen:', sorted(os.listdir(os.environ['AZUREML_NATIVE_SHARE_DIRECTORY'])))\n"


@pytest.fixture
def original(user: User) -> Path:
    root = user.project(keep=KEEP, look=LOOK)
    assert user.mlw("submit", "keep.py", cwd=root).code == 0
    return root


def identity(root: Path) -> str:
    return str(json.loads((root / "aml_config" / "project.json").read_text())["Id"])


def copy_of(root: Path, name: str = "clone") -> Path:
    return Path(shutil.copytree(root, root.with_name(name)))


def submit_at_terminal(user: User, root: Path, answer: str) -> tuple[str, int]:
    """Submit at a terminal and answer the prompt. Return the output and the exit status."""
    with pexpect.spawn(str(MLW), ["submit", "look.py"], cwd=str(root), env=user.env, encoding="utf-8", timeout=60) as t:
        t.expect(r"\[y/N\]")
        question = t.before
        t.sendline(answer)
        t.expect(pexpect.EOF)
        printed = t.before
    return question + printed, t.exitstatus


def printed_facts(done: Done) -> str:
    assert done.code == 0, done
    return done.out


def test_copied_project_without_terminal_is_refused_with_both_remedies(user: User, original: Path) -> None:
    clone = copy_of(original)
    for arguments in (["submit", "look.py"], ["submit", "--key", "k", "look.py"]):
        done = user.mlw(*arguments, cwd=clone)
        assert (done.code, done.out) == (78, ""), done
        assert f"error: this project has the same ID as the project in {original}\n" in done.err
        assert "mlw project link" in done.err and "mlw project new-id" in done.err
        assert "Traceback" not in done.err
    assert len(user.runs()) == 1
    dry = user.mlw("submit", "--dry-run", "look.py", cwd=clone)
    assert dry.code == 0 and "warning: this project has the same ID" in dry.err, dry
    assert "token" in printed_facts(user.mlw("submit", "look.py", cwd=original)), "the original goes on as before"

    done = user.mlw("project", "link", cwd=clone)
    assert done.code == 0, done
    assert "token" in printed_facts(user.mlw("submit", "look.py", cwd=clone))


def test_copy_with_new_id_shares_nothing(user: User, original: Path) -> None:
    clone = copy_of(original)
    before = identity(clone)
    done = user.mlw("project", "new-id", cwd=clone)
    assert done.code == 0, done
    assert identity(clone) != before == identity(original)
    assert "seen: []" in printed_facts(user.mlw("submit", "look.py", cwd=clone))
    assert "token" in printed_facts(user.mlw("submit", "look.py", cwd=original))


@pytest.mark.parametrize(("answer", "shares"), [("y", True), ("n", False)])
def test_copy_at_terminal_prompts_once(user: User, original: Path, answer: str, shares: bool) -> None:
    clone = copy_of(original)
    printed, code = submit_at_terminal(user, clone, answer)
    assert code == 0, printed
    assert f"same ID as the project in {original}" in printed
    assert ("token" in printed) is shares
    assert (identity(clone) == identity(original)) is shares
    again = user.mlw("submit", "look.py", cwd=clone)  # without a terminal, a prompt would be an error
    assert ("token" in printed_facts(again)) is shares


def test_moved_project_prompts_about_move(user: User, original: Path) -> None:
    place = original.with_name("moved")
    original.rename(place)
    done = user.mlw("submit", "look.py", cwd=place)
    assert done.code == 78 and f"{original}, which no longer exists" in done.err, done
    printed, code = submit_at_terminal(user, place, "y")
    assert code == 0 and "moved from" in printed and "token" in printed, printed
    assert "token" in printed_facts(user.mlw("submit", "look.py", cwd=place))


def test_same_folder_under_other_path_is_same_project(user: User, original: Path) -> None:
    link = original.with_name("by-link")
    link.symlink_to(original)
    assert "token" in printed_facts(user.mlw("submit", "look.py", cwd=link))
    assert "token" in printed_facts(user.mlw("submit", "--project", str(link), "look.py"))


def test_id_with_same_shared_folder_name_counts_as_same_id(user: User, original: Path) -> None:
    """The name of the shared folder contains only the first digits of the ID."""
    clone = copy_of(original)
    file = clone / "aml_config" / "project.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "Id": content["Id"][:9] + "0000-4000-8000-000000000000"}))
    done = user.mlw("submit", "look.py", cwd=clone)
    assert done.code == 78 and f"the same ID as the project in {original}" in done.err, done


def test_owner_of_id_is_restored_from_earlier_runs(user: User, original: Path) -> None:
    clone = copy_of(original)
    records = user.store / "projects"
    for damage in (shutil.rmtree, _damage):
        damage(records)
        done = user.mlw("submit", "look.py", cwd=clone)
        assert done.code == 78 and f"the same ID as the project in {original}" in done.err, done
        assert "token" in printed_facts(user.mlw("submit", "look.py", cwd=original))
    (record,) = records.iterdir()
    assert record.stat().st_mode & 0o777 == 0o600 and records.stat().st_mode & 0o777 == 0o700


def _damage(records: Path) -> None:
    for path in records.iterdir():
        path.write_bytes(b'{"roots": [7, "')


def test_restored_code_is_the_same_project(user: User, original: Path) -> None:
    run = user.runs()[0]["run_id"]
    place = original.with_name("restored")
    assert user.mlw("project", "restore", "--run-id", run, "--path", str(place), cwd=original).code == 0
    assert "token" in printed_facts(user.mlw("submit", "look.py", cwd=place))


def test_script_cannot_submit_for_another_project_from_working_copy(user: User, original: Path) -> None:
    script = (
        "import json, subprocess\n"
        "file = 'aml_config/project.json'\n"
        f"open(file, 'w').write(json.dumps({{'Id': {identity(original)!r}, 'Name': 'demo'}}))\n"
        f"raise SystemExit(subprocess.run([{str(MLW)!r}, 'submit', 'look.py']).returncode)\n"
    )
    other = user.project("other", swap=script, look=LOOK)
    settings = other / "aml_config" / "local.runconfig"
    variables = f"EnvironmentVariables:\n  MLW_HOME: {user.store}\n"
    settings.write_text(re.sub(r"(?m)^EnvironmentVariables:.*\n", variables, settings.read_text()))
    done = user.mlw("submit", "-c", "local", "swap.py", cwd=other)
    assert done.code == 78 and "the same ID as the project in" in done.out and "token" not in done.out, done


def test_new_id_is_not_written_through_link(user: User, original: Path) -> None:
    clone = copy_of(original)
    victim = user.home / "settings.json"
    victim.write_bytes((clone / "aml_config" / "project.json").read_bytes())
    os.replace(clone / "aml_config" / "project.json", clone / "spare.json")
    (clone / "aml_config" / "project.json").symlink_to(victim)
    before = victim.read_bytes()
    done = user.mlw("project", "new-id", cwd=clone)
    assert done.code == 78 and "is outside the project" in done.err, done
    assert victim.read_bytes() == before
    (clone / "aml_config" / "project.json").unlink()
    (clone / "aml_config" / "project.json").symlink_to("../spare.json")
    done = user.mlw("project", "new-id", cwd=clone)
    assert done.code == 78 and "is a link" in done.err, done
    assert (clone / "spare.json").read_bytes() == before


def test_browser_and_api_refuse_copied_project(user: User, original: Path, tmp_path: Path) -> None:
    clone = copy_of(original)
    with browser_session(user, clone, tmp_path) as ui:
        body = {"project": key_of(clone), "script": "look.py"}
        answer = ui.request("/api/submit", "POST", data=body)
        result = answer.json()
        assert not answer.ok and "the same ID as the project in" in json.dumps(result), result
        assert "mlw project new-id" in json.dumps(result), result

        page = ui.go(f"/p/{key_of(clone)}")
        page.get_by_role("button", name="Run", exact=True).click()
        box = page.get_by_role("dialog", name="Submit")
        expect(box.get_by_text("this project has the same ID as the project in").first).to_be_visible(timeout=20_000)
        assert len(user.runs()) == 1
        box.get_by_role("button", name="Use a new ID and submit").click()
        page.wait_for_url(re.compile("/runs/demo-"), timeout=30_000)
    assert identity(clone) != identity(original)
