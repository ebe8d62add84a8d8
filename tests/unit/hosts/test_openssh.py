"""The generated ssh configuration as ssh reads it, and the errors that mlw raises for ssh's messages."""

from __future__ import annotations

import os
import re
import subprocess
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.attachments import Attachment, Attachments
from mlworkbench.container_consents import Consent
from mlworkbench.errors import HostError, Unreachable, UsageError
from mlworkbench.hosts import askpass, bootstrap, first_contact, openssh, snapshot_upload
from mlworkbench.paths import UserPaths
from tests.conftest import need


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


@pytest.fixture
def target(home):
    return Attachment(home, "ada@gpu.lab:2222", address="gpu", username="ada", port=2222)


def effective_options(target: Attachment, address: str = "gpu", config: str = "ssh_config") -> dict[str, str]:
    """Return the options that ssh uses with the generated configuration."""
    openssh.write_config(target)
    command = [need("ssh"), "-G", "-F", str(target.folder / config), address]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.partition(" ")[::2] for line in reversed(result.stdout.splitlines()))


def test_mlw_options_take_precedence_over_user_options(home, target):
    (home / ".ssh" / "config").write_text(
        "Host gpu\n HostName 10.1.2.3\n User eve\n Port 7\n ForwardAgent yes\n RequestTTY force\n"
        " RemoteCommand tmux\n StrictHostKeyChecking no\n IdentityFile ~/.ssh/lab\n ProxyJump gate\n Compression yes\n"
    )
    options = effective_options(target)
    assert (options["hostname"], options["user"], options["port"]) == ("10.1.2.3", "ada", "2222")
    assert (options["forwardagent"], options["requesttty"], options["compression"]) == ("no", "false", "no")
    assert options["stricthostkeychecking"] in ("true", "yes") and options.get("remotecommand", "none") == "none"
    assert options["proxyjump"] == "gate" and options["batchmode"] == "yes"
    assert options["identityfile"].endswith("/.ssh/lab")
    assert options["userknownhostsfile"].split()[0] == str(target.known_hosts)


def test_jump_host_uses_the_users_options(home, target):
    (home / ".ssh" / "config").write_text("Host gate\n User guard\n Port 99\n")
    jumping = replace(target, jump="gate,me@second:2200", folder=home / "a b%c")
    jumping.folder.mkdir()
    command = effective_options(jumping)["proxycommand"]
    assert re.search(r"-J gate -l me -p 2200 -W \[%h\]:%p -- second$", command)
    assert "'" in command and "%%" in command
    gate = effective_options(jumping, "gate", "jump_config")
    assert (gate["user"], gate["port"], gate["batchmode"]) == ("guard", "99", "no")


def test_keys(home, target):
    options = effective_options(replace(target, key="mlw"))
    assert options["identityfile"] == str(home / "key") and options["identitiesonly"] == "yes"
    assert effective_options(replace(target, key="file:/k/my key"))["identityfile"] == "/k/my key"
    assert effective_options(target)["identitiesonly"] == "no"


def test_config_is_private_and_written_once(home, target):
    path = openssh.write_config(target)
    before = path.stat()
    assert before.st_mode & 0o777 == 0o600
    assert openssh.write_config(target).stat().st_ino == before.st_ino


CHANGED = """@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
The fingerprint for the ED25519 key sent by the remote host is
SHA256:NEWNEWNEWNEWNEWNEWNEWNEWNEWNEWNEWNEWNEWNEW1.
Host key verification failed."""


@pytest.mark.parametrize(
    ("output", "kind", "pattern"),
    [
        ("ssh: connect to host x port 2222: Connection refused", Unreachable, "refused the connection"),
        ("ssh: connect to host x port 22: Connection timed out", Unreachable, "does not respond"),
        ("ssh: Could not resolve hostname gpu: Name or service not known", Unreachable, "host name .* not found"),
        ("ssh: connect to host x port 22: No route to host", Unreachable, "no route"),
        ("ada@x: Permission denied (publickey).", openssh.LoginRefused, "accepts publickey"),
        ("Received disconnect: 2: Too many authentication failures", openssh.LoginRefused, "was refused"),
        (CHANGED, openssh.HostKeyChanged, "was SHA256:old, now it is SHA256:NEW"),
        (
            "No ED25519 host key is known for x\nHost key verification failed.",
            openssh.HostKeyUnknown,
            "unknown host key",
        ),
        ("kex_exchange_identification: Connection closed by remote host", Unreachable, "before the login"),
        ("debug1: kex_exchange_identification: banner line 0: HTTP/1.1 \x1b[0m", Unreachable, r"HTTP/1.1 \^\["),
        ("Load key: bad permissions", HostError, "readable by other users"),
        ("something\nquite \x07new", Unreachable, r"lost the connection to .*: quite \\x07new"),
        ("", Unreachable, "no reason given"),
    ],
)
def test_ssh_errors(target, output, kind, pattern):
    error = openssh.explain_ssh_error(replace(target, host_key="SHA256:old"), output)
    assert type(error) is kind
    assert re.search(pattern, error.message), error.message


@pytest.mark.parametrize("name", ["a b", "-x", "a\nb", "a*", "x'", 'x"', "$(x)", "", "a/b", "a\\b", "host:"])
def test_unsafe_names(name):
    with pytest.raises(UsageError):
        openssh.check_names(name)


@pytest.mark.parametrize("name", ["gpu", "10.0.0.1", "fe80::1", "fe80::1%eth0", "my_box.lab.example.org", "::1"])
def test_valid_names(name):
    openssh.check_names(name, "ada.l", f"me@[{name}]:22")


def test_hops():
    assert openssh.split_hop("me@host:2200") == ("me", "host", 2200)
    assert openssh.split_hop("host") == ("", "host", 22)
    assert openssh.split_hop("[fe80::1]:7") == ("", "fe80::1", 7)
    assert openssh.split_hop("fe80::1") == ("", "fe80::1", 22)


USERS = ("ada@gpu", "ada@10.0.0.1")


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ada@gpu's password: ", True),
        ("ADA@GPU's password: ", True),
        ("(ada@10.0.0.1) Password: ", True),
        ("gate@jump's password: ", False),
        ("ada@gpu.evil's password: ", False),
        ("Enter passphrase for key '/home/ada@gpu's password: ", False),
        ("Are you sure you want to continue connecting (yes/no/[fingerprint])? ", False),
        ("Password: ", False),
    ],
)
def test_password_prompt_of_the_target(prompt, expected):
    assert askpass.is_password_prompt(prompt, USERS) is expected


def test_jump_host_cannot_get_the_password_of_the_target():
    """The prompt alone does not show that the jump host asks (OpenSSH before 8.5), so a variable identifies it."""
    prompts: list[str] = []
    handler = askpass.answer_password_once("secret", USERS, lambda prompt: prompts.append(prompt) or None)
    with askpass.Askpass(handler) as helper:
        for origin, answer in (({"MLW_ASKPASS_OF": openssh.JUMP_HOST}, b""), ({}, b"secret\n")):
            environment = {**os.environ, **helper.environment(), **origin}
            command = [environment["SSH_ASKPASS"], "ada@gpu's password: "]
            assert subprocess.run(command, env=environment, stdout=subprocess.PIPE).stdout == answer
    assert prompts == ["(jump host) ada@gpu's password: "]


def test_password_is_given_once():
    answer = askpass.answer_password_once("secret", USERS, lambda prompt: f"re: {prompt}")
    assert answer("gate@jump's password: ") == "re: gate@jump's password: "
    assert answer("ada@gpu's password: ") == "secret"
    assert answer("ada@gpu's password: ") is None


@given(st.text(max_size=60))
def test_printed_text_is_safe(text):
    shown = openssh.printable(text)
    categories = {unicodedata.category(char) for char in shown if char not in "\u200c\u200d"}
    assert not categories & {"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"}


def test_shell_commands_contain_no_special_characters():
    cold = bootstrap.cold_command("0" * 16, "f" * 16)
    inner = cold.removeprefix("exec sh -c '").removesuffix("'")
    assert not set(inner) & set("'\\!\n`")
    assert bootstrap.warm_command("/usr/bin/python3", "/home/ada/.mlw/lib/0/remote/agent.py", "f") is not None
    assert bootstrap.warm_command("/usr/bin/python3", "/home/a b/.mlw/agent.py", "f") is None


def test_attachments_round_trip(tmp_path):
    store = Attachments(UserPaths(tmp_path))
    draft = store.draft("ada@h:22", address="h", username="ada", port=22)
    assert store.list() == []
    draft = replace(
        draft, allowed=(Consent("mount", "/data", "rw"),), projects=(("/p", "gpu"),), facts={"gpus": [1]}, python="/p"
    )
    saved = store.save(draft)
    assert not draft.folder.exists() and saved.folder.stat().st_mode & 0o777 == 0o700
    assert store.list() == [saved] and store.find("H", "ada", 22) == saved and store.find("h") == saved
    assert store.find("h", "eve") is None and store.find("h", "ada", 23) is None
    again = store.save(replace(store.draft("ada@h:22", address="h", username="ada", port=22), linger=True))
    assert store.list() == [again] and again.linger and again.folder == saved.folder
    (again.folder / "attachment.json").write_text("{")
    assert store.list() == []
    store.remove(again)
    assert not (tmp_path / "targets").exists()


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"missing": [[0, 3]], "have": []},
        {"missing": [[-1, 1]], "have": []},
        {"missing": [[0, 0]], "have": []},
        {"missing": [[1, 1], [0, 1]], "have": []},
        {"missing": [[0, 10**9]], "have": []},
        {"missing": [["a", 1]], "have": []},
        {"missing": [[0, 1]], "have": [[0, 11]]},
        {"missing": [[0, 1]], "have": [[1, 1]]},
        {"missing": [[0, 1]], "have": [[0, -1]]},
        {"missing": 7, "have": []},
    ],
)
def test_invalid_upload_plan(plan):
    with pytest.raises(HostError, match="invalid list of missing files"):
        snapshot_upload._check_plan(plan, [("a" * 64, 10), ("b" * 64, 20)])


def test_valid_upload_plan():
    blobs = [("a", 1), ("b", 2), ("c", 3)]
    assert snapshot_upload._check_plan({"missing": [[0, 1], [2, 1]], "have": [[1, 3]]}, blobs) == (
        [("a", 1), ("c", 3)],
        {1: 3},
    )


@pytest.mark.parametrize("name", ["gpu1", "ssh-gpu1.example.org", "sk-node1", "ecdsa-host", "[ssh-gpu1]:2222"])
def test_fingerprint_of_a_known_hosts_line(name):
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    assert first_contact.fingerprint_of(f"{name} {key}") == first_contact.fingerprint_of(key) != ""
