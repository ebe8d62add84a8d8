"""The kill test's harness, in the Jepsen manner: orders, a nemesis, an observer that is not the product, checkers.

An order is one ``mlw submit --key K``. The nemesis kills -9 while it is carried out: the client, the supervisor, the
launcher, at a random moment or at a fail point by name. The observer is the user's script itself: it appends
``start K pid`` and ``end K`` to a file that the product does not know. The checkers judge afterwards, from that file
and the final records only.
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

from ..conftest import MLW, Done, User

SEED = int(os.environ.get("MLW_KILL_SEED", "20261115"))
PATIENCE = float(os.environ.get("MLW_KILL_PATIENCE", "60"))  # seconds after which a command counts as hanging
AT_ONCE = 3

CLIENT_STAGES = ("snapshot", "recorded", "foldered", "launching", "launched-here")
SUPERVISOR_STAGES = (
    "claiming", "claimed", "accepted", "placed", "prepared", "launched", "started", "finishing", "finished",
)
LAUNCHER_STAGES = ("before-gate", "after-gate", "after-start", "before-exit")
FAR_STAGES = SUPERVISOR_STAGES + LAUNCHER_STAGES

SCRIPT = '''
import os, sys, time

key, lines, pause, observer = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]

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
'''


def expected_log(order: Order) -> bytes:
    """What the script prints, made up here a second time."""
    lines = [f"{order.key} {n} {'x' * (n * 37 % 200)}\n" for n in range(order.lines)]
    return "".join([f"secret of {len(order.secret or '')}\n", *lines]).encode()


# -- generator -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What befalls one submit. ``who`` is killed at ``stage``, or at a random moment: ``delay`` seconds after its birth."""

    who: str = "nobody"  # or client, supervisor, launcher, ours (any process of ours), both (client, then supervisor)
    stage: str | None = None
    delay: float = 0.0

    @property
    def spares_target(self) -> bool:
        """Whether only the client dies: then the run must succeed in the end."""
        return self.who in ("nobody", "client")

    def __str__(self) -> str:
        return f"{self.who} at {self.stage or 'a random moment'}" if self.who != "nobody" else "nobody"


@dataclass(frozen=True)
class Order:
    """One submit, its key and its fate."""

    key: str
    fault: Fault = Fault()
    lines: int = 5
    pause: float = 0.01
    detach: bool = False
    secret: str | None = None


def staged(stage: str) -> Fault:
    who = "client" if stage in CLIENT_STAGES else "launcher" if stage in LAUNCHER_STAGES else "supervisor"
    return Fault(who, stage)


def orders(count: int, seed: int, typical: float) -> list[Order]:
    """Half of them with the client killed, three in ten with something on the target killed, the rest untouched."""
    choose = random.Random(seed)
    near, far = _turns(choose, CLIENT_STAGES), _turns(choose, FAR_STAGES)
    made = []
    for number in range(count):
        kind = number % 10
        if kind in (0, 3, 6):
            fault = Fault("client", None, choose.uniform(0, 1.1 * typical))
        elif kind in (1, 5):
            fault = staged(next(near))
        elif kind in (2, 7):
            fault = staged(next(far))
        elif kind == 8:
            who = choose.choice(["supervisor", "launcher", "ours", "both"])
            fault = Fault(who, None, choose.uniform(0, 0.2))
        else:
            fault = Fault()
        pause = choose.choice([0.0, 0.01, 0.04])
        made.append(Order(f"k{number:04}", fault, 5, pause, detach=fault.who == "nobody" and choose.random() < 0.3))
    choose.shuffle(made)
    return [_detached(order) for order in made]


def _detached(order: Order) -> Order:
    # Each supervisor that a waiting client puts to work would die at the same stage again, for ever.
    far = order.fault.stage in FAR_STAGES
    return Order(**{**_fields(order), "detach": True}) if far else order


def _fields(order: Order) -> dict[str, Any]:
    return {name: getattr(order, name) for name in Order.__dataclass_fields__}


def _turns(choose: random.Random, stages: Sequence[str]) -> Iterable[str]:
    """Every stage in turn, each round in another order, so that none is left out."""
    while True:
        yield from choose.sample(stages, len(stages))


# -- the place where it happens ------------------------------------------------------------------------


@dataclass
class Attempt:
    """What the client did and said, and whom the nemesis hit."""

    order: Order
    code: int | None  # None: it hung
    out: bytes
    err: str
    hits: list[str]
    seconds: float

    @property
    def run(self) -> str | None:
        found = re.search(r"^RunId: +(\S+)", self.err, re.MULTILINE)
        return found.group(1) if found else None


@dataclass
class World:
    """One store, one project with the observed script, and all that was ordered in it."""

    user: User
    project: Path
    observer: Path
    attempts: list[Attempt] = field(default_factory=list)
    allowed: frozenset[str] = frozenset()  # keys whose script may have been killed as well

    @staticmethod
    def of(user: User) -> World:
        return World(user, user.project("kill", work=SCRIPT), user.home / "observed")

    def apart(self, name: str) -> World:
        """The same project with an empty store: everything that a first submit makes is made again."""
        user = copy.copy(self.user)
        user.store = self.user.store.with_name(f"store-{name}")
        user.env = {**self.user.env, "MLW_HOME": str(user.store)}
        return World(user, self.project, self.user.home / f"observed-{name}")

    @property
    def orders(self) -> list[Order]:
        return list({attempt.order.key: attempt.order for attempt in self.attempts}.values())

    def words(self, order: Order) -> list[str]:
        options = ["--detach"] if order.detach else []
        options += ["--secret", "WORD"] if order.secret else []
        script = ["work.py", order.key, str(order.lines), str(order.pause), str(self.observer)]
        return ["submit", "--key", order.key, *options, *script]

    def env(self, order: Order) -> dict[str, str]:
        return {"WORD": order.secret} if order.secret else {}

    def submit(self, order: Order, wait: bool = True) -> Done:
        """The command as a user types it, with nobody to disturb it."""
        calm = Order(**{**_fields(order), "detach": not wait})
        return self.user.mlw(*self.words(calm), cwd=self.project, env=self.env(order), timeout=PATIENCE)

    def observed(self) -> list[list[str]]:
        try:
            return [line.split() for line in self.observer.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def count(self, word: str, key: str) -> int:
        return sum(line[:2] == [word, key] for line in self.observed())

    def run_of(self, key: str) -> str | None:
        """The run's id, from the folders: the nemesis asks no product."""
        for spec in self.user.store.glob("runs/*/spec.json"):
            if _json(spec).get("key") == key:
                return spec.parent.name
        return None


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
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # the torn line of a supervisor that was killed
    return found


def until(look: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """Wait for a condition; what it gave, or None when the time is over."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.003)
    return None


# -- nemesis -------------------------------------------------------------------------------------------


def carry_out(world: World, order: Order) -> Attempt:
    """Submit, and let the fault happen."""
    failpoint = {"MLW_FAILPOINT": f"{order.fault.stage}:kill"} if order.fault.stage else {}
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        client = world.user.start(
            *world.words(order), cwd=world.project, env={**world.env(order), **failpoint}, stdout=out, stderr=err
        )
        hits = [] if order.fault.stage else _strike(world, order, client)
        code = _ended(client)
        if code == -signal.SIGKILL and "client" not in hits:
            hits.append(f"client at {order.fault.stage}")
        elif order.fault.stage in FAR_STAGES:
            hits.append(str(order.fault))
        attempt = Attempt(order, code, _content(out), _content(err).decode(), hits, time.monotonic() - began)
    world.attempts.append(attempt)
    return attempt


def _content(file: Any) -> bytes:
    file.seek(0)
    return bytes(file.read())


def _ended(client: subprocess.Popen[bytes]) -> int | None:
    try:
        return client.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
        return None


def _strike(world: World, order: Order, client: subprocess.Popen[bytes]) -> list[str]:
    fault, hits = order.fault, []
    if fault.who in ("client", "both"):
        time.sleep(fault.delay)
        if client.poll() is None:
            client.kill()
            hits.append("client")
    if fault.who not in ("client", "nobody"):
        victim = until(lambda: _victim(world, order) or client.poll() is not None, 5)
        time.sleep(fault.delay)
        if victim is not True and victim is not None and kill_ours(victim, world.user.store):
            hits.append("supervisor" if fault.who == "both" else fault.who)
    return hits


def _victim(world: World, order: Order) -> int | None:
    run = world.run_of(order.key)
    if run is None:
        return None
    folder = world.user.folder(run)
    if order.fault.who == "launcher":
        return _json(folder / "gate.json").get("pid")
    if order.fault.who == "ours":
        found = processes_of(run)
        return random.Random(order.key).choice(found) if found else None
    return next((one["data"]["pid"] for one in events(folder) if one["kind"] == "accepted"), None)


def kill_ours(pid: int, store: Path) -> bool:
    """Kill -9, but never a stranger that has got the same number."""
    if not _has(pid, os.fsencode(store)):
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _has(pid: int, mark: bytes) -> bool:
    place = Path("/proc") / str(pid)
    try:
        state = (place / "stat").read_text().rsplit(")", 1)[1].split()[0]
        return state not in "ZX" and mark in (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
    except OSError:
        return False


def processes_of(run: str) -> list[int]:
    """Supervisor, launcher and their helpers of one run; not its script, which is the user's."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if run.encode() in words and any(word.endswith(b"__main__.py") for word in words):
                found.append(int(place.name))
    return found


def marked(store: Path) -> list[int]:
    """All living processes that know the store."""
    mark = os.fsencode(store)
    pids = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and _has(pid, mark)]


def carry_out_all(world: World, wanted: Sequence[Order]) -> None:
    at_once(lambda order: carry_out(world, order), wanted)


def at_once(body: Callable[[Any], Any], items: Iterable[Any], workers: int = AT_ONCE) -> list[Any]:
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(body, items))


# -- recovery ------------------------------------------------------------------------------------------


def recover(world: World) -> list[str]:
    """What a user does after a crash: the same command again, for every key. Complaints about what they see."""
    return [words for found in at_once(lambda order: _recover_one(world, order), world.orders) for words in found]


def _recover_one(world: World, order: Order) -> list[str]:
    try:
        done = world.submit(order)
    except subprocess.TimeoutExpired as error:
        return [f"{order.key}: the same submit hangs ({order.fault}); it said {error.stderr!r}"]
    said = f"{order.key} ({order.fault}): the same submit said {done!r}"
    if "RunId:" not in done.err or "Status:" not in done.err:
        return [said]
    if order.fault.spares_target and order.key not in world.allowed and done.stdout != expected_log(order):
        return [said]
    return []


def records(world: World) -> list[dict[str, Any]]:
    """The history as a user lists it, but for the one column that tells the time of day."""
    return [{name: value for name, value in one.items() if name != "age"} for one in world.user.runs()]


# -- checkers ------------------------------------------------------------------------------------------


def judge(world: World) -> list[str]:
    """Recover, then everything that is wrong, in words. Nothing may be."""
    wrong = [f"{one.order.key}: hung ({one.order.fault}): {one.err}" for one in world.attempts if one.code is None]
    wrong += recover(world)
    first = records(world)
    wrong += check_keys(world, first) + check_printed(world, first) + check_runs(world, first)
    wrong += check_folders(world, first) + check_database(world)
    wrong += recover(world)
    if records(world) != first:
        wrong.append("a second recovery changed the history")
    wrong += check_processes(world)
    return wrong


def check_keys(world: World, found: list[dict[str, Any]]) -> list[str]:
    per_key = Counter(one["submit_key"] for one in found)
    return [f"{one.key} has {per_key[one.key]} runs ({one.fault})" for one in world.orders if per_key[one.key] != 1]


def check_printed(world: World, found: list[dict[str, Any]]) -> list[str]:
    """An id that was shown to the user is never lost."""
    by_id = {one["run_id"]: one for one in found}
    wrong = []
    for attempt in world.attempts:
        if attempt.run is None:
            continue
        one = by_id.get(attempt.run)
        if one is None:
            wrong.append(f"{attempt.order.key}: run {attempt.run} was printed and is lost")
        elif one["status"] not in ("Completed", "Failed", "Canceled") or one["submit_key"] != attempt.order.key:
            wrong.append(f"{attempt.order.key}: run {attempt.run} was printed and is {one['status']}")
    return wrong


def check_runs(world: World, found: list[dict[str, Any]]) -> list[str]:
    by_key = {one["submit_key"]: one for one in found}
    seen = Counter(tuple(line[:2]) for line in world.observed())
    return [
        f"{order.key} ({order.fault}), run {by_key[order.key]['run_id']}: {words}"
        for order in world.orders
        if order.key in by_key
        for words in _check_run(world, order, by_key[order.key], seen)
    ]


def _check_run(world: World, order: Order, one: dict[str, Any], seen: Counter[tuple[str, ...]]) -> list[str]:
    starts, ends = seen["start", order.key], seen["end", order.key]
    may_die = order.key in world.allowed
    told = f"{one['status']}, {one['ending']}, {one['cause']}, {starts} starts, {ends} ends"
    log = _bytes(world.user.folder(one["run_id"]) / "log")
    whole = expected_log(order)
    rules = {
        "it was started more than once": starts <= 1,
        "the ending is none that a kill explains": one["ending"]
        in ("succeeded", "could not start", "exit unknown", "failed (signal 9)"),
        "completed without a start and an end": one["status"] != "Completed" or (starts, ends) == (1, 1),
        "its log is not what the script printed": log == whole if ends else whole.startswith(log),
        "it went on after its end was told": one["log_bytes"] in (None, len(log)),
        "it could not start, and did": one["ending"] != "could not start" or starts == 0,
        "the script was killed": ends == starts or may_die,
        "only the client was killed, and it did not succeed": one["status"] == "Completed"
        or not order.fault.spares_target
        or may_die,
    }
    return [f"{words}: {told}" for words, holds in rules.items() if not holds]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def check_folders(world: World, found: list[dict[str, Any]]) -> list[str]:
    """A folder for each run and a run for each folder."""
    there = {path.name for path in (world.user.store / "runs").iterdir()}
    listed = {one["run_id"] for one in found}
    return [f"folders without a run: {there - listed}; without a folder: {listed - there}"] if there != listed else []


def check_database(world: World) -> list[str]:
    connection = apsw.Connection(str(world.user.store / "history.db"), flags=apsw.SQLITE_OPEN_READONLY)
    told = next(iter(connection.execute("PRAGMA integrity_check")))[0]
    connection.close()
    damaged = [path.name for path in world.user.store.glob("history.db.damaged*")]
    return [f"the database: {told}, set aside: {damaged}"] if told != "ok" or damaged else []


def check_processes(world: World) -> list[str]:
    """Supervisors may still be tidying up; what is there after a while stays."""
    if until(lambda: not marked(world.user.store), 20):
        return []
    left = [(pid, _bytes(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ")) for pid in marked(world.user.store)]
    return [f"processes are left: {left}"]


def save(world: World, seed: int, wrong: Sequence[str]) -> str:
    """Keep what is needed to understand a failure; the words for the message."""
    place = Path(tempfile.mkdtemp(prefix="mlw-kill-"))
    shutil.copytree(world.user.store, place / "store", symlinks=True, dirs_exist_ok=True)
    (place / "observed").write_bytes(_bytes(world.observer))
    attempts = [{**asdict(one), "out": one.out.decode(errors="replace")} for one in world.attempts]
    (place / "attempts.json").write_text(json.dumps(attempts, indent=1))
    (place / "wrong.txt").write_text("\n".join(wrong) + "\n")
    return f"seed {seed}; kept in {place}\n" + "\n".join(wrong)


def must_hold(world: World, seed: int = SEED) -> None:
    wrong = judge(world)
    assert not wrong, save(world, seed, wrong)


# -- strace: kill before the N-th system call of a kind --------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Just before the ``nth`` call of this name in the traced process."""

    call: str
    nth: int

    @property
    def inject(self) -> list[str]:
        return ["-e", f"trace={self.call}", "-e", f"inject={self.call}:signal=KILL:when={self.nth}", "-o", "/dev/null"]

    def __str__(self) -> str:
        return f"{self.call} {self.nth}"


# What changes a file, starts a process or speaks to another one. All else only looks.
CHANGING = frozenset(
    "fsync fdatasync rename renameat renameat2 link linkat symlinkat unlink unlinkat mkdir mkdirat rmdir pwrite64 write"
    " ftruncate fallocate clone clone3 fork vfork execve flock chmod fchmod utimensat dup2 dup3 setsid exit_group"
    " copy_file_range sendfile".split()
)
HOLDING = frozenset("clock_nanosleep nanosleep restart_syscall pselect6 select poll".split())  # where it was caught


def points(trace: Path) -> list[Point]:
    """Every call of one process in the order in which they were made."""
    seen: Counter[str] = Counter()
    found = []
    for line in trace.read_text(errors="replace").splitlines():
        name = re.match(r"(\w+)\(", line)
        if name:
            seen[name.group(1)] += 1
            found.append(Point(name.group(1), seen[name.group(1)]))
    return found


def trace_client(world: World, order: Order, options: Sequence[str]) -> Attempt:
    """Submit under strace; -f in the options takes in what the client forks."""
    began = time.monotonic()
    command = ["strace", "-qq", *options, str(MLW), *world.words(order)]
    done = subprocess.run(
        command,
        cwd=world.project,
        env={**world.user.env, **world.env(order)},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )
    attempt = Attempt(order, done.returncode, done.stdout, done.stderr.decode(), [], time.monotonic() - began)
    world.attempts.append(attempt)
    return attempt


HOLD = 0.6


def trace_far(
    world: World,
    order: Order,
    stage: str,
    options: Sequence[str],
    meanwhile: Callable[[Path, int], None] = lambda folder, pid: None,
) -> Attempt:
    """Submit, catch the supervisor (or the launcher, at ``before-gate``) in its sleep at a stage, trace it from there."""
    began = time.monotonic()
    env = {**world.env(order), "MLW_FAILPOINT": f"{stage}:sleep={HOLD}"}
    client = world.user.start(*world.words(order), cwd=world.project, env=env)
    pid = until(lambda: _caught(world, order, stage), 20)
    assert pid, f"{order.key}: nobody came to {stage}"
    tracer = subprocess.Popen(["strace", "-qq", *options, "-p", str(pid)], stdin=subprocess.DEVNULL)
    meanwhile(world.user.folder(world.run_of(order.key) or ""), pid)
    out, err = client.communicate(timeout=PATIENCE)
    tracer.wait(PATIENCE)
    attempt = Attempt(order, client.returncode, out, err.decode(), [], time.monotonic() - began)
    world.attempts.append(attempt)
    return attempt


def _caught(world: World, order: Order, stage: str) -> int | None:
    run = world.run_of(order.key)
    holder = owner(world.user.folder(run)) if run else None
    if holder is None or stage not in LAUNCHER_STAGES:
        return holder
    return next(iter(children(holder)), None)


def owner(folder: Path) -> int | None:
    return _json(folder / "claim" / "owner.json").get("pid")


def children(pid: int) -> list[int]:
    return [int(word) for word in _bytes(Path(f"/proc/{pid}/task/{pid}/children")).split()]
