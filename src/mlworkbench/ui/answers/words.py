"""The words of commands that pages and the API set off. What a user gave can never become an option of mlw's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_SUBMIT = ("experiment", "submit", "--detach", "-o", "json")


def option(name: str, value: object) -> list[str]:
    """``--name=value``: whatever the value begins with, it stays one."""
    return [] if value is None else [f"--{name}={value}"]


@dataclass(frozen=True)
class Submit:
    """``mlw experiment submit --detach -o json …``. ``script`` must not begin with a dash; secrets are names only."""

    configuration: str | None = None
    target: str | None = None
    script: str | None = None
    module: str | None = None
    command: str | None = None
    arguments: Sequence[str] = ()
    name: str | None = None
    tags: Sequence[str] = ()
    gpus: str | None = None
    timeout: str | None = None
    key: str | None = None
    locked: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    sweep: Mapping[str, Any] | None = None

    def words(self) -> list[str]:
        words = list(_SUBMIT)
        words += [*option("run-configuration", self.configuration), *option("target", self.target)]
        for name in ("name", "gpus", "timeout", "key", "locked"):
            words += option(name, getattr(self, name))
        words += [f"--tag={tag}" for tag in self.tags]
        words += [f"--env={one}={value}" for one, value in self.environment.items()]
        words += [f"--secret={one}" for one in self.secrets]
        words += _sweep(self.sweep) if self.sweep else []
        if self.command is not None:
            return [*words, "--", self.command, *self.arguments]
        if self.module is not None:
            return [*words, "-m", self.module, *self.arguments]
        return [*words, self.script, *self.arguments] if self.script is not None else words

    def typed(self) -> str:
        """As one would type it."""
        first = ["-c", self.configuration] if self.configuration is not None else []
        rest = replace(self, configuration=None).words()[len(_SUBMIT) :]
        return shlex.join(["mlw", "submit", *first, *rest])


def _sweep(sweep: Mapping[str, Any]) -> list[str]:
    words = [f"--sweep={axis}" for axis in sweep["axes"]]
    words += ["--random"] if sweep.get("random") else []
    for name in ("max_runs", "parallel", "seed", "metric", "goal"):
        words += option(name.replace("_", "-"), sweep.get(name))
    return words


def prepare_words(
    *,
    configuration: str | None = None,
    target: str | None = None,
    upgrade: bool = False,
    send_packages: bool = False,
    unchecked: bool = False,
) -> list[str]:
    words = ["experiment", "prepare", "-o", "json"]
    words += [*option("run-configuration", configuration), *option("target", target)]
    flags = {"--upgrade": upgrade, "--send-packages": send_packages, "--unchecked": unchecked}
    return [*words, *(flag for flag, wanted in flags.items() if wanted)]


@dataclass(frozen=True)
class Attach:
    """``mlw computetarget attach -o json …``. A password is no word: it goes to standard input."""

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
    replace: bool = False

    def words(self, password: bool) -> list[str]:
        """``password``: one is handed over."""
        words = ["computetarget", "attach", "-o", "json", *([self.kind] if self.kind else [])]
        for one in ("name", "address", "username", "port", "jump", "private_key_file", "host_key", "image", "master"):
            words += option(one.replace("_", "-"), getattr(self, one) or None)
        words += [f"--allow-mount={path}" for path in self.mounts]
        flags = {"--use-azureml-ssh-key": self.own_key, "--password-stdin": password, "--replace": self.replace}
        return [*words, *(flag for flag, wanted in flags.items() if wanted)]


def check_words(name: str) -> list[str]:
    return ["computetarget", "check", "-o", "json", "--", name]


def detach_words(name: str, *, purge: bool = False, keep_files: bool = False, force: bool = False) -> list[str]:
    flags = {"--purge": purge, "--keep-files": keep_files, "--force": force}
    return ["computetarget", "detach", "--yes", *(flag for flag, wanted in flags.items() if wanted), "--", name]


def update_words(name: str, kind: str = "mount", *, allow: Sequence[str] = (), forbid: Sequence[str] = ()) -> list[str]:
    """``kind``: mount or network."""
    options = [*(f"--allow-{kind}={one}" for one in allow), *(f"--forbid-{kind}={one}" for one in forbid)]
    return ["computetarget", "update", *options, "--", name]


def reset_key_words(name: str, host_key: str | None = None) -> list[str]:
    return ["computetarget", "reset-key", *option("host-key", host_key or None), "--", name]


def clean_words(target: str | None, *, remove: bool = False) -> list[str]:
    """``target``: None is this machine."""
    return ["experiment", "clean", "-o", "json", *option("target", target), "--yes" if remove else "--dry-run"]


def environments_words(target: str | None) -> list[str]:
    return ["environment", "list", "-o", "json", *option("target", target)]


def remove_environments_words(
    target: str | None, digests: Sequence[str] = (), *, unused: bool = False, caches: bool = False
) -> list[str]:
    flags = [*(["--unused"] if unused else []), *(["--caches"] if caches else [])]
    return ["environment", "remove", "--yes", "-o", "json", *option("target", target), *flags, "--", *digests]
