"""Pid → run, on /proc as it was seen on machines with different engines."""

from __future__ import annotations

import os

import pytest

from mlworkbench.remote.gpus.whose import Owner, Processes, called, in_group, owner_of

ID = "3f4a9c0d7e5b1a2c8d6f0e9b4a7c5d3e1f2a8b6c9d0e7f5a4b3c2d1e0f9a8b7c"
OTHER = "b" * 64

# What /proc/<pid>/cgroup really says: of the container's first process, of the engine's process above it, of another
# process in the same container, and of one in another container.
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
def test_in_the_container_or_not(engine):
    inside, outside = ENGINES[engine]
    own, above = inside.format(ID), outside.format(ID)
    assert in_group(own, own, above)
    assert not in_group(inside.format(OTHER), own, above)
    assert not in_group(above, own, above)
    assert not in_group("0::/user.slice/user-1001.slice/session-3.scope\n", own, above)
    assert not in_group("", own, above)


def test_a_group_below_the_containers():
    own = V2.format(ID)
    assert in_group(own.strip() + "/system.slice/ssh.service\n", own, V2_SHIM)
    assert not in_group(own.strip() + "-other\n", own, V2_SHIM)
    podman = PODMAN.format(ID)
    assert in_group(podman.replace("/container", "/exec-1"), podman, CONMON.format(ID))


@pytest.mark.parametrize("text", ["0::/\n", "0::/user.slice/user-1000.slice/session-2.scope\n", V1_SHIM])
def test_an_engine_that_makes_no_group_says_nothing(text):
    """Rootless without delegation, or a machine that is itself a container: all processes look the same."""
    assert not in_group(text, text, text)


class Fake:
    """A /proc: pid → parent, and what else is known of it."""

    def __init__(self, folder):
        self.folder = folder
        self.put_into_table("self", "pid:[1]")

    def put_into_table(self, pid, table):
        (self.folder / str(pid) / "ns").mkdir(parents=True)
        (self.folder / str(pid) / "ns" / "pid").symlink_to(table)

    def add(
        self, pid, parent, groups="0::/user.slice\n", environ=b"", state="S", cmdline=b"python\0x.py\0", uid=0, **more
    ):
        place = self.folder / str(pid)
        self.put_into_table(pid, more.get("table", "pid:[1]"))
        rest = ["0"] * 50
        rest[0], rest[1], rest[19] = state, str(parent), str(pid * 10)
        (place / "stat").write_text(f"{pid} (a ) b) {' '.join(rest)}\n")
        (place / "cgroup").write_text(groups)
        (place / "environ").write_bytes(environ)
        (place / "cmdline").write_bytes(cmdline)
        (place / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")


@pytest.fixture
def proc(tmp_path):
    made = Fake(tmp_path)
    made.add(1, 0)
    made.add(10, 1, environ=b"MLW_SUPERVISOR=1\0MLW_RUN_FOLDER=/s/runs/other\0")
    return made


def owner(proc, pid, *owners):
    return owner_of(pid, owners, Processes(str(proc.folder)))


def test_by_descent(proc):
    proc.add(20, 10)
    proc.add(21, 20)
    proc.add(30, 1)
    run = Owner("demo", "/s/runs/demo", [20])
    assert [owner(proc, pid, run) for pid in (20, 21, 30, 10, 1, 999)] == ["demo", "demo", None, None, None, None]


def test_by_the_mark_of_a_process_that_left_its_parents(proc):
    proc.add(40, 1, environ=b"A=1\0MLW_RUN_ID=demo\0MLW_RUN_FOLDER=/s/runs/demo\0")
    proc.add(41, 40, environ=b"")  # env -i
    proc.add(42, 1, environ=b"MLW_RUN_ID=demo2\0")
    run = Owner("demo", "/s/runs/demo", [20])
    assert [owner(proc, pid, run) for pid in (40, 41, 42)] == ["demo", "demo", None]


def test_a_supervisor_is_nobodys_and_neither_is_what_it_stands_on(proc):
    proc.add(50, 10)
    assert owner(proc, 50, Owner("other", "/s/runs/other", [])) is None


def test_by_the_containers_group(proc):
    proc.add(60, 1, V2_SHIM)  # the shim
    proc.add(61, 60, V2.format(ID))  # the container's first process
    proc.add(62, 60, V2.format(ID))  # docker exec: not below the first
    proc.add(63, 61, V2.format(ID), uid=1000)
    proc.add(64, 60, V2.format(OTHER))
    run = Owner("demo", "/s/runs/demo", [None], init=61)
    assert [owner(proc, pid, run) for pid in (61, 62, 63, 64, 60)] == ["demo", "demo", "demo", None, None]


def test_the_right_one_of_two_runs(proc):
    proc.add(70, 10)
    proc.add(71, 10)
    proc.add(72, 71)
    runs = Owner("a", "/s/runs/a", [70]), Owner("b", "/s/runs/b", [71])
    assert [owner(proc, pid, *runs) for pid in (70, 72)] == ["a", "b"]


EVIL, VICTIM = (b"MLW_RUN_ID=%s\0MLW_RUN_FOLDER=/s/runs/%s\0" % (one, one) for one in (b"evil", b"victim"))


def test_a_mark_does_not_make_a_process_anothers(proc):
    proc.add(100, 10, environ=EVIL)
    proc.add(101, 100, environ=VICTIM)  # env MLW_RUN_ID=victim …
    evil, victim = Owner("evil", "/s/runs/evil", [100]), Owner("victim", "/s/runs/victim", [999])
    for owners in ([evil, victim], [victim, evil]):
        assert owner(proc, 101, *owners) == "evil"
    assert owner(proc, 101, victim) is None, "the supervisor of a run does not know the others"


def test_nor_does_a_mark_in_a_container(proc):
    proc.add(110, 1, V2_SHIM)
    proc.add(111, 110, V2.format(ID), environ=EVIL, table="pid:[2]")
    proc.add(112, 110, V2.format(ID), environ=VICTIM, table="pid:[2]")  # docker exec: the script chose all of it
    proc.add(113, 110, V2.format(OTHER), environ=VICTIM, table="pid:[3]")
    evil = Owner("evil", "/s/runs/evil", init=111)
    for victim in (Owner("victim", "/s/runs/victim", [999]), Owner("victim", "/s/runs/victim", init=113)):
        assert owner(proc, 112, victim, evil) == "evil"
        assert owner(proc, 112, victim) is None
    assert owner(proc, 113, victim, evil) == "victim"


def test_a_run_that_was_started_by_another(proc):
    proc.add(120, 10)
    proc.add(121, 120, environ=b"MLW_SUPERVISOR=1\0")
    proc.add(122, 121)
    outer, inner = Owner("outer", "/s/runs/outer", [120]), Owner("inner", "/s/runs/inner", [122])
    assert owner(proc, 122, outer, inner) == owner(proc, 122, inner, outer) == "inner"


def test_a_dead_process_is_nobodys(proc):
    proc.add(80, 10, state="Z")
    assert owner(proc, 80, Owner("demo", "/s/runs/demo", [80])) is None


def test_who_and_what_a_process_is(proc):
    proc.add(90, 1, cmdline=b"/usr/bin/python3\0-u\0/home/ana/train.py\0--lr\0" + b"1\0", uid=os.getuid())
    table = Processes(str(proc.folder))
    assert table.name(90) == "train.py" and table.user(90) == Processes().user(os.getpid())
    assert table.name(999) is None and table.user(999) is None


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python3", "train.py"], "train.py"),
        (["/opt/env/bin/python", "-W", "ignore", "-u", "/w/a.py", "x"], "a.py"),
        (["python", "-m", "torch.distributed.run", "t.py"], "torch.distributed.run"),
        (["python", "-c", "secret text"], "python -c"),
        (["python3"], "python3"),
        (["/usr/bin/Xorg", ":0"], "Xorg"),
    ],
)
def test_what_a_process_is_called(words, name):
    assert called(words) == name
