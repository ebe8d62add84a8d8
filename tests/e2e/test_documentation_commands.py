"""Commands within sentences, tables and examples of help: each is typed in a project where it makes sense.

Where a page writes RUN, NAME or …, something of that kind is put in. Commands in blocks of a page are run by
tests/e2e/test_documented.py, along the page; those of other pages, one by one, here.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.cli.verbs import mlw
from tests.conftest import end_processes
from tests.e2e.documented import FOLLOWED_ELSEWHERE, NOT_RUN, WALKED, gpus_on, reach
from tests.e2e.killing import processes_of
from tests.machines.channel import depend
from tests.machines.doors import free_port
from tests.machines.laptop import Laptop
from tests.machines.network import wait_until
from tests.machines.pages import Circumstances, Command, Walk, inline, merge, missing, page, pages, typed
from tests.machines.tools import give_tools
from tests.test_docs import walk

TRAIN = """
import argparse, os, sys, time
import mlworkbench as mlw

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.001)
asked, _ = parser.parse_known_args()
if "--wait" in sys.argv:
    while not os.path.exists(os.path.expanduser("~/go")):
        time.sleep(0.05)
    sys.exit()
mlw.log_param("lr", asked.lr)
for step in range(3):
    mlw.log({"loss": 1 / (step + 1), "accuracy": 0.9 + step / 100}, step=step)
with open("outputs/model.pkl", "w") as file:
    file.write("weights")
"""
PASSWORD = "open sesame"
ASKS_FOR_MORE = re.compile(
    r"Missing (argument|option|command)|no (command|module) given after|no run given|--address is missing"
)
GROUPS = ("submit", "experiment", "history", "project", "computetarget", "others")


def named() -> list[Command]:
    """All that is named in a sentence, a table or an example, and what a page shows that nobody walks along."""
    run = {one.text for name in WALKED for one in typed(page(name))}
    found = [Command(text) for text in [*(text for name in pages() for text in inline(name)), *examples()]]
    rest = [name for name in pages() if name not in WALKED and name not in FOLLOWED_ELSEWHERE]
    found += [one for name in rest for one in typed(page(name)) if "mlw " in one.text]
    every: dict[str, Command] = {}
    for one in found:
        texts = [one.text] if ", then: " not in one.text else re.split(", then: ", one.text)
        for text in texts:
            if text not in run:
                every.setdefault(re.sub(r"\b(ID|demo-swift)\b", "RUN", text), replace(one, text=text))
    return list(every.values())


def examples() -> list[str]:
    """Of every command's own help."""
    return [text for _, one in walk(mlw, "mlw") for text in re.findall(r"Example: (mlw .*)", one.epilog or "")]


def every_text() -> set[str]:
    return {one.text for one in named()} | {one.text for name in WALKED for one in typed(page(name))}


def group(text: str) -> str:
    word = re.sub(r"^.*?\bmlw ", "", text).split()[0]
    word = {"logs": "experiment", "cancel": "experiment", "ps": "experiment", "status": "experiment"}.get(word, word)
    word = {"show": "history", "runconfiguration": "project", "asset": "history"}.get(word, word)
    return word if word in GROUPS else "others"


class Workshop:
    """A project with a machine, runs, a promoted model, and whatever else a command may speak of."""

    def __init__(self, laptop, host, engine, channel) -> None:
        self.laptop, self.host = laptop, host
        self.root = laptop.project("demo", train=TRAIN)
        self.walk = Walk(laptop, "README.md", patience=60)
        self._runs: list[str] = []
        self._doubtful = False
        laptop.uses(engine)
        laptop.knows(host)
        reach(laptop, host.address, host)
        laptop.env |= {"TOKEN": "canary-word", "BROWSER": "true"}
        depend(self.root, channel)
        say(self.root, "docker", baseDockerImage=engine.image, userManagedEnvironment="true")
        self._write("Makefile", "data validate:\n\techo made\n")
        self._write("run.sh", "#!/bin/sh\necho ran\n").chmod(0o755)
        self._write("validate.py", "print('valid')\n")
        (self.root / "package").mkdir()
        self._write("package/__init__.py", "")
        self._write("package/module.py", "print('module')\n")
        key = laptop.ssh_folder / "id_ed25519"
        key.write_text(host.key.read_text())
        key.chmod(0o600)
        self.data = host.home / "data"
        self.data.mkdir()

    def _write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.write_text(text)
        return path

    def mlw(self, *words: str):
        return self.laptop.mlw(*words, cwd=self.root, check=True)

    # -- what there must be ---------------------------------------------------------------------------------------
    def target(self) -> None:
        """my_dsvm is attached, and its packages are ours to install."""
        if not (self.root / "aml_config" / "my_dsvm.compute").exists():
            address = ("--address", self.host.address, "--username", self.host.user)
            self.mlw("computetarget", "attach", "remote", "--name", "my_dsvm", *address)
            say(self.root, "my_dsvm", userManagedEnvironment="false")

    def forget_target(self) -> None:
        """It is attached anew, and runs are made anew, when they are needed next."""
        self.laptop.mlw("computetarget", "detach", "my_dsvm", cwd=self.root)
        for kind in ("compute", "runconfig"):
            (self.root / "aml_config" / f"my_dsvm.{kind}").unlink(missing_ok=True)
        self._runs.clear()

    def runs(self) -> list[str]:
        """Two that have ended well, in our environment on that machine."""
        self.target()
        if self._doubtful:
            known = {one["run_id"] for one in self.laptop.runs()}
            self._runs = [one for one in self._runs if one in known]
            self._doubtful = False
        while len(self._runs) < 2:
            self._runs.append(self.mlw("submit", "-c", "my_dsvm", "train.py").run)
        return self._runs

    def running(self) -> str:
        return str(self.mlw("submit", "--detach", "-c", "local", "train.py", "--wait").run)

    def interrupted(self) -> str:
        """A submit that found the machine gone."""
        self.target()
        self.host.stop_sshd(sessions=True)
        try:
            refused = self.laptop.mlw("submit", "-c", "my_dsvm", "train.py", cwd=self.root)
            assert refused.code != 0, refused
            return refused.run
        finally:
            self.host.start_sshd()

    def out_of_contact(self) -> str:
        self.target()
        run = self.mlw("submit", "--detach", "-c", "my_dsvm", "train.py", "--wait").run
        self.host.stop_sshd(sessions=True)
        return str(run)

    def digest(self) -> str:
        return str(self.laptop.info(self.runs()[0])["environment"]["digest"])[:8]

    # -- one command ----------------------------------------------------------------------------------------------
    def type(self, command: Command) -> str | None:
        """None, or what went wrong."""
        text, around = command.text, Circumstances()
        self.walk.place = self.root
        self.walk.forget_variables()
        for pattern, special in SPECIAL.items():
            if re.search(pattern, text):
                text, around = special(self, text)
                break
        code, printed = self.walk.shell(self._filled(text), around)
        if around.after:
            around.after(printed)
        self._doubtful |= bool(re.search("history (remove|archive)|experiment clean", text))
        longer = any(one.startswith(f"{command.text} ") for one in every_text())
        if code == 2 and longer and ASKS_FOR_MORE.search(printed):
            return None  # `mlw history tag`: it asks for more, and is run with more
        lost = missing(tuple(map(self._filled, command.shown)), printed)
        if lost:
            return f"$ {command.text}\nprinted no line like {lost}, but:\n{printed}"
        return None if around.fits(code) else f"$ {command.text}\n{self._filled(text)}\nended with {code}:\n{printed}"

    def _filled(self, text: str) -> str:
        if re.search(r"\b(RUN|ID|NAME|rented|my_dsvm|demo-\w+|3f2a9c)\b", text):
            self.target()
        if re.search(r"\b(RUN|ID|demo-swift|demo-brave)\b", text):
            first, second = self.runs()
            text = re.sub(r"\bRUN RUN…?", f"{first} {second}", text)
            text = re.sub(r"\b(RUN|ID|demo-swift)\b(?!-)", first, text)
            text = re.sub(r"\bdemo-brave\b(?!-)", second, text)
        words = {
            r"\b(NAME|rented)\b": "my_dsvm",
            r"attach … ": f"attach remote --name my_dsvm --address {self.host.address} --username ada ",
            r"\b3f2a9c\b": self.digest() if "3f2a9c" in text else "",
            r"SHA256:…|(?<=--host-key )…": self.host.host_key_fingerprint,
            r"--allow-mount (/data|…)": f"--allow-mount {self.data}",
            r"10\.0\.0\.7": self.host.address,
            r" …$": " train.py" if text.startswith("mlw submit --") else "",
        }
        for pattern, word in words.items():
            text = re.sub(pattern, lambda _, word=word: word, text)
        return text


def say(root: Path, name: str, **keys: str) -> None:
    merge(root / "aml_config" / f"{name}.compute", "".join(f"{key}: {value}\n" for key, value in keys.items()))


Special = Callable[[Workshop, str], tuple[str, Circumstances]]


def with_run(make: Callable[[Workshop], str], **around: object) -> Special:
    """For a run in that state."""

    def special(shop: Workshop, text: str) -> tuple[str, Circumstances]:
        return re.sub(r"\b(RUN|ID|PARENT|CHILD|demo-swift)\b", make(shop), text), Circumstances(**around)  # type: ignore[arg-type]

    return special


def given_up(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    run = shop.out_of_contact()
    go, folder = shop.host.home / "go", shop.host.home / ".mlw" / "runs" / run

    def is_gone() -> bool:
        if not processes_of(run):
            shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    def ends_there(_: str) -> None:
        """And goes: else the target would be in use, or hold what was not fetched, for the commands that follow."""
        go.touch()
        wait_until(is_gone, f"the end of {run}")
        go.unlink()
        shop.host.start_sshd()

    return text.replace("RUN", run), Circumstances(after=ends_there)


def elsewhere(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    """Not in a project that is there."""
    shop.walk.place = Path(tempfile.mkdtemp(dir=shop.laptop.home))
    (shop.walk.place / "my-code").mkdir()
    return text, Circumstances()


def until(words: str) -> Special:
    return lambda _, text: (text.replace("8521", free_port()), Circumstances(until=words))


def promoted(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    for name in re.findall(r"assets/(\w+)\.link", text):
        if not (shop.root / "assets" / f"{name}.link").exists():
            shop.mlw("history", "promote", "-r", shop.runs()[0], "-ap", "model.pkl", "-n", name)
    return text, Circumstances()


def tagged(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    for name in re.findall(r"--remove (\w+)", text):
        shop.mlw("history", "tag", *shop.runs(), "--add", name)
    return text, Circumstances()


def with_a_key_of_ours(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    shop.target()
    shop.mlw("computetarget", "detach", "my_dsvm")
    config = shop.laptop.ssh_folder / "config"
    known = config.read_text()
    config.unlink()  # else a key of the person's own opens the machine
    address = ("--address", shop.host.address, "--username", shop.host.user, "--password-stdin")
    words = ("computetarget", "attach", "remote", "--name", "my_dsvm", *address)
    shop.laptop.mlw(*words, cwd=shop.root, check=True, input=f"{PASSWORD}\n")
    config.write_text(known)
    return text, Circumstances()


def as_its_file_says(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    """A file that is there has the address and the user."""
    shop.target()
    shop.mlw("computetarget", "detach", "my_dsvm")
    config = shop.root / "aml_config" / "my_dsvm"
    config.with_suffix(".compute").write_text(f"type: remotedocker\naddress: {shop.host.address}\nusername: ada\n")
    config.with_suffix(".runconfig").write_text("Target: my_dsvm\nFramework: Python\n")
    typed = f"{text} --address {shop.host.address}"  # without a terminal the address has to be given
    return typed, Circumstances(after=lambda _: shop.mlw("computetarget", "detach", "my_dsvm"))


def as_it_is(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    """A run has all files as they are now."""
    return f"{text} --run-id {shop.mlw('submit', '-c', 'local', 'train.py').run}", Circumstances()


def newest_is_completed(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    """Without a run it is about the newest, which another command may have canceled."""
    shop.mlw("submit", "-c", "local", "train.py")
    return text, Circumstances()


def asked(question: str, answer: str) -> Special:
    return lambda _, text: (text, Circumstances(answers=((question, answer),)))


def with_tools(shop: Workshop, text: str) -> tuple[str, Circumstances]:
    """There is something to remove, so it is asked for."""
    give_tools(shop.laptop.store)
    return asked("[y/N]:", "y")(shop, text)


# What is special about some of them: the first pattern that fits.
SPECIAL: dict[str, Special] = {
    r"cancel --forget .": given_up,
    r"\bcancel\b.* [A-Zd]": with_run(Workshop.running),
    r"\bresume\b": with_run(Workshop.interrupted),
    r"^mlw logs -f$": newest_is_completed,
    r"project (create|init)": elsewhere,
    r"^mlw ui": until("http://"),
    r"--watch": until("NVIDIA driver"),
    r"^mlw asset": promoted,
    r"history tag .*--remove": tagged,
    r"history remove .": asked("[y/N]:", "y"),
    r"environment remove .*--caches": with_tools,
    r"environment remove \w": asked("[y/N]:", "y"),
    r"detach .*--dry-run": lambda _, text: (text, Circumstances()),
    r"detach .*--purge": asked("[y/N]:", "y"),
    r"^mlw doctor gpu": lambda _, text: (text, Circumstances(code=(0, 75))),  # as there is a GPU here, or none
    r"attach remotedocker --name my_dsvm$": as_its_file_says,
    r"reset-key my_dsvm$": with_a_key_of_ours,
    r"project restore --in-place$": as_it_is,
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory, module_machine, session_engine, channel):
    """One for all commands: it makes what a command took away."""
    place = tmp_path_factory.mktemp("workshop")
    laptop = Laptop(place)
    host = module_machine(docker="yes", password=PASSWORD)
    gpus_on(host, 1)
    yield Workshop(laptop, host, session_engine, channel)
    end_processes(place)
    shutil.rmtree(laptop.runtime, ignore_errors=True)


@pytest.mark.parametrize("kind", GROUPS)
def test_commands_that_are_named(shop, kind):
    wrong = []
    for command in named():
        if group(command.text) == kind and command.text not in {text for _, text in NOT_RUN}:
            wrong += [said for said in [shop.type(command)] if said]
    if kind == "computetarget":  # they attached and detached it, with other settings
        shop.forget_target()
    assert not wrong, "\n\n".join(wrong)


def test_every_command_is_run_or_in_the_table():
    """The table holds nothing that no page has, and is short; all else is run, here or along its page."""
    everywhere = {(name, one.text) for name in pages() for one in typed(page(name))}
    everywhere |= {(name, text) for name in pages() for text in inline(name)} | {("help", text) for text in examples()}
    assert [one for one in NOT_RUN if one not in everywhere] == []
    assert len(NOT_RUN) <= 12
    run = {one.text for name in WALKED for one in typed(page(name))} | {one.text for one in named()}
    run |= {text for name in FOLLOWED_ELSEWHERE for text in (one.text for one in typed(page(name)))}
    same = {re.sub(r"\b(ID|demo-swift)\b", "RUN", text) for text in run}
    rest = {(name, part) for name, text in everywhere for part in text.split(", then: ")} - {*NOT_RUN}
    lost = [
        one for one in sorted(rest) if re.sub(r"\b(ID|demo-swift)\b", "RUN", one[1]) not in same and "mlw " in one[1]
    ]
    assert lost == []
    assert {group(one.text) for one in named()} == {*GROUPS}
