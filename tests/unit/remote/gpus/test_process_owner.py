"""Assignment of pids to runs, with /proc contents from machines with different container engines."""

from __future__ import annotations

import os

import pytest

from mlworkbench.remote.gpus.process_owner import Owner, ProcessTable, display_name, find_owner, is_in_cgroup

ID = "3f4a9c0d7e5b1a2c8d6f0e9b4a7c5d3e1f2a8b6c9d0e7f5a4b3c2d1e0f9a8b7c"
OTHER = "b" * 64

# Real contents of /proc/<pid>/cgroup: the container's first process, the engine's process that started it, another
# process in the same container, and a process in another container.
V1 = """12:devices:/docker/{0}
11:memory:/docker/{0}
10:cpu,cpuacct:/docker/{0}
1:name=systemd:/docker/{0}
0::/system.slice/containerd.service
"""
V1_SHIM = """12:devices:/system.slice/containerd.service
11:memory:/system.slice/containerd.service
10:cpu,cpuacct:/system.slice/containerd.service
1:name=systemd:/system.slice/containerd.service
0::/system.slice/containerd.service
"""
V2 = "0::/system.slice/docker-{0}.scope\n"
V2_SHIM = "0::/system.slice/containerd.service\n"
ROOTLESS = "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{0}.scope\n"
ROOTLESS_SHIM = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service\n"
PODMAN = "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{0}.scope/container\n"
PODMAN_OLD = "0::/machine.slice/libpod-{0}.scope\n"
CONMON = "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-conmon-{0}.scope\n"
ENGINES = {
    "docker, version 1": (V1, V1_SHIM),
    "docker, version 2": (V2, V2_SHIM),
    "rootless docker": (ROOTLESS, ROOTLESS_SHIM),
    "rootless podman": (PODMAN, CONMON),
    "podman of root": (PODMAN_OLD, CONMON),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_processes_inside_and_outside_a_container(engine):
    inside, outside = ENGINES[engine]
    container, engine_process = inside.format(ID), outside.format(ID)
    assert is_in_cgroup(container, container, engine_process)
    assert not is_in_cgroup(inside.format(OTHER), container, engine_process)
    assert not is_in_cgroup(engine_process, container, engine_process)
    assert not is_in_cgroup("0::/user.slice/user-1001.slice/session-3.scope\n", container, engine_process)
    assert not is_in_cgroup("", container, engine_process)


def test_subgroups_of_a_container():
    container = V2.format(ID)
    assert is_in_cgroup(container.strip() + "/system.slice/ssh.service\n", container, V2_SHIM)
    assert not is_in_cgroup(container.strip() + "-other\n", container, V2_SHIM)
    podman = PODMAN.format(ID)
    assert is_in_cgroup(podman.replace("/container", "/exec-1"), podman, CONMON.format(ID))


@pytest.mark.parametrize("text", ["0::/\n", "0::/user.slice/user-1000.slice/session-2.scope\n", V1_SHIM])
def test_an_engine_that_creates_no_group_matches_nothing(text):
    """All processes share a control group if a rootless engine has no delegation, or if the machine is a container."""
    assert not is_in_cgroup(text, text, text)


class FakeProc:
    """A fake /proc."""

    def __init__(self, folder):
        self.folder = folder
        self.set_namespace("self", "pid:[1]")

    def set_namespace(self, pid, table):
        (self.folder / str(pid) / "ns").mkdir(parents=True)
        (self.folder / str(pid) / "ns" / "pid").symlink_to(table)

    def add(
        self, pid, parent, groups="0::/user.slice\n", environ=b"", state="S", cmdline=b"python\0x.py\0", uid=0, **more
    ):
        folder = self.folder / str(pid)
        self.set_namespace(pid, more.get("table", "pid:[1]"))
        fields = ["0"] * 50
        fields[0], fields[1], fields[19] = state, str(parent), str(pid * 10)
        (folder / "stat").write_text(f"{pid} (a ) b) {' '.join(fields)}\n")
        (folder / "cgroup").write_text(groups)
        (folder / "environ").write_bytes(environ)
        (folder / "cmdline").write_bytes(cmdline)
        (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")


@pytest.fixture
def proc(tmp_path):
    fake = FakeProc(tmp_path)
    fake.add(1, 0)
    fake.add(10, 1, environ=b"MLW_SUPERVISOR=1\0MLW_RUN_FOLDER=/s/runs/other\0")
    return fake


def owner(proc, pid, *owners):
    return find_owner(pid, owners, ProcessTable(str(proc.folder)))


def test_by_descent(proc):
    proc.add(20, 10)
    proc.add(21, 20)
    proc.add(30, 1)
    run = Owner("demo", "/s/runs/demo", [20])
    assert [owner(proc, pid, run) for pid in (20, 21, 30, 10, 1, 999)] == ["demo", "demo", None, None, None, None]


def test_by_variables_of_a_detached_process(proc):
    proc.add(40, 1, environ=b"A=1\0MLW_RUN_ID=demo\0MLW_RUN_FOLDER=/s/runs/demo\0")
    proc.add(41, 40, environ=b"")  # started with env -i
    proc.add(42, 1, environ=b"MLW_RUN_ID=demo2\0")
    run = Owner("demo", "/s/runs/demo", [20])
    assert [owner(proc, pid, run) for pid in (40, 41, 42)] == ["demo", "demo", None]


def test_supervisors_and_their_ancestors_belong_to_no_run(proc):
    proc.add(50, 10)
    assert owner(proc, 50, Owner("other", "/s/runs/other", [])) is None


def test_by_control_group(proc):
    proc.add(60, 1, V2_SHIM)  # the engine's shim
    proc.add(61, 60, V2.format(ID))  # the container's first process
    proc.add(62, 60, V2.format(ID))  # docker exec: not a child of the first process
    proc.add(63, 61, V2.format(ID), uid=1000)
    proc.add(64, 60, V2.format(OTHER))
    run = Owner("demo", "/s/runs/demo", [None], init=61)
    assert [owner(proc, pid, run) for pid in (61, 62, 63, 64, 60)] == ["demo", "demo", "demo", None, None]


def test_two_runs_are_distinguished(proc):
    proc.add(70, 10)
    proc.add(71, 10)
    proc.add(72, 71)
    runs = Owner("a", "/s/runs/a", [70]), Owner("b", "/s/runs/b", [71])
    assert [owner(proc, pid, *runs) for pid in (70, 72)] == ["a", "b"]


EVIL, VICTIM = (b"MLW_RUN_ID=%s\0MLW_RUN_FOLDER=/s/runs/%s\0" % (name, name) for name in (b"evil", b"victim"))


def test_variables_cannot_claim_another_run(proc):
    proc.add(100, 10, environ=EVIL)
    proc.add(101, 100, environ=VICTIM)  # started with env MLW_RUN_ID=victim
    evil, victim = Owner("evil", "/s/runs/evil", [100]), Owner("victim", "/s/runs/victim", [999])
    for owners in ([evil, victim], [victim, evil]):
        assert owner(proc, 101, *owners) == "evil"
    assert owner(proc, 101, victim) is None, "the supervisor of a run does not know the others"


def test_variables_in_a_container_cannot_claim_another_run(proc):
    proc.add(110, 1, V2_SHIM)
    proc.add(111, 110, V2.format(ID), environ=EVIL, table="pid:[2]")
    proc.add(112, 110, V2.format(ID), environ=VICTIM, table="pid:[2]")  # forged variable, not a child
    proc.add(113, 110, V2.format(OTHER), environ=VICTIM, table="pid:[3]")
    evil = Owner("evil", "/s/runs/evil", init=111)
    for victim in (Owner("victim", "/s/runs/victim", [999]), Owner("victim", "/s/runs/victim", init=113)):
        assert owner(proc, 112, victim, evil) == "evil"
        assert owner(proc, 112, victim) is None
    assert owner(proc, 113, victim, evil) == "victim"


def test_a_run_started_by_another_run(proc):
    proc.add(120, 10)
    proc.add(121, 120, environ=b"MLW_SUPERVISOR=1\0")
    proc.add(122, 121)
    outer, inner = Owner("outer", "/s/runs/outer", [120]), Owner("inner", "/s/runs/inner", [122])
    assert owner(proc, 122, outer, inner) == owner(proc, 122, inner, outer) == "inner"


def test_a_dead_process_belongs_to_no_run(proc):
    proc.add(80, 10, state="Z")
    assert owner(proc, 80, Owner("demo", "/s/runs/demo", [80])) is None


def test_name_and_user_of_a_process(proc):
    proc.add(90, 1, cmdline=b"/usr/bin/python3\0-u\0/home/ana/train.py\0--lr\0" + b"1\0", uid=os.getuid())
    table = ProcessTable(str(proc.folder))
    assert table.name(90) == "train.py" and table.user(90) == ProcessTable().user(os.getpid())
    assert table.name(999) is None and table.user(999) is None


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["python3", "train.py"], "train.py"),
        (["/opt/env/bin/python", "-W", "ignore", "-u", "/w/a.py", "x"], "a.py"),
        (["python", "-m", "torch.distributed.run", "t.py"], "torch.distributed.run"),
        (["python", "-c", "secret text"], "python -c"),
        (["python3"], "python3"),
        (["/usr/bin/Xorg", ":0"], "Xorg"),
    ],
)
def test_display_names(arguments, name):
    assert display_name(arguments) == name
