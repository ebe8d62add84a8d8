"""Commands in sentences, tables, and help examples: each is run in a suitable project.

Placeholders such as RUN, NAME, and … are replaced with real values. Commands in code blocks are run by
tests/e2e/test_documentation_pages.py in page order, or here one by one for pages that it does not follow.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.cli.command_tree import mlw
from tests.conftest import end_processes
from tests.e2e.documentation_helpers import FOLLOWED_PAGES, NOT_RUN, PAGES_WITH_OWN_TESTS, add_fake_gpus, add_ssh_alias
from tests.e2e.kill_harness import processes_of
from tests.machines.channel import depend
from tests.machines.laptop import Laptop
from tests.machines.network import wait_until
from tests.machines.pages import (
    Command,
    CommandContext,
    PageRunner,
    inline,
    merge,
    missing,
    page,
    pages,
    typed_commands,
)
from tests.machines.tools import give_tools
from tests.machines.ui_routes import free_port
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


def all_commands_in_text() -> list[Command]:
    """Return the commands in sentences, tables, and examples, and those of pages that no test follows.

    Commands that also occur in the code blocks of followed pages are omitted.
    """
    run = {command.text for name in FOLLOWED_PAGES for command in typed_commands(page(name))}
    commands = [Command(text) for text in [*(text for name in pages() for text in inline(name)), *examples()]]
    rest = [name for name in pages() if name not in FOLLOWED_PAGES and name not in PAGES_WITH_OWN_TESTS]
    commands += [command for name in rest for command in typed_commands(page(name)) if "mlw " in command.text]
    every: dict[str, Command] = {}
    for command in commands:
        texts = [command.text] if ", then: " not in command.text else re.split(", then: ", command.text)
        for text in texts:
            if text not in run:
                every.setdefault(re.sub(r"\b(ID|demo-swift)\b", "RUN", text), replace(command, text=text))
    return list(every.values())


def examples() -> list[str]:
    """Return the examples in the help of every command."""
    return [text for _, command in walk(mlw, "mlw") for text in re.findall(r"Example: (mlw .*)", command.epilog or "")]


def every_text() -> set[str]:
    return {command.text for command in all_commands_in_text()} | {
        command.text for name in FOLLOWED_PAGES for command in typed_commands(page(name))
    }


def group(text: str) -> str:
    name = re.sub(r"^.*?\bmlw ", "", text).split()[0]
    name = {"logs": "experiment", "cancel": "experiment", "ps": "experiment", "status": "experiment"}.get(name, name)
    name = {"show": "history", "runconfiguration": "project", "asset": "history"}.get(name, name)
    return name if name in GROUPS else "others"


class CommandFixture:
    """A project with a machine, runs, a promoted model, and everything else that a command may refer to."""

    def __init__(self, laptop, host, engine, channel) -> None:
        self.laptop, self.host = laptop, host
        self.root = laptop.project("demo", train=TRAIN)
        self.runner = PageRunner(laptop, "README.md", timeout=60)
        self._runs: list[str] = []
        self._doubtful = False
        laptop.use_engine(engine)
        laptop.trust_host_keys(host)
        add_ssh_alias(laptop, host.address, host)
        laptop.env |= {"TOKEN": "canary-word", "BROWSER": "true"}
        depend(self.root, channel)
        set_compute_keys(self.root, "docker", baseDockerImage=engine.image, userManagedEnvironment="true")
        self._write("Makefile", "data validate:\n\techo made\n")
        self._write("run.sh", "#!/bin/sh\necho ran\n").chmod(0o755)
        self._write("validate.py", "print('valid')\n")
        self._write("explore.ipynb", "{}")
        programs = laptop.home / "programs"  # Jupyter is not installed
        programs.mkdir()
        (programs / "jupyter").write_text('#!/bin/sh\nfor last; do :; done\nexec cp "$last" outputs\n')
        (programs / "jupyter").chmod(0o755)
        laptop.env["PATH"] = f"{programs}:{laptop.env['PATH']}"
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

    def mlw(self, *arguments: str):
        return self.laptop.mlw(*arguments, cwd=self.root, check=True)

    # -- preconditions --------------------------------------------------------------------------------------------
    def target(self) -> None:
        """Attach my_dsvm with managed packages."""
        if not (self.root / "aml_config" / "my_dsvm.compute").exists():
            address = ("--address", self.host.address, "--username", self.host.user)
            self.mlw("computetarget", "attach", "remote", "--name", "my_dsvm", *address)
            set_compute_keys(self.root, "my_dsvm", userManagedEnvironment="false")

    def forget_target(self) -> None:
        """Discard the target, so that the next use attaches it and submits its runs again."""
        self.laptop.mlw("computetarget", "detach", "my_dsvm", cwd=self.root)
        for kind in ("compute", "runconfig"):
            (self.root / "aml_config" / f"my_dsvm.{kind}").unlink(missing_ok=True)
        self.forget_runs()

    def forget_runs(self) -> None:
        self._runs.clear()

    def runs(self) -> list[str]:
        """Return two completed runs in a managed environment on my_dsvm."""
        self.target()
        if self._doubtful:
            listed = {run["run_id"] for run in self.laptop.runs()}
            self._runs = [run for run in self._runs if run in listed]
            self._doubtful = False
        while len(self._runs) < 2:
            self._runs.append(self.mlw("submit", "-c", "my_dsvm", "train.py").run)
        return self._runs

    def running(self) -> str:
        return str(self.mlw("submit", "--detach", "-c", "local", "train.py", "--wait").run)

    def interrupted(self) -> str:
        """Return a run whose submit failed because the machine was unreachable."""
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

    # -- run one command ------------------------------------------------------------------------------------------
    def type(self, command: Command) -> str | None:
        """Run the command. Return a description of the error, or None if the command works as documented."""
        text, context = command.text, CommandContext()
        self.runner.place = self.root
        self.runner.forget_variables()
        for pattern, special in SPECIAL.items():
            if re.search(pattern, text):
                text, context = special(self, text)
                break
        code, printed = self.runner.shell(self._filled(text), context)
        if context.after:
            context.after(printed)
        self._doubtful |= bool(re.search("history (remove|archive)|experiment clean", text))
        longer = any(candidate.startswith(f"{command.text} ") for candidate in every_text())
        if code == 2 and longer and ASKS_FOR_MORE.search(printed):
            return None  # for example `mlw history tag`, which other examples run with its arguments
        lost = missing(tuple(map(self._filled, command.shown)), printed)
        if lost:
            return f"$ {command.text}\nprinted no line like {lost}, but:\n{printed}"
        return (
            None if context.accepts(code) else f"$ {command.text}\n{self._filled(text)}\nended with {code}:\n{printed}"
        )

    def _filled(self, text: str) -> str:
        if re.search(r"\b(RUN|ID|NAME|rented|my_dsvm|demo-\w+|3f2a9c)\b", text):
            self.target()
        if re.search(r"\b(RUN|ID|demo-swift|demo-brave)\b", text):
            first, second = self.runs()
            text = re.sub(r"\bRUN RUN…?", f"{first} {second}", text)
            text = re.sub(r"\b(RUN|ID|demo-swift)\b(?!-)", first, text)
            text = re.sub(r"\bdemo-brave\b(?!-)", second, text)
        values = {
            r"\b(NAME|rented)\b": "my_dsvm",
            r"attach … ": f"attach remote --name my_dsvm --address {self.host.address} --username ada ",
            r"\b3f2a9c\b": self.digest() if "3f2a9c" in text else "",
            r"SHA256:…|(?<=--host-key )…": self.host.host_key_fingerprint,
            r"--allow-mount (/data|…)": f"--allow-mount {self.data}",
            r"10\.0\.0\.7": self.host.address,
            r" …$": " train.py" if text.startswith("mlw submit --") else "",
        }
        for pattern, value in values.items():
            text = re.sub(pattern, lambda _, value=value: value, text)
        return text


def set_compute_keys(root: Path, name: str, **keys: str) -> None:
    merge(root / "aml_config" / f"{name}.compute", "".join(f"{key}: {value}\n" for key, value in keys.items()))


Special = Callable[[CommandFixture, str], tuple[str, CommandContext]]


def with_run(make: Callable[[CommandFixture], str], **context: object) -> Special:
    """Return a preparation that creates a run with ``make`` and inserts its ID into the command."""

    def special(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
        return re.sub(r"\b(RUN|ID|PARENT|CHILD|demo-swift)\b", make(commands_fixture), text), CommandContext(**context)  # type: ignore[arg-type]

    return special


def canceled(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    run = commands_fixture.out_of_contact()
    go, folder = commands_fixture.host.home / "go", commands_fixture.host.home / ".mlw" / "runs" / run

    def is_gone() -> bool:
        if not processes_of(run):
            shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    def ends_there(_: str) -> None:
        """End the run and restart sshd, so that later commands find no target in use and no unfetched results."""
        go.touch()
        wait_until(is_gone, f"the end of {run}")
        go.unlink()
        commands_fixture.host.start_sshd()

    return text.replace("RUN", run), CommandContext(after=ends_there)


def outside_project(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Run the command outside all projects."""
    commands_fixture.runner.place = Path(tempfile.mkdtemp(dir=commands_fixture.laptop.home))
    (commands_fixture.runner.place / "my-code").mkdir()
    return text, CommandContext()


def until(message: str) -> Special:
    return lambda _, text: (text.replace("8521", free_port()), CommandContext(until=message))


def with_new_id(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Forget the runs afterwards: they belong to the project with the former ID."""
    return text, CommandContext(after=lambda _: commands_fixture.forget_runs())


def promoted(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    for name in re.findall(r"assets/(\w+)\.link", text):
        if not (commands_fixture.root / "assets" / f"{name}.link").exists():
            commands_fixture.mlw("history", "promote", "-r", commands_fixture.runs()[0], "-ap", "model.pkl", "-n", name)
    return text, CommandContext()


def tagged(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    for name in re.findall(r"--remove (\w+)", text):
        commands_fixture.mlw("history", "tag", *commands_fixture.runs(), "--add", name)
    return text, CommandContext()


def with_installed_key(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    commands_fixture.target()
    commands_fixture.mlw("computetarget", "detach", "my_dsvm")
    config = commands_fixture.laptop.ssh_folder / "config"
    original = config.read_text()
    config.unlink()  # otherwise attach would log in with the user's own key
    address = ("--address", commands_fixture.host.address, "--username", commands_fixture.host.user, "--password-stdin")
    arguments = ("computetarget", "attach", "remote", "--name", "my_dsvm", *address)
    commands_fixture.laptop.mlw(*arguments, cwd=commands_fixture.root, check=True, input=f"{PASSWORD}\n")
    config.write_text(original)
    return text, CommandContext()


def as_in_file(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Write a .compute file that contains the address and the user."""
    commands_fixture.target()
    commands_fixture.mlw("computetarget", "detach", "my_dsvm")
    config = commands_fixture.root / "aml_config" / "my_dsvm"
    config.with_suffix(".compute").write_text(
        f"type: remotedocker\naddress: {commands_fixture.host.address}\nusername: ada\n"
    )
    config.with_suffix(".runconfig").write_text("Target: my_dsvm\nFramework: Python\n")
    command = f"{text} --address {commands_fixture.host.address}"  # without a terminal, the address is required
    return command, CommandContext(after=lambda _: commands_fixture.mlw("computetarget", "detach", "my_dsvm"))


def of_current_files(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Submit a run of the current files and use its ID."""
    return f"{text} --run-id {commands_fixture.mlw('submit', '-c', 'local', 'train.py').run}", CommandContext()


def newest_is_completed(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Submit a run that completes, because the command uses the newest run, which may have been canceled."""
    commands_fixture.mlw("submit", "-c", "local", "train.py")
    return text, CommandContext()


def with_checkpoints(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Submit a run that writes a checkpoint, and insert its ID."""
    write = ("sh", "-c", 'echo 1 > "$MLW_CHECKPOINTS/step"')
    run = commands_fixture.mlw("submit", "-c", "local", "--", *write).run
    shutil.rmtree(commands_fixture.root / "saved", ignore_errors=True)
    return re.sub(r"\b(RUN|demo-swift)\b", run, text), CommandContext()


def with_views(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Save the views that the command may name."""
    for name in ("best", "my_dsvm"):  # the latter stands for NAME
        commands_fixture.mlw("history", "view", "save", name, "--sort", "-accuracy", "--force")
    if " save " in text:
        text = f"{text} --force"
    return text.replace("--where …", "--where 'accuracy > 0'"), CommandContext()


def with_answer(question: str, answer: str) -> Special:
    return lambda _, text: (text, CommandContext(answers=((question, answer),)))


def with_tools(commands_fixture: CommandFixture, text: str) -> tuple[str, CommandContext]:
    """Add build tools to the store, so that the command has something to remove and prompts."""
    give_tools(commands_fixture.laptop.store)
    return with_answer("[y/N]:", "y")(commands_fixture, text)


# Special preparations: the first matching pattern applies.
SPECIAL: dict[str, Special] = {
    r"--(resume|checkpoints)\b": with_checkpoints,
    r"--launcher": lambda _, text: (text, CommandContext(code=(0, 78))),  # 78: the environments have no PyTorch
    r"history (tables|traces) \S+ \S": lambda _, text: (text, CommandContext(code=(0, 66))),  # 66: the runs log none
    r"history (view|list --view)": with_views,
    r"cancel --forget .": canceled,
    r"\bcancel\b.* [A-Zd]": with_run(CommandFixture.running),
    r"\bresume\b": with_run(CommandFixture.interrupted),
    r"^mlw logs -f$": newest_is_completed,
    r"project (create|init)": outside_project,
    r"project new-id": with_new_id,
    r"^mlw ui": until("http://"),
    r"--watch": until("NVIDIA driver"),
    r"^mlw asset": promoted,
    r"history tag .*--remove": tagged,
    r"history remove .": with_answer("[y/N]:", "y"),
    r"environment remove .*--caches": with_tools,
    r"environment remove \w": with_answer("[y/N]:", "y"),
    r"detach .*--dry-run": lambda _, text: (text, CommandContext()),
    r"detach .*--purge": with_answer("[y/N]:", "y"),
    r"^mlw doctor gpu": lambda _, text: (text, CommandContext(code=(0, 75))),  # 75: this machine has no GPU
    r"attach remotedocker --name my_dsvm$": as_in_file,
    r"reset-key my_dsvm$": with_installed_key,
    r"project restore --in-place$": of_current_files,
}


@pytest.fixture(scope="module")
def commands_fixture(tmp_path_factory, module_machine, session_engine, channel):
    """One fixture for all commands. It recreates what a command removed."""
    place = tmp_path_factory.mktemp("workshop")
    laptop = Laptop(place)
    host = module_machine(docker="yes", password=PASSWORD)
    add_fake_gpus(host, 1)
    yield CommandFixture(laptop, host, session_engine, channel)
    end_processes(place)
    shutil.rmtree(laptop.runtime, ignore_errors=True)


@pytest.mark.parametrize("kind", GROUPS)
def test_inline_commands(commands_fixture, kind):
    wrong = []
    for command in all_commands_in_text():
        if group(command.text) == kind and command.text not in {text for _, text in NOT_RUN}:
            wrong += [problem for problem in [commands_fixture.type(command)] if problem]
    if kind == "computetarget":  # these commands attached and detached the target with other settings
        commands_fixture.forget_target()
    assert not wrong, "\n\n".join(wrong)


def test_every_command_is_run_or_listed():
    """NOT_RUN is short and lists only commands that are documented. All others are run, here or with their page."""
    everywhere = {(name, command.text) for name in pages() for command in typed_commands(page(name))}
    everywhere |= {(name, text) for name in pages() for text in inline(name)} | {("help", text) for text in examples()}
    assert [command for command in NOT_RUN if command not in everywhere] == []
    assert len(NOT_RUN) <= 12
    run = {command.text for name in FOLLOWED_PAGES for command in typed_commands(page(name))} | {
        command.text for command in all_commands_in_text()
    }
    run |= {text for name in PAGES_WITH_OWN_TESTS for text in (command.text for command in typed_commands(page(name)))}
    same = {re.sub(r"\b(ID|demo-swift)\b", "RUN", text) for text in run}
    rest = {(name, part) for name, text in everywhere for part in text.split(", then: ")} - {*NOT_RUN}
    lost = [
        command
        for command in sorted(rest)
        if re.sub(r"\b(ID|demo-swift)\b", "RUN", command[1]) not in same and "mlw " in command[1]
    ]
    assert lost == []
    assert {group(command.text) for command in all_commands_in_text()} == {*GROUPS}
