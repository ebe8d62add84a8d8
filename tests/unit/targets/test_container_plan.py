"""Containers, tested without an engine: planned settings, arguments for the engine, and the engine's messages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mlworkbench.errors import ConfigError
from mlworkbench.model import Compute
from mlworkbench.remote import container_watcher, engine, engine_errors
from mlworkbench.remote.container_watcher import interpret_exit
from mlworkbench.remote.container_work import start_payload
from mlworkbench.remote.shared import run_endings
from mlworkbench.remote.shared.failure import text_of
from mlworkbench.remote.shared.layout import Root
from mlworkbench.targets.container_plan import DEFAULT_IMAGE, Engine, Places, mounts, plan_container

ROOT = Root("/home/ada/.mlw")
PLACES = Places(ROOT, "/home/ada/.mlw/lib/abc/remote/inrun", "demo-1", "p1", uid=1000, gid=1001, user="ada")
DOCKER = Engine("/usr/bin/docker")
BASE = {"engine": "docker", "program": "docker", "image": "img:1", "name": "mlw-r", "workdir": "/w"}


def words(container, **more):
    spec = {"container": {**BASE, **container}, "environment": {}, "commands": [{"argv": ["python3", "a.py"]}], **more}
    return engine.run_command(spec, ROOT.run("r"))


def values(argv, option):
    return [argv[at + 1] for at, word in enumerate(argv) if word == option]


# -- planned settings --------------------------------------------------------------------------------------------


def test_what_is_decided():
    made = plan_container(Compute("c", "remotedocker", base_docker_image="img:1"), DOCKER, PLACES)
    assert (made.name, made.image, made.user, made.gpus) == ("mlw-demo-1", "img:1", "1000:1001", None)
    assert made.workdir == "/home/ada/.mlw/runs/demo-1/work"
    home = "/home/ada/.mlw/homes/p1"
    assert made.mounts == ((PLACES.inrun, PLACES.inrun, "ro"), (home, home, "rw"))
    assert made.environment == {"HOME": home, "USER": "ada", "LOGNAME": "ada"}
    assert made.labels == {"mlw.run": "demo-1", "mlw.project": "p1", "mlw.user": "ada"}
    assert made.shm_size == "2g"
    assert made.options == ()
    assert made.registry is None


def test_without_an_image_there_is_one():
    assert plan_container(Compute("c", "docker"), DOCKER, PLACES).image == DEFAULT_IMAGE


@pytest.mark.parametrize(
    ("where", "user", "options"),
    [
        (Engine("docker", rootless=True), "0:0", ()),
        (Engine("podman", kind="podman", rootless=True), "1000:1001", ("--userns=keep-id",)),
        (Engine("podman", kind="podman"), "1000:1001", ()),
        (Engine("docker", selinux=True), "1000:1001", ("--security-opt", "label=disable")),
    ],
)
def test_whose_files_come_out(where, user, options):
    made = plan_container(Compute("c", "docker"), where, PLACES)
    assert (made.user, made.options) == (user, options)


def test_keys_of_the_compute_file():
    compute = Compute(
        "c",
        "docker",
        nvidia_docker=True,
        mounts=("/data", "/scratch/x:/x", "/models:/m:ro"),
        shm_size="1g",
        memory="4g",
        cpus="2",
        network="host",
        keep_entrypoint=True,
    )
    places = Places(**{**PLACES.__dict__, "share": "/home/ada/share/demo"})
    made = plan_container(compute, DOCKER, places)
    assert made.gpus == ("all",)
    assert made.mounts[2:] == (
        ("/home/ada/share/demo", "/azureml-share", "rw"),
        ("/data", "/data", "rw"),
        ("/scratch/x", "/x", "rw"),
        ("/models", "/m", "ro"),
    )
    assert made.environment["AZUREML_NATIVE_SHARE_DIRECTORY"] == "/azureml-share/"
    assert (made.shm_size, made.memory, made.cpus, made.network, made.keep_entrypoint) == (
        "1g",
        "4g",
        "2",
        "host",
        True,
    )
    assert plan_container(compute, DOCKER, places, gpus=("GPU-1",)).gpus == ("GPU-1",)
    assert plan_container(compute, DOCKER, places, gpus=()).gpus is None


def test_shared_memory_is_half_of_the_machines():
    assert plan_container(
        Compute("c", "docker"), DOCKER, Places(**{**PLACES.__dict__, "memory": 8 << 30})
    ).shm_size == str(4 << 30)


@pytest.mark.parametrize("text", ["data", "/a:b", "/a:/b:/c", "", "/a:/b:ro:rw", "~/data", "/a:/b\nx:ro"])
def test_what_is_no_mount(text):
    with pytest.raises(ConfigError, match="is not a valid mount"):
        mounts(Compute("c", "docker", mounts=(text,)))


@pytest.mark.parametrize(
    ("image", "server"),
    [
        ("10.0.0.7:5000/a/b:1", "10.0.0.7:5000"),
        ("host.example/a", "host.example"),
        ("localhost/a", "localhost"),
        ("a/b:1", ""),
    ],
)
def test_where_to_log_in(image, server):
    compute = Compute("c", "docker", base_docker_image=image, registry_username="ada")
    assert plan_container(compute, DOCKER, PLACES).registry == {"server": server, "username": "ada"}


# -- engine arguments --------------------------------------------------------------------------------------------


def test_command():
    argv = words({"user": "1000:1000", "environment": {"A": "b c"}, "labels": {"mlw.run": "r"}})
    assert argv[:9] == ["docker", "run", "--detach", "--pull", "never", "--name", "mlw-r", "--init", "--workdir"]
    assert values(argv, "--user") == ["1000:1000"]
    assert values(argv, "--cap-drop") == ["ALL"]
    assert values(argv, "--security-opt") == ["no-new-privileges"]
    assert values(argv, "--env") == ["A=b c", "NVIDIA_VISIBLE_DEVICES=void", "TINI_VERBOSITY=2"]
    assert "--privileged" not in argv
    image = argv.index("img:1")
    assert argv[image - 2 : image] == ["--entrypoint", "/bin/sh"]
    assert argv[image + 1] == "-c"
    assert argv[-2:] == ["python3", "a.py"]
    folder = "/home/ada/.mlw/runs/r"
    assert argv[-9:-2] == ["mlw", f"{folder}/log", f"{folder}/word", "", "0022", "", ""]


@pytest.mark.parametrize("user", [{"user": "0:0"}, {}])
def test_root_has_no_capabilities_either(user):
    assert values(words(user), "--cap-drop") == ["ALL"]


def test_entrypoint_kept():
    argv = words({"keep_entrypoint": True})
    assert "--entrypoint" not in argv
    assert argv[argv.index("img:1") + 1] == "/bin/sh"


@pytest.mark.parametrize(
    ("kind", "gpus", "expected"),
    [
        ("docker", None, []),
        ("docker", [], []),
        ("docker", ["all"], ["--gpus", "all"]),
        ("docker", "all", ["--gpus", "all"]),
        ("docker", ["GPU-1", "GPU-2"], ["--gpus", '"device=GPU-1,GPU-2"']),
        ("podman", ["all"], ["--device", "nvidia.com/gpu=all"]),
        ("podman", ["GPU-1", "GPU-2"], ["--device", "nvidia.com/gpu=GPU-1", "--device", "nvidia.com/gpu=GPU-2"]),
    ],
)
def test_gpus(kind, gpus, expected):
    argv = words({"engine": kind, "gpus": gpus})
    found = [word for at, word in enumerate(argv) if {word, argv[at - 1]} & {"--gpus", "--device"}]
    assert found == expected
    given = "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in argv
    assert given == (kind == "docker" and bool(expected))


@pytest.mark.parametrize(("gpus", "expected"), [(None, ["NVIDIA_VISIBLE_DEVICES=void"]), (["GPU-1"], [])])
def test_a_project_gives_itself_no_gpus(gpus, expected):
    """If the NVIDIA runtime is the engine's default, a project's NVIDIA_VISIBLE_DEVICES would give it GPUs."""
    argv = words({"gpus": gpus}, environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert [word for word in values(argv, "--env") if word.startswith("NVIDIA_VISIBLE")] == expected


def test_odd_paths_are_quoted_for_the_engine():
    argv = words({"mounts": [["/a,b", '/c "d"', "ro"]]})
    assert values(argv, "--mount")[-1] == 'type=bind,"source=/a,b","target=/c ""d""",readonly'
    assert engine.mount_option("/a", "/b\nc", "ro") == 'type=bind,source=/a,"target=/b\nc",readonly'


def test_sources_are_what_the_recorded_links_lead_to():
    resolved = [["/home/ada/.mlw", "/disk/mlw"], ["/home/ada/.mlw/share", "/big/share"], ["/data", "/mnt/data"]]
    given = [["/data/x", "/data/x", "ro"], ["/database", "/db", "ro"], ["/home/ada/.mlw/share/p", "/s", "rw"]]
    sources = [one.split(",")[1] for one in values(words({"mounts": given, "resolved": resolved}), "--mount")]
    assert sources[0] == "source=/disk/mlw/runs/r/work"
    assert sources[-3:] == ["source=/mnt/data/x", "source=/database", "source=/big/share/p"]


def test_only_this_much_of_the_run_folder_is_mounted():
    sources = [one.split(",")[1] for one in values(words({}), "--mount")]
    assert sources == [
        f"source=/home/ada/.mlw/runs/r/{name}" for name in ("work", "metrics", "checkpoints", "log", "word")
    ]


def test_the_environment_cannot_lead_to_another_engine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://evil:2375")
    monkeypatch.setenv("DOCKER_CONTEXT", "evil")
    monkeypatch.setenv("CONTAINER_HOST", "ssh://evil")
    plain = engine.Engine(BASE).environment()
    assert not {"DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST"} & set(plain)
    assert engine.Engine({**BASE, "socket": "/run/d.sock"}).environment()["DOCKER_HOST"] == "unix:///run/d.sock"


def test_word():
    assert start_payload({"A": "it's $x"}) == b"export A='it'\\''s $x'\nMLW_WORD=go\n"
    for name in ("a-b", "1a", "", "a b", "ä", "A=1;x"):
        with pytest.raises(ValueError, match="invalid secret name"):
            start_payload({name: "x"})


# -- engine output and errors ------------------------------------------------------------------------------------

COMPLAINTS = {
    "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n"
    "See 'docker run --help'.": "the Docker engine does not respond",
    "failed to connect to the docker API at unix:///x; check if the path is correct": "engine does not respond",
    "Error: container-init binary not found on the host: stat /usr/libexec/podman/catatonit": "install catatonit",
    'docker: Error response from daemon: invalid mount config for type "bind": stat /home/ada/x: permission denied.': (
        "the engine cannot access a mount source"
    ),
    "docker: Got permission denied while trying to connect to the Docker daemon socket": (
        "this user is not allowed to use Docker"
    ),
    "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock": (
        "not allowed to use Docker"
    ),
    "Error: keep-id requires additional UIDs or GIDs defined in /etc/subuid and /etc/subgid": "no subordinate IDs",
    'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].': "nvidia-ctk",
    "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=GPU-1": "nvidia-ctk cdi generate",
    'docker: Error response from daemon: Conflict. The container name "/mlw-r" is already in use by container "1".': (
        "a container named mlw-r already exists and does not belong to this run"
    ),
    "docker: write /var/lib/docker/tmp/x: no space left on device.": "the engine's disk is full",
    'docker: Error response from daemon: OCI runtime create failed: exec: "/bin/sh": stat /bin/sh: no such file or '
    "directory: unknown.": "image img:1 has no /bin/sh",
    "exec /usr/bin/tini: exec format error": "a different CPU architecture",
    "docker: Error response from daemon: something new.\n\nRun 'docker run --help' for more information": (
        "the engine could not start the container: something new"
    ),
    "": "the engine could not start the container: no reason given",
}


@pytest.mark.parametrize("said", COMPLAINTS)
def test_complaints(said):
    assert COMPLAINTS[said] in text_of(engine_errors.explain_start(said, BASE))


GONE = {**BASE, "image": "microsoft/mmlspark:plus-0.9.9"}
PULLS = [
    (GONE, "Error response from daemon: pull access denied for microsoft/mmlspark, repository does not exist or may "
     "require 'docker login'", "image microsoft/mmlspark:plus-0.9.9 was withdrawn"),
    (BASE, "Error response from daemon: manifest for img:1 not found: manifest unknown", "image img:1 does not exist"),
    (BASE, "Error response from daemon: Get https://x/v2/: dial tcp: lookup x: no such host", "cannot be reached"),
    (BASE, "Error response from daemon: Get https://x/v2/: unauthorized: no", "refused the login"),
    (BASE, "Error response from daemon: Get http://x/v2/: no basic auth credentials", "requires a login"),
    (BASE, "toomanyrequests: You have reached your pull rate limit.", "rate limit reached"),
    (BASE, "no matching manifest for linux/arm64/v8 in the manifest list entries", "a different CPU architecture"),
    (BASE, "Error: weather", "image img:1 cannot be pulled: weather"),
]  # fmt: skip


@pytest.mark.parametrize(("container", "said", "meaning"), PULLS)
def test_pulls(container, said, meaning):
    told = text_of(engine_errors.explain_pull(said, container))
    assert meaning in told
    assert container["image"] in told


def test_what_is_gone_is_replaced_by_what_there_is():
    assert DEFAULT_IMAGE in str(engine_errors.missing_image("microsoft/mmlspark:plus-0.9.9")["hint"])


class FakeEngine:
    container = {"engine": "docker"}

    def __init__(self, text):
        self.text = text

    def init_log(self):
        return self.text


NORMAL, SIGNALLED = (
    "[INFO  tini (1)] Main child exited normally (with status '137')",
    "Main child exited with signal (…)",
)
ENDS = [
    # exit code, OOM, output of the init program, engine restarted → ending, exit code, signal
    (0, False, "", False, run_endings.SUCCEEDED, 0, None),
    (0, True, "", False, run_endings.OUT_OF_MEMORY, 0, None),
    (125, False, "", False, run_endings.FAILED, 125, None),
    (137, False, NORMAL, False, run_endings.FAILED, 137, None),
    (137, False, SIGNALLED, False, run_endings.FAILED, None, 9),
    (137, True, SIGNALLED, False, run_endings.OUT_OF_MEMORY, None, 9),
    (137, True, "", False, run_endings.OUT_OF_MEMORY, None, 9),
    (137, False, "", False, run_endings.ENGINE_STOPPED, None, 9),
    (137, False, "", True, run_endings.ENGINE_STOPPED, None, 9),
    (143, False, SIGNALLED, True, run_endings.ENGINE_STOPPED, None, 15),
    (143, False, SIGNALLED, False, run_endings.FAILED, None, 15),
    (143, False, NORMAL, True, run_endings.FAILED, 143, None),
    (143, False, "", False, run_endings.FAILED, 143, None),
    (139, False, SIGNALLED, True, run_endings.FAILED, None, 11),
    (255, False, NORMAL, False, run_endings.FAILED, 255, None),
    (255, False, "", False, run_endings.ENGINE_STOPPED, None, None),
]


@pytest.mark.parametrize(("code", "oom", "said", "restarted", "ending", "exit", "number"), ENDS)
def test_ends(code, oom, said, restarted, ending, exit, number):
    told = interpret_exit({"code": code, "oom": oom}, FakeEngine(said), restarted)
    assert (told["code"], told["signal"]) == (exit, number)
    assert run_endings.decide(told, None, False, False)[0] == ending
    assert run_endings.decide(told, "cancel", False, False)[0] == run_endings.CANCELLED


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", '{"id": 1}', '{"id": "x", "state": 7}', '{"id":"x","state":{"Pid":"y"}}']
)
def test_an_answer_that_is_not_understood_is_no_answer(text):
    assert engine.parse_state(text)["status"] == "down"


@pytest.mark.parametrize(("limited", "ending"), [(True, run_endings.FAILED), (False, run_endings.OUT_OF_MEMORY)])
def test_what_the_kernel_killed_elsewhere_is_no_evidence_for_one_with_a_limit_of_its_own(limited, ending):
    told = {"code": None, "signal": 9, "problem": None, "oom": False, "limited": limited}
    assert run_endings.decide(told, None, False, True)[0] == ending


def test_a_process_of_the_same_number_is_not_the_containers():
    """The engine may use another PID namespace, so a local process with the container's PID can be unrelated."""
    assert not container_watcher._belongs_to(os.getpid(), "0" * 64)


@pytest.mark.parametrize("rest", ["", "~0123456789abcdef"])
def test_forgetting_a_log_in_follows_no_link_of_another_user(tmp_path, rest):
    """All users can create links in /dev/shm, and the name of a login folder can be guessed."""
    (tmp_path / "private").write_text("mine")
    name = f"mlw-test-{os.getpid()}"
    link = Path(f"/dev/shm/mlw-{os.getuid()}-{name}{rest}")
    link.symlink_to(tmp_path)
    try:
        engine.remove_login(name)
        assert (tmp_path / "private").read_text() == "mine"
    finally:
        link.unlink(missing_ok=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_nobody_can_take_the_place_of_a_log_in(tmp_path):
    name = f"mlw-test-{os.getpid()}"
    other = Path(f"/dev/shm/mlw-{os.getuid()}-{name}")
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\ncat >"$DOCKER_CONFIG/config.json"\n')
    program.chmod(0o755)
    docker = engine.Engine({**BASE, "name": name, "program": str(program), "registry": {"username": "ada"}})
    for _ in range(2):  # the second time, the login of the first still exists
        other.mkdir(exist_ok=True)
        os.chown(other, 12345, 12345)
        try:
            env, complaint = docker.log_in("secret")
            folder = Path(env["DOCKER_CONFIG"])
            assert (complaint, (folder / "config.json").read_text()) == ("", "secret")
            assert folder.stat().st_mode & 0o777 == 0o700
        finally:
            shutil.rmtree(other, ignore_errors=True)
        assert [path for path in Path("/dev/shm").iterdir() if name in path.name] == [folder]
    engine.remove_login(name)
    assert not folder.exists()
