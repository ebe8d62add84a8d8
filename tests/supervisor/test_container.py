"""A run in a container, from start to end: its environment, its permissions, and the files that it leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.interpreters import oldest_and_newest
from tests.machines.engine import GROUP

from .conftest import REMOTE, until
from .container_targets import ContainerTarget, read

CANARY = 'c4n4ry it\'s "quoted" $HOME `id`\nsecond line \\ end'


def test_life_of_a_run(target):
    folder = target.run("r", "import os, sys\nprint('hello', os.getcwd())\nopen('outputs/model', 'w').write('weights')")
    assert target.start("r")["claimed"]
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"], ending["outputs"]) == ("succeeded", 0, 1)
    assert (folder / "log").read_text() == f"hello {folder}/work\n"
    assert [e["kind"] for e in target.events(folder)] == ["accepted", "step", "started", "collecting", "finished"]
    assert target.name("r") not in target.engine.containers()
    assert (folder / "supervisor.log").read_text() == ""
    left = {entry.name for entry in folder.iterdir()}
    assert not left & {"word", "container.json", "starting.json"}


def test_what_the_script_sees(target):
    script = (
        "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv, os.read(0, 10).decode(), os.umask(0)]))"
    )
    argv = ["python3", "main.py", "", "a b", "$HOME", "it's", "--name=x"]
    folder = target.run("r", script, argv=argv)
    spec = json.loads((folder / "spec.json").read_text())
    spec["environment"].update({"PYTHONPATH": "/ours", "ODD": "a 'b' $c\nd"})
    (folder / "spec.json").write_text(json.dumps(spec))
    target.start("r", env={"SHOULD_NOT": "be seen", "TZ": "Mars"})
    assert target.ended(folder)["ending"] == "succeeded", read(folder / "log")
    environment, arguments, stdin, umask = json.loads((folder / "log").read_text())
    assert arguments == argv[1:]
    assert stdin == ""
    assert umask == os.umask(os.umask(0)) or umask == 0o022
    home = str(target.root / "homes" / "p")
    assert {name: environment[name] for name in ("HOME", "USER", "LOGNAME", "ODD", "PYTHONPATH")} == {
        "HOME": home,
        "USER": "ada",
        "LOGNAME": "ada",
        "ODD": "a 'b' $c\nd",
        "PYTHONPATH": "/ours",
    }
    assert not {"SHOULD_NOT", "TZ", "TINI_VERBOSITY", "MLW_WORD", "DOCKER_HOST"} & set(environment)


def test_the_image_keeps_its_own_path_behind_ours_and_its_entrypoint_only_if_asked(target):
    entry = 'ENTRYPOINT ["/usr/bin/env", "ENTERED=yes"]'
    image = target.engine.load_image("mlw-entry:1", "ENV PYTHONPATH=/image", entry)
    script = "import os; print(os.environ['PYTHONPATH'], os.environ.get('ENTERED'))"
    for keep, expected in ((False, "/ours:/image None\n"), (True, "/ours:/image yes\n")):
        folder = target.run(f"r{keep}", script, container={"image": image, "keep_entrypoint": keep})
        spec = json.loads((folder / "spec.json").read_text())
        spec["environment"]["PYTHONPATH"] = "/ours"
        (folder / "spec.json").write_text(json.dumps(spec))
        target.start(f"r{keep}")
        target.ended(folder)
        assert (folder / "log").read_text() == expected


def test_secrets_reach_the_script_and_nothing_else(target):
    script = "import os, time\nprint('up', len(os.environ['CODE_OF']), os.environ['EMPTY'] == '')\n"
    script += "while not os.path.exists('go'): time.sleep(0.01)\nassert os.environ['CODE_OF'] == open('canary').read()"
    folder = target.run("r", script, files={"canary": CANARY}, secrets=["CODE_OF", "EMPTY"])
    target.start("r", message={"secrets": {"CODE_OF": CANARY, "EMPTY": ""}})
    target.up(folder)
    inspected = target.engine.docker("inspect", target.name("r")).stdout
    assert "CODE_OF" not in inspected
    assert "c4n4ry" not in inspected
    assert _holding("c4n4ry", folder) == [folder / "work" / "canary"]
    assert _holding("c4n4ry", target.engine.folder / "data" / "containers") == []
    (folder / "work" / "go").write_text("")
    assert target.ended(folder)["ending"] == "succeeded", read(folder / "log")


def _holding(text: str, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if text.encode() in read(path)]


def test_a_secret_that_no_shell_can_name(target):
    folder = target.run("r", "", secrets=["my-word"])
    target.start("r", message={"secrets": {"my-word": "x"}})
    ending = target.ended(folder)
    assert ending["ending"] == "could not start"
    assert "invalid secret name my-word" in ending["cause"]


def test_what_the_container_may(target):
    script = "import time; print('up'); time.sleep(1000)"
    limits = {"memory": "256m", "cpus": "0.5", "shm_size": "128m", "user": "12345:12345"}
    folder = target.run("r", script, container=limits)
    # In this test the folders belong to root, and the container runs as another user.
    for path in (folder / "log", folder / "word"):
        path.touch()
    (folder / "word").unlink()
    subprocess.run(["chmod", "-R", "a+rwX", str(target.root)], check=True)
    target.start("r")
    facts = until(lambda: _inspect(target, "r"))
    host = facts["HostConfig"]
    assert not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["CapDrop"] == ["ALL"]
    assert (host["PidMode"], host["IpcMode"], host["UsernsMode"]) == ("", "private", "")
    assert host["Init"] is True
    assert 1000 < host["PidsLimit"] < 100_000
    assert (host["Memory"], host["MemorySwap"]) == (256 << 20, 256 << 20)
    assert (host["NanoCpus"], host["ShmSize"]) == (500_000_000, 128 << 20)
    assert host["LogConfig"]["Config"]["max-size"] == "64k"
    assert facts["Config"]["Labels"]["mlw.run"] == "r"
    assert facts["Config"]["User"] == "12345:12345"
    inside = {mount["Source"]: mount["RW"] for mount in facts["Mounts"]}
    home = str(target.root / "homes" / "p")
    expected = {str(folder / name): name != "word" for name in ("work", "metrics", "checkpoints", "log", "word")}
    assert inside == {**expected, home: True}
    target.call("cancel", "r", "me", "0")
    target.ended(folder)


def _inspect(target: ContainerTarget, run_id: str):
    done = target.engine.docker("inspect", target.name(run_id), check=False)
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def test_outputs_belong_to_the_user_and_no_root_is_needed(engine, open_folder):
    """The supervisor runs as another user, whose group may use the socket of the engine."""
    target = ContainerTarget(open_folder, engine)
    script = "import os, getpass\nos.makedirs('outputs/deep')\nopen('outputs/deep/model', 'w').write('x')\n"
    script += "print(os.getuid(), os.getgid(), getpass.getuser(), os.access(os.environ['HOME'], os.W_OK))"
    folder = target.run("r", script, container={"user": "12345:12345"})
    program = open_folder / "remote"
    shutil.copytree(REMOTE, program)
    subprocess.run(["chown", "-R", "12345:12345", str(open_folder)], check=True)
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", str(program / "__main__.py"), "start", str(target.root), "r", "n1"],
        input=b"{}",
        env=target.env,
        capture_output=True,
        user=12345,
        group=12345,
        extra_groups=[GROUP],
    )
    assert b'"claimed": true' in done.stdout, done
    ending = target.ended(folder)
    assert ending["ending"] == "succeeded", ending
    assert (folder / "log").read_text() == "12345 12345 ada True\n"
    for path in [folder, *folder.rglob("*")]:
        try:
            facts = path.lstat()
        except FileNotFoundError:
            continue  # the supervisor has just removed a temporary file
        assert (facts.st_uid, facts.st_gid) == (12345, 12345), path
    assert target.name("r") not in target.engine.containers()


@pytest.mark.parametrize("which", oldest_and_newest((3, 8)), ids=lambda item: ".".join(map(str, item[0])))
def test_old_and_new_pythons(target, which):
    """The oldest Python versions do not support pidfd, so the supervisor polls."""
    target.python = which[1]
    folder = target.run("r", "import time; print('up'); time.sleep(1000)")
    target.start("r")
    target.up(folder)
    os.kill(target.launcher(folder), signal.SIGKILL)
    target.call("cancel", "r", "me", "5")
    assert target.ended(folder)["ending"] == "cancelled"
    assert target.name("r") not in target.engine.containers()
    assert (folder / "supervisor.log").read_text() == ""


def test_idle_watchers_are_light(target):
    """Supervisor and launcher use little memory, and no engine client process waits for the container."""
    folder = target.run("r", "import time; print('up'); time.sleep(1000)")
    target.start("r")
    target.up(folder)
    supervisor, launcher = target.event(folder, "accepted")["pid"], target.launcher(folder)
    until(lambda: not _children(launcher) and not _children(supervisor, but=launcher))
    memory = sum(_kilobytes(pid) for pid in (supervisor, launcher))
    assert memory <= 24 * 1024, f"{memory} kB"
    target.call("cancel", "r")
    target.ended(folder)


def _children(pid: int, but: int = 0) -> list[int]:
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in pids if int(child) != but]


def _kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
