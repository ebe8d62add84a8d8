"""Harness for the kill test, modeled on Jepsen: orders, a nemesis, an independent observer, and checkers.

An order is one ``mlw submit --key K``. The nemesis sends kill -9 to the client, the supervisor, or the launcher, at a
random moment or at a named failpoint. The observer is the user's script: it appends ``start K pid`` and ``end K`` to a
file that the product does not use. Afterwards, the checkers use only that file and the final records.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apsw

from ..conftest import MLW, Done, Process, User
from ..fork_server import forked

SEED = int(os.environ.get("MLW_KILL_SEED", "20261115"))
TIMEOUT = float(os.environ.get("MLW_KILL_PATIENCE", "60"))  # seconds after which a command counts as hung
WORKERS = 3

CLIENT_STAGES = ("snapshot", "recorded", "foldered", "launching", "launched-here")
SUPERVISOR_STAGES = (
    "claiming",
    "claimed",
    "accepted",
    "placed",
    "prepared",
    "launched",
    "started",
    "finishing",
    "finished",
)
LAUNCHER_STAGES = ("before-gate", "after-gate", "after-start", "before-exit")
TARGET_STAGES = SUPERVISOR_STAGES + LAUNCHER_STAGES

SCRIPT = """
import os, sys, time

key, lines, pause, observer = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), os.path.expanduser(sys.argv[4])

def observe(text):
    file = os.open(observer, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (text + "\\n").encode())
    os.close(file)

observe(f"start {key} {os.getpid()}")
print("secret of", len(os.environ.get("WORD", "")))  # the word itself is masked on the screen
for n in range(lines):
    print(key, n, "x" * (n * 37 % 200))
    time.sleep(pause)
observe(f"end {key}")
sys.exit(int(sys.argv[5]))
"""


def expected_log(order: Order) -> bytes:
    """Return the output that the script must print."""
    lines = [f"{order.key} {n} {'x' * (n * 37 % 200)}\n" for n in range(order.lines)]
    return "".join([f"secret of {len(order.secret or '')}\n", *lines]).encode()


# -- generator -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What happens to one submit call: ``who`` is killed at ``stage``, or ``delay`` seconds after it started.

    Besides client, supervisor, and launcher: ``both`` (client, then supervisor), ``ours`` (any mlw process on the
    target), ``storm`` (all of those, five times in a row, including their replacements). On SSH targets also ``agent``
    (the process that serves this client), ``session`` (the sshd processes of the connection), and ``connection`` (the
    shared local ssh process).
    """

    who: str = "nobody"
    stage: str | None = None
    delay: float = 0.0

    @property
    def keeps_target(self) -> bool:
        """Whether only the client or its connection dies. The script must then run to completion."""
        return self.who in ("nobody", "client", "agent", "session", "connection")

    def __str__(self) -> str:
        return f"{self.who} at {self.stage or 'a random moment'}" if self.who != "nobody" else "nobody"


NO_FAULT = Fault()


@dataclass(frozen=True)
class Order:
    """One key, how its script behaves, and the fault for each call that submits it."""

    key: str
    faults: tuple[Fault, ...] = (NO_FAULT,)
    lines: int = 5
    pause: float = 0.01
    detach: bool = False
    secret: str | None = None
    code: int = 0  # exit code of the script

    @property
    def ending(self) -> str:
        """The expected ending of a script that ran to completion."""
        return f"failed (exit {self.code})" if self.code else "succeeded"

    @property
    def keeps_target(self) -> bool:
        return all(fault.keeps_target for fault in self.faults)

    def __str__(self) -> str:
        return f"{self.key} ({', '.join(str(fault) for fault in self.faults)})"


def fault_at_stage(stage: str) -> Fault:
    who = "client" if stage in CLIENT_STAGES else "launcher" if stage in LAUNCHER_STAGES else "supervisor"
    return Fault(who, stage)


@dataclass(frozen=True)
class FaultMix:
    """The kinds of faults that ``orders`` assigns in rotation. The kind ``nobody`` (no fault) must come last."""

    kinds: tuple[str, ...]
    victims: tuple[str, ...]  # the processes of which a fault of kind "victim" kills one at a random moment
    max_delay: float = 0.25  # maximum seconds between first sight of the victim and the kill

    @property
    def harmful(self) -> int:
        return len(self.kinds) - self.kinds.count("nobody")


# Half of the orders kill the client, three in ten kill a process on the target, and the rest have no fault.
LOCAL_MIX = FaultMix(
    ("client",) * 3 + ("client stage",) * 2 + ("target stage",) * 2 + ("victim", "nobody", "nobody"),
    ("supervisor", "launcher", "ours", "both", "storm"),
)


def orders(count: int, seed: int, typical: float, mix: FaultMix = LOCAL_MIX) -> list[Order]:
    choose = random.Random(seed)
    near, far = _shuffled_rounds(choose, CLIENT_STAGES), _shuffled_rounds(choose, TARGET_STAGES)
    victims = _shuffled_rounds(choose, mix.victims)

    def fault(kind: str) -> Fault:
        if kind == "client":
            return Fault("client", None, choose.uniform(0, 1.1 * typical))
        if kind == "client stage":
            return fault_at_stage(next(near))
        if kind == "target stage":
            return fault_at_stage(next(far))
        return Fault(next(victims), None, choose.uniform(0, mix.max_delay)) if kind == "victim" else NO_FAULT

    result = []
    for number in range(count):
        kind = mix.kinds[number % len(mix.kinds)]
        faults = [fault(kind)]
        if choose.random() < 0.2:
            faults.append(fault(mix.kinds[choose.randrange(mix.harmful)]))  # the second attempt gets a fault, too
        # The script must run long enough to be killed.
        pause = 0.05 if kind == "victim" else choose.choice([0.0, 0.01, 0.04])
        code = choose.choice([0, 0, 7])  # with a nonzero code, a wrongly assumed success is noticed
        result.append(Order(f"k{number:04}", tuple(faults), 5, pause, detach=choose.random() < 0.2, code=code))
    choose.shuffle(result)
    return result


def _shuffled_rounds(choose: random.Random, stages: Sequence[str]) -> Iterable[str]:
    """Yield every stage once per round, with a new random order each round."""
    while True:
        yield from choose.sample(stages, len(stages))


# -- world ---------------------------------------------------------------------------------------------


@dataclass
class Attempt:
    """Exit code and output of one client, and whether the nemesis hit."""

    order: Order
    fault: Fault
    code: int | None  # None if the client hung
    out: bytes
    err: str
    seconds: float
    hit: bool = False

    @property
    def run(self) -> str | None:
        match = re.search(r"^RunId: +(\S+)", self.err, re.MULTILINE)
        return match.group(1) if match else None


@dataclass
class World:
    """One store, one project with the observed script, and all its orders."""

    user: User
    project: Path
    observer: Path
    attempts: list[Attempt] = field(default_factory=list)
    scripts_may_die: bool = False  # whether scripts may have been killed, too
    victim_timeout: float = 1.0  # seconds to wait for a victim to appear
    pause: float = 0.003  # seconds between two checks for a victim
    options: tuple[str, ...] = ()  # extra options for submit
    _keys: dict[Path, str] = field(default_factory=dict)

    @property
    def observer_argument(self) -> str:
        """The path of the observer's file as the script receives it."""
        return str(self.observer)

    @staticmethod
    def of(user: User) -> World:
        return World(user, user.project("kill", work=SCRIPT), user.home / "observed")

    def with_empty_store(self, name: str) -> World:
        """Return the same project with an empty store, so that a first submit creates everything again."""
        user = copy.copy(self.user)
        user.store = self.user.store.with_name(f"store-{name}")
        user.env = {**self.user.env, "MLW_HOME": str(user.store)}
        return World(user, self.project, self.user.home / f"observed-{name}")

    @property
    def orders(self) -> list[Order]:
        return list({attempt.order.key: attempt.order for attempt in self.attempts}.values())

    def submit_arguments(self, order: Order, detach: bool | None = None) -> list[str]:
        options = ["--detach"] if (order.detach if detach is None else detach) else []
        options += ["--secret", "WORD"] if order.secret else []
        script = ["work.py", order.key, str(order.lines), str(order.pause), self.observer_argument, str(order.code)]
        return ["submit", *self.options, "--key", order.key, *options, *script]

    def env(self, order: Order) -> dict[str, str]:
        return {"WORD": order.secret} if order.secret else {}

    def submit(self, order: Order) -> Done:
        """Run the command as a user types it, without faults."""
        return self.user.mlw(
            *self.submit_arguments(order, detach=False), cwd=self.project, env=self.env(order), timeout=TIMEOUT
        )

    def observed(self) -> list[list[str]]:
        try:
            return [line.split() for line in self.observer.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def count(self, event: str, key: str) -> int:
        return sum(line[:2] == [event, key] for line in self.observed())

    def run_of(self, key: str) -> str | None:
        """Return the run ID from the folders, because the nemesis must not depend on the product."""
        for spec in self.user.store.glob("runs/*/spec.json"):
            if spec not in self._keys:
                self._keys[spec] = _user_key(_json(spec).get("key", ""))
            if self._keys[spec] == key:
                return spec.parent.name
        return None

    # -- target: this machine by default ----------------------------------------------------------------
    @property
    def stores(self) -> list[Path]:
        """The folders where the product keeps its files."""
        return [self.user.store]

    def target_folder(self, run: str) -> Path:
        """Return the run folder on the target, where the supervisor works."""
        return self.user.folder(run)

    def victims(self, order: Order, fault: Fault, client: Process) -> list[int]:
        """Return the processes that the fault names, if they exist yet."""
        run = self.run_of(order.key)
        if run is None:
            return []
        if fault.who == "launcher":
            return [pid for pid in [_json(self.target_folder(run) / "gate.json").get("pid")] if pid]
        if fault.who in ("ours", "storm"):
            pids = processes_of(run)
            return pids if fault.who == "storm" else random.Random(order.key).sample(pids, min(1, len(pids)))
        return [event["data"]["pid"] for event in events(self.target_folder(run)) if event["kind"] == "accepted"]

    def kill(self, pid: int) -> bool:
        return kill_ours(pid, self.user.store)

    def leftover_processes(self) -> list[str]:
        """Describe mlw processes that are still running."""
        return [f"{pid} {_bytes(Path(f'/proc/{pid}/cmdline'))!r}" for pid in processes_using(self.user.store)]

    def check_target(self, runs: list[dict[str, Any]]) -> list[str]:
        """Return problems that only remote targets can have."""
        return []


def _user_key(key: str) -> str:
    """Return the key as the user typed it, without the project ID that the product prepends."""
    return key.rpartition(":")[2]


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return {}


def events(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / "events.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    result = []
    for line in lines:
        try:
            result.append(json.loads(line))
        except ValueError:
            continue  # the truncated line of a supervisor that was killed
    return result


def until(look: Callable[[], Any], timeout: float = TIMEOUT, pause: float = 0.003) -> Any:
    """Wait for a condition and return its value, or None after the timeout."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = look()
        if value:
            return value
        time.sleep(pause)
    return None


# -- nemesis -------------------------------------------------------------------------------------------


def execute_order(world: World, order: Order) -> list[Attempt]:
    """Submit once per fault, and inject each fault."""
    attempts = [_attempt(world, order, fault) for fault in order.faults]
    world.attempts += attempts
    return attempts


def _attempt(world: World, order: Order, fault: Fault) -> Attempt:
    env, far = world.env(order), fault.stage in TARGET_STAGES
    if fault.stage:
        env["MLW_FAILPOINT"] = f"{fault.stage}:kill"
    # Detach for target stages: a client that waits would keep starting supervisors, and each would die
    # at the same stage.
    arguments = world.submit_arguments(order, detach=True if far else None)
    fresh = not _claimed(world, order)
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        client = world.user.start(*arguments, cwd=world.project, env=env, stdout=out, stderr=err)
        hit = not fault.stage and _inject_kill(world, order, fault, client)
        code = _wait_for_client(client)
        if far:  # a run that had passed the stage before this call does not reach it again
            hit = fresh and _claimed(world, order)
        elif fault.who in ("client", "both"):
            hit = hit or code == -signal.SIGKILL
        return Attempt(order, fault, code, _content(out), _content(err).decode(), time.monotonic() - began, hit)


def _claimed(world: World, order: Order) -> bool:
    """Return whether a supervisor claimed the run, or died while claiming it (the claim then has another name)."""
    run = world.run_of(order.key)
    folder = world.target_folder(run) if run else None
    return folder is not None and folder.is_dir() and any(path.name.startswith("claim") for path in folder.iterdir())


def _content(file: Any) -> bytes:
    file.seek(0)
    return bytes(file.read())


def _wait_for_client(client: Process) -> int | None:
    try:
        return client.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
        return None


def _inject_kill(world: World, order: Order, fault: Fault, client: Process) -> bool:
    """Kill the victims of the fault after its delay. Return whether a process other than the client was hit."""
    if fault.who == "nobody":
        return False
    hit = False
    if fault.who in ("client", "both"):
        time.sleep(fault.delay)
        client.kill()  # its exit code shows whether the kill was in time
        if fault.who == "client":
            return False
    if fault.who == "ours":  # after the delay, choose from the processes of that moment
        _await_victims(world, order, fault, client)
        time.sleep(fault.delay)
    for _ in range(5 if fault.who == "storm" else 1):
        victim = _await_victims(world, order, fault, client)
        time.sleep({"ours": 0.0, "storm": 0.02}.get(fault.who, fault.delay))
        for pid in victim if isinstance(victim, list) else ():
            hit = world.kill(pid) or hit
    return hit


def _await_victims(world: World, order: Order, fault: Fault, client: Process) -> Any:
    """Return the victims, True if the client ended before any appeared, or None after the timeout."""
    condition = lambda: world.victims(order, fault, client) or client.poll() is not None  # noqa: E731
    return until(condition, world.victim_timeout, world.pause)


def kill_ours(pid: int, store: Path, program: bytes = b"__main__.py") -> bool:
    """Send kill -9, but never to an unrelated process that reuses the PID, nor to the user's script after an exec."""
    if not _refers_to(pid, os.fsencode(store)):
        return False
    try:
        os.kill(pid, signal.SIGSTOP)  # so that it cannot exec another program between check and kill
        ours = program in (Path("/proc") / str(pid) / "cmdline").read_bytes()
        os.kill(pid, signal.SIGKILL if ours else signal.SIGCONT)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return ours


def _refers_to(pid: int, mark: bytes) -> bool:
    place = Path("/proc") / str(pid)
    try:
        return _is_alive(pid) and mark in (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def processes_of(run: str) -> list[int]:
    """Return the PIDs of a run's supervisor, launcher, and helper processes, but not of the user's script."""
    pids = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                arguments = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if run.encode() in arguments and any(argument.endswith(b"__main__.py") for argument in arguments):
                pids.append(int(place.name))
    return pids


def processes_using(store: Path) -> list[int]:
    """Return all live processes that refer to the store, including forked commands."""
    mark = os.fsencode(store)
    pids = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    forks = [process.pid for process in forked(str(store)) if process.returncode is None and _is_alive(process.pid)]
    return [pid for pid in pids if pid != os.getpid() and _refers_to(pid, mark)] + forks


def run_parallel(body: Callable[[Any], Any], items: Iterable[Any], workers: int = WORKERS) -> list[Any]:
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(body, items))


# -- recovery ------------------------------------------------------------------------------------------


def recover(world: World) -> list[str]:
    """Repeat the same command for every key, as a user does after a crash. Return problems in the output."""
    return [
        problem
        for problems in run_parallel(lambda order: _recover_one(world, order), world.orders)
        for problem in problems
    ]


def _recover_one(world: World, order: Order) -> list[str]:
    try:
        done = world.submit(order)
    except subprocess.TimeoutExpired as error:
        return [f"{order}: the same submit hangs; it said {error.stderr!r}"]
    if "RunId:" not in done.err or "Status:" not in done.err:
        return [f"{order}: the same submit said {done!r}"]
    if (
        order.keeps_target
        and not world.scripts_may_die
        and (done.code, done.stdout) != (order.code, expected_log(order))
    ):
        return [f"{order}: the same submit showed another log or code: {done!r}"]
    return []


def records(world: World) -> list[dict[str, Any]]:
    """Return the history as a user lists it, without the column that depends on the current time."""
    runs = [{name: value for name, value in run.items() if name != "age"} for run in world.user.runs()]
    return [{**run, "submit_key": _user_key(run["submit_key"])} for run in runs]


# -- checkers ------------------------------------------------------------------------------------------


def find_violations(world: World) -> list[str]:
    """Recover, then return a description of every violation. The list must be empty."""
    wrong = [f"{attempt.order}: hung: {attempt.err}" for attempt in world.attempts if attempt.code is None]
    wrong += recover(world)
    first = records(world)
    wrong += check_keys(world, first) + check_printed(world, first) + check_runs(world, first)
    wrong += check_folders(world, first) + check_database(world) + world.check_target(first)
    wrong += recover(world)
    if records(world) != first:
        wrong.append("a second recovery changed the history")
    wrong += check_processes(world)
    return wrong


def check_keys(world: World, runs: list[dict[str, Any]]) -> list[str]:
    per_key = Counter(order["submit_key"] for order in runs)
    return [f"{order} has {per_key[order.key]} runs" for order in world.orders if per_key[order.key] != 1]


def check_printed(world: World, runs: list[dict[str, Any]]) -> list[str]:
    """Check that every run ID that was printed belongs to an ended run with the same key."""
    by_id = {run["run_id"]: run for run in runs}
    wrong = []
    for attempt in world.attempts:
        if attempt.run is None:
            continue
        run = by_id.get(attempt.run)
        if run is None:
            wrong.append(f"{attempt.order}: run {attempt.run} was printed and is lost")
        elif run["status"] not in ("Completed", "Failed", "Canceled") or run["submit_key"] != attempt.order.key:
            wrong.append(f"{attempt.order}: run {attempt.run} was printed and is {run['status']}")
    return wrong


def check_runs(world: World, runs: list[dict[str, Any]]) -> list[str]:
    by_key = {run["submit_key"]: run for run in runs}
    observed = Counter(tuple(line[:2]) for line in world.observed())
    return [
        f"{order}, run {by_key[order.key]['run_id']}: {problem}"
        for order in world.orders
        if order.key in by_key
        for problem in _check_run(world, order, by_key[order.key], observed)
    ]


def _check_run(world: World, order: Order, run: dict[str, Any], observed: Counter[tuple[str, ...]]) -> list[str]:
    starts, ends = observed["start", order.key], observed["end", order.key]
    details = f"{run['status']}, {run['ending']}, {run['cause']}, {starts} starts, {ends} ends"
    log = _bytes(world.user.folder(run["run_id"]) / "log")
    whole = expected_log(order)
    rules = {
        "it was started more than once": starts <= 1,
        "the ending is not true": run["ending"] in (order.ending, "could not start", "exit unknown")
        or (world.scripts_may_die and run["ending"] == "failed (signal 9)"),
        "completed without a start and an end": run["ending"] != order.ending or (starts, ends) == (1, 1),
        "its log is not what the script printed": log == whole if ends else whole.startswith(log),
        "it went on after its end was told": run["log_bytes"] in (None, len(log)),
        "it could not start, and did": run["ending"] != "could not start" or starts == 0,
        "the script was killed": ends == starts or world.scripts_may_die,
        "only the client was killed, and the ending is not the script's": run["ending"] == order.ending
        or not order.keeps_target
        or world.scripts_may_die,
    }
    return [f"{problem}: {details}" for problem, holds in rules.items() if not holds]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # ProcessLookupError: the process ended during the read
        return b""


def check_folders(world: World, runs: list[dict[str, Any]]) -> list[str]:
    """Check that every run has a folder and every folder has a run."""
    folders = {path.name for path in (world.user.store / "runs").iterdir()}
    listed = {run["run_id"] for run in runs}
    return (
        [f"folders without a run: {folders - listed}; without a folder: {listed - folders}"]
        if folders != listed
        else []
    )


def check_database(world: World) -> list[str]:
    connection = apsw.Connection(str(world.user.store / "history.db"), flags=apsw.SQLITE_OPEN_READONLY)
    result = next(iter(connection.execute("PRAGMA integrity_check")))[0]
    connection.close()
    damaged = [path.name for path in world.user.store.glob("history.db.damaged*")]
    return [f"the database: {result}, set aside: {damaged}"] if result != "ok" or damaged else []


def check_processes(world: World) -> list[str]:
    """Check for leftover processes. Supervisors may still be cleaning up, so allow some time."""
    if until(lambda: not world.leftover_processes(), 20):
        return []
    return [f"processes are left: {world.leftover_processes()}"]


def leftover_files(store: Path) -> list[str]:
    """Return what killed processes left behind: the kind of each incomplete file."""
    kinds = {
        "parts of run files": "runs/*/*.part",
        "lost claims": "runs/*/claim.*",
        "half-placed working folders": "runs/*/placing",
        "parts of blobs": "blobs/part-*",
        "parts of the library": "lib/.part-*",
        "half-made spares": "spares/.*",
    }
    return [name for name, pattern in kinds.items() for _ in store.glob(pattern)]


def save(world: World, seed: int, wrong: Sequence[str]) -> str:
    """Save the evidence of a failure and return the text for the message."""
    place = Path(tempfile.mkdtemp(prefix="mlw-kill-"))
    for number, store in enumerate(world.stores):
        shutil.copytree(store, place / f"store-{number}", symlinks=True, ignore=shutil.ignore_patterns("lib"))
    (place / "observed").write_bytes(_bytes(world.observer))
    attempts = [{**asdict(attempt), "out": attempt.out.decode(errors="replace")} for attempt in world.attempts]
    (place / "attempts.json").write_text(json.dumps(attempts, indent=1))
    (place / "wrong.txt").write_text("\n".join(wrong) + "\n")
    return f"seed {seed}; kept in {place}\n" + "\n".join(wrong)


def assert_no_violations(world: World, seed: int = SEED) -> None:
    wrong = find_violations(world)
    assert not wrong, save(world, seed, wrong)


def assert_rebuild_is_equal(world: World, seed: int = SEED) -> None:
    """Check that an index rebuilt from the run folders has the same content."""
    before = records(world)
    done = world.user.mlw("history", "rebuild")
    after = records(world)
    wrong = [f"{old} became {new}" for old, new in zip(before, after, strict=False) if old != new]
    assert done.code == 0 and before == after, save(world, seed, [repr(done), *wrong])


# -- strace: kill before the N-th system call of a kind --------------------------------------------------


@dataclass(frozen=True)
class CallPoint:
    """The moment just before the ``nth`` call of this name in the traced process."""

    call: str
    nth: int

    def inject(self, log: Path) -> list[str]:
        return ["-e", f"trace={self.call}", "-e", f"inject={self.call}:signal=KILL:when={self.nth}", "-o", str(log)]

    def __str__(self) -> str:
        return f"{self.call} {self.nth}"


# System calls that change a file, start a process, or send data to one. All others only read.
MODIFYING_CALLS = frozenset(
    "fsync fdatasync rename renameat renameat2 link linkat symlinkat unlink unlinkat mkdir mkdirat rmdir pwrite64 write"
    " ftruncate fallocate clone clone3 fork vfork execve flock chmod fchmod utimensat dup2 dup3 setsid exit_group"
    " copy_file_range sendfile".split()
)
# These calls only wait.
WAITING_CALLS = frozenset("clock_nanosleep nanosleep restart_syscall pselect6 select poll".split())


def was_killed(log: Path) -> bool:
    """Return whether strace killed a process. It does not if the call occurs less often than in the earlier trace."""
    assert log.exists(), f"strace did not run: there is no {log}"
    return b"killed by SIGKILL" in log.read_bytes()


def points(trace: Path) -> list[CallPoint]:
    """Return every call of one process in order."""
    counts: Counter[str] = Counter()
    result = []
    for line in trace.read_text(errors="replace").splitlines():
        name = re.match(r"(\w+)\(", line)
        if name:
            counts[name.group(1)] += 1
            result.append(CallPoint(name.group(1), counts[name.group(1)]))
    return result


def trace_client(world: World, order: Order, options: Sequence[str]) -> Attempt:
    """Submit under strace. With -f in the options, strace also follows what the client forks."""
    began = time.monotonic()
    command = ["strace", "-q", *options, str(MLW), *world.submit_arguments(order)]
    done = subprocess.run(
        command,
        cwd=world.project,
        env={**world.user.env, **world.env(order)},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT,
    )
    stderr = done.stderr.decode()
    attempt = Attempt(order, order.faults[0], done.returncode, done.stdout, stderr, time.monotonic() - began)
    world.attempts.append(attempt)
    return attempt


ATTACH_SECONDS = 0.5  # seconds that a process waits for strace to attach


def trace_target(
    world: World,
    order: Order,
    stage: str,
    options: Sequence[str],
    meanwhile: Callable[[Path, int], None] = lambda folder, pid: None,
) -> Attempt:
    """Submit, stop the supervisor at a stage (the launcher at ``before-gate``), and trace it from that stage on."""
    began = time.monotonic()
    env = {**world.env(order), "MLW_FAILPOINT": f"{stage}:sleep={ATTACH_SECONDS}"}
    client = world.user.start(*world.submit_arguments(order), cwd=world.project, env=env)
    pid = until(lambda: _process_at_stage(world, order, stage), 20)
    assert pid, f"{order.key}: nobody came to {stage}"
    tracer = subprocess.Popen(["strace", "-q", *options, "-p", str(pid)], stdin=subprocess.DEVNULL)
    meanwhile(world.user.folder(world.run_of(order.key) or ""), pid)
    out, err = client.communicate(timeout=TIMEOUT)
    tracer.wait(TIMEOUT)
    attempt = Attempt(order, order.faults[0], client.returncode, out, err.decode(), time.monotonic() - began)
    world.attempts.append(attempt)
    return attempt


def _process_at_stage(world: World, order: Order, stage: str) -> int | None:
    run = world.run_of(order.key)
    holder = owner(world.user.folder(run)) if run else None
    if holder is None or stage not in LAUNCHER_STAGES:
        return holder
    return next(iter(children(holder)), None)


def owner(folder: Path) -> int | None:
    return _json(folder / "claim" / "owner.json").get("pid")


def children(pid: int) -> list[int]:
    return [int(child) for child in _bytes(Path(f"/proc/{pid}/task/{pid}/children")).split()]


def client_points(world: World, trace: Path, everything: bool) -> list[CallPoint]:
    """Return all modifying calls of an undisturbed first submit, including those of forks if ``everything``."""
    calm = world.with_empty_store("calm-all" if everything else "calm")
    trace_client(calm, Order("k", detach=everything), ["-ff" if everything else "-q", "-o", str(trace)])
    traces = sorted(trace.parent.glob(trace.name + ".*")) if everything else [trace]
    return list(dict.fromkeys(point for file in traces for point in points(file) if point.call in MODIFYING_CALLS))


def kill_client_before(world: World, point: CallPoint, everything: bool) -> bool:
    """Kill before one system call of a first submit, recover, and check the result. Return whether the kill hit."""
    separate = world.with_empty_store(f"{point.call}-{point.nth}-{'all' if everything else 'client'}")
    separate.scripts_may_die = everything
    order = Order("k", (Fault("client", f"strace: {point}"),), detach=everything, secret="mellon")
    log = world.user.home / f"{separate.user.store.name}.strace"
    attempt = trace_client(separate, order, [*(["-f"] if everything else []), *point.inject(log)])
    attempt.hit = was_killed(log)
    assert_no_violations(separate)
    return attempt.hit


def target_points(world: World, trace: Path, stage: str) -> list[CallPoint]:
    trace_target(world, Order(f"calm-{stage}", detach=True), stage, ["-o", str(trace)])
    return [point for point in points(trace) if point.call not in WAITING_CALLS]


def kill_target_before(world: World, point: CallPoint, who: str, stage: str) -> bool:
    order = Order(f"{who}-{point.call}-{point.nth}", (Fault(who, f"strace: {point}"),), detach=True, code=7)
    log = world.user.home / f"{order.key}.strace"
    attempt = trace_target(world, order, stage, point.inject(log))
    attempt.hit = was_killed(log)
    return attempt.hit
