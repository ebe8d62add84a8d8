"""Command lines of operations. User input can never be interpreted as an mlw option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..resubmit import option
from ..targets.open_remote import JOB_OPTIONS


def prepare_arguments(
    *,
    configuration: str | None = None,
    target: str | None = None,
    upgrade: bool = False,
    send_packages: bool = False,
    unchecked: bool = False,
) -> list[str]:
    arguments = ["experiment", "prepare", "-o", "json"]
    arguments += [*option("run-configuration", configuration), *option("target", target)]
    flags = {"--upgrade": upgrade, "--send-packages": send_packages, "--unchecked": unchecked}
    return [*arguments, *(flag for flag, enabled in flags.items() if enabled)]


@dataclass(frozen=True)
class Attach:
    """Options of ``mlw computetarget attach -o json``.

    A password is not passed as an argument but sent to standard input.
    """

    name: str
    kind: str | None = None
    address: str | None = None
    username: str | None = None
    port: int | None = None
    jump: str | None = None
    private_key_file: str | None = None
    own_key: bool = False
    host_key: str | None = None
    mounts: Sequence[str] = ()
    image: str | None = None
    master: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: str | None = None
    replace: bool = False

    def arguments(self, password: bool) -> list[str]:
        """Return the command line. If ``password`` is set, a password is sent to standard input."""
        arguments = ["computetarget", "attach", "-o", "json", *([self.kind] if self.kind else [])]
        machine = ("name", "address", "username", "port", "jump", "private_key_file", "host_key", "image", "master")
        for field in (*machine, *JOB_OPTIONS):
            arguments += option(field.replace("_", "-"), getattr(self, field) or None)
        arguments += [f"--allow-mount={path}" for path in self.mounts]
        flags = {"--use-azureml-ssh-key": self.own_key, "--password-stdin": password, "--replace": self.replace}
        return [*arguments, *(flag for flag, enabled in flags.items() if enabled)]


def check_arguments(name: str) -> list[str]:
    return ["computetarget", "check", "-o", "json", "--", name]


def detach_arguments(name: str, *, purge: bool = False, keep_files: bool = False, force: bool = False) -> list[str]:
    flags = {"--purge": purge, "--keep-files": keep_files, "--force": force}
    return ["computetarget", "detach", "--yes", *(flag for flag, enabled in flags.items() if enabled), "--", name]


def update_arguments(
    name: str, kind: str = "mount", *, allow: Sequence[str] = (), forbid: Sequence[str] = ()
) -> list[str]:
    """Return the command line. ``kind`` is ``mount`` or ``network``."""
    options = [*(f"--allow-{kind}={value}" for value in allow), *(f"--forbid-{kind}={value}" for value in forbid)]
    return ["computetarget", "update", *options, "--", name]


def reset_key_arguments(name: str, host_key: str | None = None) -> list[str]:
    return ["computetarget", "reset-key", *option("host-key", host_key or None), "--", name]


def clean_arguments(target: str | None, *, remove: bool = False) -> list[str]:
    """Return the command line. If ``target`` is None, use this machine."""
    return ["experiment", "clean", "-o", "json", *option("target", target), "--yes" if remove else "--dry-run"]


def list_environments_arguments(target: str | None) -> list[str]:
    return ["environment", "list", "-o", "json", *option("target", target)]


def remove_environments_arguments(
    target: str | None, digests: Sequence[str] = (), *, unused: bool = False, caches: bool = False
) -> list[str]:
    flags = [*(["--unused"] if unused else []), *(["--caches"] if caches else [])]
    return ["environment", "remove", "--yes", "-o", "json", *option("target", target), *flags, "--", *digests]
