"""`make demo`: the first command that a new user runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.conftest import MLW, Done

ROOT = Path(__file__).parents[2]


def test_demo_from_sample_to_best_sweep_run(user, tmp_path):
    command = ["sh", str(ROOT / "scripts" / "demo"), str(MLW)]
    env = {**user.env, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    done = Done(ended.returncode, ended.stdout, ended.stderr)
    assert done.code == 0, done
    assert "\033" not in done.out, "no colours where nobody sees them"
    shown = re.findall(r"^\$ (mlw \S+ \S+)", done.out, re.MULTILINE)
    assert shown == [
        "mlw project create",
        "mlw submit -c",
        "mlw history metrics",
        "mlw submit train.py",
        "mlw history list",
    ], done
    assert "Status:    Completed" in done.err and "loss.svg" in done.err
    assert re.search(r"^best: demo-\S+  lr=2  accuracy", done.err, re.MULTILINE), done
    assert re.search(r"^[\d.]+ │\S", done.out, re.MULTILINE), "a curve"
    for text in ("mlw project sample list", "make demo-docker", "mlw ui", "docs/tutorial/first-gpu-run.md"):
        assert f"\n  {text}  " in done.out
    (place,) = tmp_path.glob("mlw-demo.*")
    assert f"rm -r {place}\n" in done.out
    assert f'export MLW_HOME="{place}/home" PATH=' in done.out.partition("Next steps")[0]
    outputs = Path(re.search(r"^Outputs: (.+)$", done.out, re.MULTILINE)[1])
    assert (outputs / "loss.svg").is_file()
    assert list(user.home.iterdir()) == [] and not user.store.exists(), "nothing outside of its folder"


def test_referenced_files_and_commands_exist():
    text = (ROOT / "scripts" / "demo").read_text() + (ROOT / "scripts" / "demo-docker").read_text()
    for page in re.findall(r"\bdocs/\S+\.md", text):
        assert (ROOT / page).is_file()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
