"""The words of commands that pages and the API set off. What a user gave can never become an option of mlw's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...resubmit import option


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
