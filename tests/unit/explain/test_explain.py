"""The texts of ``mlw explain``: mlw prints every message that they list, and each message leads to its text."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from mlworkbench import explain
from mlworkbench.attachments import Attachment
from mlworkbench.cli.explain import format_page
from mlworkbench.environments.package_supply import _to_solve_error
from mlworkbench.errors import HostError, LaunchError, UnknownName, Unreachable
from mlworkbench.explain import GROUPS, symptom, symptom_of, symptoms
from mlworkbench.hosts import openssh, replies
from mlworkbench.hosts.host_facts import Engine, Facts, Reach
from mlworkbench.model import Compute, Run
from mlworkbench.remote import engine_errors
from mlworkbench.remote.environments.build_tools import NoEnvironment, fetch
from mlworkbench.remote.shared import run_endings
from mlworkbench.remote.shared.failure import failure, failure_answer, text_of
from mlworkbench.report.failure_report import gpu_page, gpu_summary, page_of
from mlworkbench.targets.machine_check import engine_error, machine_findings
from tests.test_docs import check_options
from tests.unit.history.test_run_state import SPEC

SOURCE = Path(explain.__file__).parents[1]
TEXTS = {one.name: one for one in symptoms()}
ATTACHMENT = Attachment(Path("/nowhere"), "ada@there:22", "there", "ada", 22)

# Messages of other programs, which do not occur in mlw's source code.
FOREIGN = {
    "No space left on device",
    "Disk quota exceeded",
    "out of memory",
    "ModuleNotFoundError: No module named '…'",
}
# Messages that the source code composes from these parts.
TOGETHER = {
    "no project found: no folder aml_config in … or any parent folder": (
        "no project found: no folder",
        "or any parent folder",
    ),
    "ModuleNotFoundError: No module named '…' (…); it is not installed in …/python, which ran the script": (
        "; it is not installed in …, which ran the script",
    ),
    "NameError: …; the script uses … without importing it": ("; the script uses", "without importing it"),
    "the host key of … has changed: it was …, now it is …; nothing was sent": (
        "the host key of",
        "has changed: it was",
        "; nothing was sent",
    ),
    "the host key of … does not match known_hosts: the server offers …; nothing was sent": (
        "the host key of",
        "does not match known_hosts: the server offers",
        "; nothing was sent",
    ),
    "cannot resolve pip packages for Python …: uv supports 3.6 and newer": (
        "cannot resolve pip packages for Python",
        ": uv supports",
        "and newer",
    ),
    "… cannot be used: permission denied": ("cannot be used:", "permission denied"),
    "… cannot be used: Cannot connect to the Docker daemon …": ("cannot be used:", "cannot connect"),
    "not valid YAML: did not find expected ',' or ']'": ("not valid YAML: …",),
    "GPU used: no": ("GPU used: ", "no"),
    "GPU used: partly": ("GPU used: ", "partly"),
    "GPU used: unknown": ("GPU used: ", "unknown"),
    "GPU … held by run …": ("held by", "run "),
    "GPU … held by user … (not an mlw run)": ("held by ", "user ", " (not an mlw run)"),
    "Submitting (interrupted)": ("Submitting", "interrupted"),
    "Preparing (environment)": ("Preparing", "environment"),
    "Queued (waiting for its turn in …)": ("Queued", "waiting for its turn in"),
    "failed (exit …)": ("failed", "exit "),
    "failed (signal 9)": ("failed", "signal "),
}


# -- messages in the source code -------------------------------------------------------------------


def in_words(node: ast.AST) -> str | None:
    """Return the string of a syntax node, with … for each inserted value, or None if the node is not a string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[srd]|%\.\d[fg]|\{\w+\}", "…", node.value).replace("%%", "%")
    if isinstance(node, ast.JoinedStr):
        return "".join(in_words(part) or "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (in_words(node.left) or "…") + (in_words(node.right) or "…")
    return "…" if isinstance(node, ast.FormattedValue) else None


@cache
def nodes() -> list[tuple[Path, list[ast.AST]]]:
    """Return the syntax nodes of all modules, cached for all tests."""
    paths = [path for path in SOURCE.rglob("*.py") if "samples" not in path.parts]
    return [(path, list(ast.walk(ast.parse(path.read_text())))) for path in paths]


@cache
def sentences() -> frozenset[str]:
    return frozenset(words for _, several in nodes() for node in several if (words := in_words(node)) is not None)


@cache
def texts() -> frozenset[str]:
    """Return the strings of the source code, with and without … for inserted values."""
    return sentences() | {one.replace("…", "") for one in sentences()}


def has_in_order(text: str, parts: list[str]) -> bool:
    """Return whether the text contains these parts in order. (A pattern with .*? takes a hundred times as long.)"""
    end = 0
    for part in parts:
        start = text.find(part, end)
        if start < 0:
            return False
        end = start + len(part)
    return True


def is_printed(words: str) -> bool:
    if words in TOGETHER:
        return all(any(piece in one for one in sentences()) for piece in TOGETHER[words])
    unknown = re.match(r"unknown ([a-z ]+) '…'", words)
    if unknown:
        return unknown[1] in sentences()  # such as "run configuration"
    parts = [part.strip(" '\"") for part in words.rstrip("…: ").split("…")]
    return any(has_in_order(text, parts) for text in texts())


MESSAGES = [(one.name, words) for one in TEXTS.values() for words in one.seen()]


@pytest.mark.parametrize(("name", "words"), MESSAGES, ids=[f"{name}: {words[:40]}" for name, words in MESSAGES])
def test_every_message_is_one_that_is_printed(name, words):
    assert words in FOREIGN or is_printed(words), f"{name}: nothing prints: {words}"


FORMER = [(one.name, words) for one in TEXTS.values() for words in one.former()]


@pytest.mark.parametrize(("name", "words"), FORMER, ids=[f"{name}: {words[:40]}" for name, words in FORMER])
def test_messages_of_earlier_versions_find_their_page(name, words):
    assert symptom_of(words.replace("…", "gpu1")) == name


def test_words_that_nobody_prints_are_noticed():
    assert not is_printed("the machine … is on holiday")
    assert not is_printed("unknown planet '…'; available: …")


@pytest.mark.parametrize("name", TEXTS)
def test_every_text_has_its_parts(name):
    one = TEXTS[name]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert one.group in GROUPS and one.title and one.seen()
    told = one.body.partition("You see:")[2].split("\n\n", 2)[1]
    explained = all("`: " in line for line in told.splitlines())
    assert explained or len(one.body.split("\n\n")) > 2, "a message and nothing about it"


@pytest.mark.parametrize("name", TEXTS)
def test_every_command_in_a_text_can_be_typed(name):
    for line in re.findall(r"`(mlw [^`]+)`", TEXTS[name].body):
        check_options(line.replace("…", "X"), name)


def test_names_are_unique_and_every_folder_is_a_group():
    paths = list(Path(explain.__file__).parent.rglob("*.md"))
    assert len(paths) == len(TEXTS) >= 50
    assert {path.parent.name for path in paths} == set(GROUPS)


# -- text names in the source code -----------------------------------------------------------------


def named() -> list[tuple[str, str, ast.AST | None]]:
    """Return (location, name of a text, message in the same call) for each name in the source code."""
    found = []
    for path, several in nodes():
        if "remote" in path.parts:
            continue
        place = path.relative_to(SOURCE).as_posix()
        for node in several:
            for value, message in _names(node):
                found += [(f"{place}:{node.lineno}", one, message) for one in _constants(value)]
    return found


def _names(node: ast.AST):
    if isinstance(node, ast.Call):
        message = node.args[0] if node.args else None
        yield from ((one.value, message) for one in node.keywords if one.arg == "more")
        if getattr(node.func, "id", "") == "Finding" and len(node.args) == 5:
            yield node.args[4], node.args[2]
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == "more":
                yield one.value, None
    if isinstance(node, ast.FunctionDef) and "symptom" in node.name:
        yield from ((one.value, None) for one in ast.walk(node) if isinstance(one, ast.Return) and one.value)


def _constants(value: ast.AST) -> list[str]:
    if isinstance(value, ast.IfExp):
        return _constants(value.body) + _constants(value.orelse)
    return [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []


def test_every_name_in_the_code_is_a_text():
    found = named()
    assert len(found) >= 30
    assert [(place, name) for place, name, _ in found if name not in TEXTS] == []
    assert {page for _, page in run_endings._FAILURES.values() if page} <= set(TEXTS)


def test_every_text_that_an_error_names_has_its_message():
    """Check only the errors whose message and text name are arguments of the same call."""
    checked, wrong = 0, []
    for place, name, message in named():
        words = in_words(message) if message is not None else None
        if words is None or name not in TEXTS or "Finding" in place or place.startswith("doctor/"):
            continue
        checked += 1
        told = words.partition("\n")[0].replace("…", "something")
        if not any(explain._fits(seen, told) for seen in TEXTS[name].seen()):
            wrong.append(f"{place}: {name} does not have: {words}")
    assert wrong == []
    assert checked >= 12


# -- finding the text of a message -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "name"),
    [
        *((mark, "no-contact") for mark, _, _ in openssh._CONNECTION_ERRORS),
        ("Permission denied (publickey).", "permission-denied"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nSHA256:" + "a" * 43, "host-key-changed"),
        ("Host key verification failed.", "host-key-unknown"),
        ("debug1: banner line 0: HTTP/1.1 400", "no-contact"),
        ("it broke", "no-contact"),
    ],
)
def test_what_ssh_complains_of_names_the_text_that_has_the_message(said, name):
    error = openssh.explain_ssh_error(ATTACHMENT, said)
    assert error.more == name
    assert symptom_of(error.message) == name


CONTAINER = {"image": "python:3", "program": "docker", "name": "mlw-x", "engine": "docker"}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "docker-not-permitted"),
        ("Cannot connect to the Docker daemon", "docker-not-running"),
        ("could not select device driver", "no-gpu-in-container"),
        ("nvidia-container-cli: initialization error", "no-gpu-in-container"),
        ("no space left on device", "docker-not-running"),
        ("exec format error", "image-unfit"),
        ("pull access denied for x", "image-not-pulled"),
        ("dial tcp: lookup: i/o timeout", "image-not-pulled"),
        ("unauthorized: authentication required", "image-not-pulled"),
    ],
)
def test_a_run_that_could_not_start_names_the_text_of_its_cause(said, name):
    found = engine_errors.explain_pull(said, CONTAINER)
    assert found["explain"] == found["code"] == name
    former = Run(SPEC, ending=run_endings.COULD_NOT_START, cause=text_of(found))
    assert page_of(former) == name, "of a run that an earlier version ended"


@pytest.mark.parametrize(
    ("ending", "cause", "name"),
    [
        (run_endings.FAILED, "ValueError: the machine does not answer (train.py, line 3)", None),
        (run_endings.FAILED, None, None),
        (
            run_endings.FAILED,
            "ModuleNotFoundError: No module named 'x' (train.py, line 1); it is not installed in /usr/bin/python,"
            " which ran the script",
            "module-not-found",
        ),
        (
            run_endings.ENVIRONMENT_FAILED,
            "https://index/x.whl cannot be fetched here (timed out); hint: check",
            "no-internet-there",
        ),
        (run_endings.ENVIRONMENT_FAILED, "uv said something", "environment-failed"),
        (run_endings.ENVIRONMENT_FAILED, "Python 3.12.1 cannot be fetched: refused; hint: x", "environment-failed"),
        (run_endings.ENVIRONMENT_FAILED, "the disk that holds /home/ada/.mlw is full; hint: x", "disk-full"),
        (run_endings.COULD_NOT_START, "something else", "could-not-start"),
        (run_endings.OUT_OF_MEMORY, "the kernel killed it", "out-of-memory"),
        (run_endings.TARGET_REBOOTED, None, "run-lost"),
        (run_endings.SUCCEEDED, None, None),
        (run_endings.CANCELLED, None, None),
    ],
)
def test_the_text_of_an_ending(ending, cause, name):
    assert page_of(Run(SPEC, ending=ending, cause=cause)) == name


@pytest.mark.parametrize(
    ("cause", "name"),
    [
        ("torch 2.4.0+cpu is a CPU-only build", "gpu-cpu-build"),
        ("this PyTorch build has no CUDA support", "gpu-cpu-build"),
        ('CUDA_VISIBLE_DEVICES is "-1", which hides every GPU from the script', "gpu-hidden"),
        ("the container was started without GPUs: nvidiaDocker is not set for this target", "no-gpu-in-container"),
        ("torch 2.9 is built for CUDA 13.0, which needs driver 580; the target has 535.1", "gpu-driver"),
        ("the driver 470.1 is too old for the framework's CUDA version", "gpu-driver"),
        ("libcuda, the driver's library, was not found inside the container", "gpu-libraries"),
        ("the script never opened the GPU", "gpu-not-used"),
        ("the GPU was lost during the run (NVIDIA H200: fell off)", "gpu-lost"),
        ("the script ran out of GPU memory at 9.1 GiB of 10.0 GiB", "gpu-memory"),
        ("the GPU was busy only 12 % of the time", "gpu-slow"),
        ("words of a newer target", "gpu-not-used"),
    ],
)
def test_the_text_of_a_gpu_verdict(cause, name):
    assert gpu_page({"used": "no", "diagnosis": {"cause": cause, "remedy": "do this"}}) == name


def test_a_gpu_verdict_names_its_page_and_its_figures_itself():
    known = {"diagnosis": {"cause": "new words", "remedy": "do this", "explain": "gpu-slow"}, "summary": "A – B"}
    assert gpu_page(known) == "gpu-slow" and gpu_summary({**known, "line": "GPU used: no – C"}) == "A – B"
    assert gpu_summary({"line": "GPU used: no – C"}) == "C", "of an earlier version"
    hostile = {"diagnosis": {"cause": "x", "remedy": "y", "explain": "../x; rm"}, "summary": None, "line": "z"}
    assert gpu_page(hostile) == "gpu-not-used" and gpu_summary(hostile) is None


def test_a_gpu_verdict_without_a_remedy_names_no_text():
    assert gpu_page({"used": "no", "diagnosis": None}) is None
    assert gpu_page({"used": "yes"}) is None and gpu_page(None) is None
    assert gpu_page({"diagnosis": "of a hostile target"}) is None


def test_names_titles_and_messages_find_a_text():
    assert symptom("Host-Key-Changed").name == "host-key-changed"
    assert symptom("the disk that holds /home is full").name == "disk-full"
    with pytest.raises(UnknownName) as caught:
        symptom("hots-key-changed")
    assert caught.value.hint == "did you mean 'host-key-changed'? 'mlw explain' lists all pages"
    with pytest.raises(UnknownName) as caught:
        symptom("docker")
    assert "'docker-not-permitted' or 'docker-not-running'" in caught.value.hint
    with pytest.raises(UnknownName) as caught:
        symptom("../errors")
    assert caught.value.hint == "'mlw explain' lists all pages"


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "module-not-found"),
        ("No module named 'torch'", "module-not-found"),
        ("No module named torch", "module-not-found"),
        ('no module named "torch"', "module-not-found"),
        ("train.py line 3: ModuleNotFoundError: No module named torch", "module-not-found"),
        ("warning: the disk that holds /home is full", "disk-full"),
        ("unknown run configuration gpu; available: local", "unknown-name"),
    ],
)
def test_a_message_finds_its_page_as_people_type_it(typed, name):
    assert symptom(typed).name == name


def test_a_server_that_hangs_can_be_asked_where():
    body = symptom("ui-not-reached").body
    assert "kill -USR1" in body and "ui/server.log" in body


def test_hostile_words_are_searched_in_one_go():
    """The text repeats all parts of a message except the last. The search must still take linear time."""
    for one in symptoms():
        for words in one.seen():
            *pieces, _ = words.split("…")
            hostile = "x".join(piece + f"x{piece}" * (100_000 // (len(piece) + 1)) for piece in pieces)
            symptom_of(hostile[:300_000])


@pytest.mark.parametrize(
    ("words", "message", "fits"),
    [
        ("the disk that holds … is full", "the disk that holds /x is full; hint: y", True),
        ("the disk that holds … is full", "the disk that holds  is full", False),
        ("the disk that holds … is full", "say: the disk that holds /x is full", False),
        ("… cannot be used: …", "/x cannot be used", True),
        ("… cannot be used: …", " cannot be used", False),
        ("a … b … b", "a 1 b b", False),
        ("a … b … b", "a 1 b \n2 b", True),
        ("x … …: y", "x 1 2: y", True),
        ("GPU used: no", "GPU used: no", True),
        ("GPU used: no", "GPU used: n", False),
    ],
)
def test_what_fits_a_message(words, message, fits):
    assert explain._fits(words, message) == fits
    pattern = ".+?".join(re.escape(part) for part in words.rstrip("…: ").split("…"))
    assert bool(re.match(pattern, message, re.DOTALL)) == fits, "the same in other words"


def test_an_answer_about_a_full_disk_names_its_page():
    reply = replies.Reply("there", failure_answer(failure("disk-full", "no space left", None, "disk-full")))
    with pytest.raises(HostError, match="cannot store it: no space left") as caught:
        reply.require_ok("cannot store it")
    assert (caught.value.code, caught.value.more) == ("disk-full", "disk-full")
    assert replies.Reply("there", {"ok": False, "problem": "the disk is full"}).failure.explain is None


# -- on a terminal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("painted", [False, True])
def test_a_text_fits_a_terminal(name, painted):
    lines = list(format_page(TEXTS[name], 72, painted))
    bare = [re.sub(r"\x1b\[\d+m", "", line) for line in lines]
    assert all(len(line) <= 72 or len(line.split()) == 1 for line in bare), bare
    assert not any(sign in line for line in bare for sign in ("](", "**", "# "))
    assert ("\x1b[36m" in "".join(lines)) == painted
    if painted:
        assert "`" not in "".join(lines)


def test_an_error_names_its_text():
    assert Unreachable("x").more == "no-contact"
    assert LaunchError("x").more is None
    assert LaunchError("x", more="disk-full").more == "disk-full"


# -- a machine without internet --------------------------------------------------------------------


def test_a_download_that_failed_names_the_option_that_helps(tmp_path):
    with pytest.raises(NoEnvironment) as caught:
        fetch("http://127.0.0.1:9/torch.whl", str(tmp_path / "part"))
    message, _, hint = str(caught.value).partition("; hint: ")
    assert symptom_of(message) == "no-internet-there"
    assert "submit with --send-packages" in hint
    here = _to_solve_error(caught.value)  # --send-packages is no remedy on this machine
    assert here.more == "index-not-reached" and here.hint == "check this machine's internet connection"


def test_a_check_of_a_machine_without_internet_names_it_too():
    facts = Facts(reach=Reach("outside", False, False, "timed out"))
    (one,) = [one for one in machine_findings(facts, Compute("there", "remote"), None, str) if one.what == "network"]
    assert "packages" not in one.hint, "who fetches them is a finding of its own"
    assert one.more == "no-internet-there"
    assert symptom_of(one.found) == one.more


def test_every_trouble_of_an_engine_has_its_text():
    for error, name in (("permission denied while", "docker-not-permitted"), ("Cannot connect", "docker-not-running")):
        assert engine_error(Engine("docker", "/bin/docker", error=error), gpus=True).explain == name
    found = engine_error(Engine("docker", "/bin/docker", "27.0", "linux", nvidia=False), gpus=True)
    assert found.explain == symptom_of(found.message) == "no-gpu-in-container"


# -- in the browser --------------------------------------------------------------------------------


def test_the_browser_tells_it_too():
    error_notice = pytest.importorskip("mlworkbench.ui.components.error_notice")
    assert error_notice.describe_error(Unreachable("x", "do y")) == (
        "x",
        "do y; for details run 'mlw explain no-contact'",
    )
    assert error_notice.describe_error(Unreachable("x")) == ("x", "for details run 'mlw explain no-contact'")
    assert error_notice.describe_error(LaunchError("x")) == ("x", None)
