"""The life of a run in a container: what it sees, what it may, what stays."""

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
from .contained import Spot, read

CANARY = 'c4n4ry it\'s "quoted" $HOME `id`\nsecond line \\ end'


def test_life_of_a_run(spot):
    folder = spot.run("r", "import os, sys\nprint('hello', os.getcwd())\nopen('outputs/model', 'w').write('weights')")
    assert spot.start("r")["claimed"]
    told = spot.ended(folder)
    assert (told["ending"], told["exit"], told["outputs"]) == ("succeeded", 0, 1)
    assert (folder / "log").read_text() == f"hello {folder}/work\n"
    assert [e["kind"] for e in spot.events(folder)] == ["accepted", "step", "started", "collecting", "finished"]
    assert spot.name("r") not in spot.engine.containers()
    assert (folder / "supervisor.log").read_text() == ""
    left = {entry.name for entry in folder.iterdir()}
    assert not left & {"word", "container.json", "starting.json"}


def test_what_the_script_sees(spot):
    script = (
        "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv, os.read(0, 10).decode(), os.umask(0)]))"
    )
    argv = ["python3", "main.py", "", "a b", "$HOME", "it's", "--name=x"]
    folder = spot.run("r", script, argv=argv)
    spec = json.loads((folder / "spec.json").read_text())
    spec["environment"].update({"PYTHONPATH": "/ours", "ODD": "a 'b' $c\nd"})
    (folder / "spec.json").write_text(json.dumps(spec))
    spot.start("r", env={"SHOULD_NOT": "be seen", "TZ": "Mars"})
    assert spot.ended(folder)["ending"] == "succeeded", read(folder / "log")
    environment, words, stdin, umask = json.loads((folder / "log").read_text())
    assert words == argv[1:]
    assert stdin == ""
    assert umask == os.umask(os.umask(0)) or umask == 0o022
    home = str(spot.root / "homes" / "p")
    assert {name: environment[name] for name in ("HOME", "USER", "LOGNAME", "ODD", "PYTHONPATH")} == {
        "HOME": home,
        "USER": "ada",
        "LOGNAME": "ada",
        "ODD": "a 'b' $c\nd",
        "PYTHONPATH": "/ours",
    }
    assert not {"SHOULD_NOT", "TZ", "TINI_VERBOSITY", "MLW_WORD", "DOCKER_HOST"} & set(environment)


def test_the_image_keeps_its_own_path_behind_ours_and_its_entrypoint_only_if_asked(spot):
    entry = 'ENTRYPOINT ["/usr/bin/env", "ENTERED=yes"]'
    image = spot.engine.load_image("mlw-entry:1", "ENV PYTHONPATH=/image", entry)
    script = "import os; print(os.environ['PYTHONPATH'], os.environ.get('ENTERED'))"
    for keep, said in ((False, "/ours:/image None\n"), (True, "/ours:/image yes\n")):
        folder = spot.run(f"r{keep}", script, container={"image": image, "keep_entrypoint": keep})
        spec = json.loads((folder / "spec.json").read_text())
        spec["environment"]["PYTHONPATH"] = "/ours"
        (folder / "spec.json").write_text(json.dumps(spec))
        spot.start(f"r{keep}")
        spot.ended(folder)
        assert (folder / "log").read_text() == said


def test_secrets_reach_the_script_and_nothing_else(spot):
    script = "import os, time\nprint('up', len(os.environ['CODE_OF']), os.environ['EMPTY'] == '')\n"
    script += "while not os.path.exists('go'): time.sleep(0.01)\nassert os.environ['CODE_OF'] == open('canary').read()"
    folder = spot.run("r", script, files={"canary": CANARY}, secrets=["CODE_OF", "EMPTY"])
    spot.start("r", message={"secrets": {"CODE_OF": CANARY, "EMPTY": ""}})
    spot.up(folder)
    inspected = spot.engine.docker("inspect", spot.name("r")).stdout
    assert "CODE_OF" not in inspected
    assert "c4n4ry" not in inspected
    assert _holding("c4n4ry", folder) == [folder / "work" / "canary"]
    assert _holding("c4n4ry", spot.engine.folder / "data" / "containers") == []
    (folder / "work" / "go").write_text("")
    assert spot.ended(folder)["ending"] == "succeeded", read(folder / "log")


def _holding(word: str, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if word.encode() in read(path)]


def test_a_secret_that_no_shell_can_name(spot):
    folder = spot.run("r", "", secrets=["my-word"])
    spot.start("r", message={"secrets": {"my-word": "x"}})
    told = spot.ended(folder)
    assert told["ending"] == "could not start"
    assert "invalid secret name my-word" in told["cause"]


def test_what_the_container_may(spot):
    script = "import time; print('up'); time.sleep(1000)"
    limits = {"memory": "256m", "cpus": "0.5", "shm_size": "128m", "user": "12345:12345"}
    folder = spot.run("r", script, container=limits)
    # The folders belong to root here: let the other user in.
    for path in (folder / "log", folder / "word"):
        path.touch()
    (folder / "word").unlink()
    subprocess.run(["chmod", "-R", "a+rwX", str(spot.root)], check=True)
    spot.start("r")
    facts = until(lambda: _inspect(spot, "r"))
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
    home = str(spot.root / "homes" / "p")
    expected = {str(folder / name): name != "word" for name in ("work", "metrics", "log", "word")}
    assert inside == {**expected, home: True}
    spot.call("cancel", "r", "me", "0")
    spot.ended(folder)


def _inspect(spot: Spot, run_id: str):
    done = spot.engine.docker("inspect", spot.name(run_id), check=False)
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def test_outputs_belong_to_the_user_and_no_root_is_needed(engine, open_folder):
    """The whole supervisor as another user, who may use the engine through the socket's group."""
    spot = Spot(open_folder, engine)
    script = "import os, getpass\nos.makedirs('outputs/deep')\nopen('outputs/deep/model', 'w').write('x')\n"
    script += "print(os.getuid(), os.getgid(), getpass.getuser(), os.access(os.environ['HOME'], os.W_OK))"
    folder = spot.run("r", script, container={"user": "12345:12345"})
    program = open_folder / "remote"
    shutil.copytree(REMOTE, program)
    subprocess.run(["chown", "-R", "12345:12345", str(open_folder)], check=True)
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", str(program / "__main__.py"), "start", str(spot.root), "r", "n1"],
        input=b"{}",
        env=spot.env,
        capture_output=True,
        user=12345,
        group=12345,
        extra_groups=[GROUP],
    )
    assert b'"claimed": true' in done.stdout, done
    told = spot.ended(folder)
    assert told["ending"] == "succeeded", told
    assert (folder / "log").read_text() == "12345 12345 ada True\n"
    for path in [folder, *folder.rglob("*")]:
        try:
            facts = path.lstat()
        except FileNotFoundError:
            continue  # the supervisor still tidies up
        assert (facts.st_uid, facts.st_gid) == (12345, 12345), path
    assert spot.name("r") not in spot.engine.containers()


@pytest.mark.parametrize("which", oldest_and_newest((3, 8)), ids=lambda one: ".".join(map(str, one[0])))
def test_old_and_new_pythons(spot, which):
    """The oldest have no pidfd: they look from time to time."""
    spot.python = which[1]
    folder = spot.run("r", "import time; print('up'); time.sleep(1000)")
    spot.start("r")
    spot.up(folder)
    os.kill(spot.launcher(folder), signal.SIGKILL)
    spot.call("cancel", "r", "me", "5")
    assert spot.ended(folder)["ending"] == "cancelled"
    assert spot.name("r") not in spot.engine.containers()
    assert (folder / "supervisor.log").read_text() == ""


def test_idle_watchers_are_light(spot):
    """Supervisor and launcher beside a container: no process of the engine's program is kept for the waiting."""
    folder = spot.run("r", "import time; print('up'); time.sleep(1000)")
    spot.start("r")
    spot.up(folder)
    supervisor, launcher = spot.event(folder, "accepted")["pid"], spot.launcher(folder)
    until(lambda: not _children(launcher) and not _children(supervisor, but=launcher))
    memory = sum(_kilobytes(pid) for pid in (supervisor, launcher))
    assert memory <= 24 * 1024, f"{memory} kB"
    spot.call("cancel", "r")
    spot.ended(folder)


def _children(pid: int, but: int = 0) -> list[int]:
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(word) for word in words if int(word) != but]


def _kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
