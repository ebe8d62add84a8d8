"""The way in: first the machine's own key, then ours. Before its key is accepted, no secret is sent."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from .. import secret
from ..attachments import MADE, Attachment
from ..errors import HostError, UsageError
from ..hosts import contact
from ..hosts.openssh import HostKeyChanged, LoginRefused, key_changed
from ..hosts.replies import Reply
from ..hosts.ssh import SshHost
from ..remote.shared.failpoint import failpoint
from .attempt import Attempt
from .wish import Talk, Unanswered, Wish

MARK = "mlw-"  # the comment of our line in authorized_keys begins so
_TRIES = 3


def meet(
    draft: Attachment, host_key: str | None, talk: Talk, known: Attachment | None
) -> tuple[Attachment, tuple[str, ...]]:
    """Whose key the machine shows, accepted by somebody; and the ways to log in. ``known``: it as it was met before."""
    before = known.host_key if known else ""
    try:
        seen = known.known_hosts if known and host_key is None else None
        shown = contact.first_contact(draft, alone=host_key is not None, known=seen)
    except HostKeyChanged as error:
        raise key_changed(known or draft, before, error.fingerprint) from None
    if host_key is not None:
        if not contact.key_fits(shown, host_key):
            raise HostError(
                f"host key of {draft.where} is {shown.fingerprint}, not {host_key}; nothing was sent",
                "verify it on the machine itself: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
                more="host-key-changed",
            )
    elif before and shown.fingerprint and before != shown.fingerprint:
        raise key_changed(known or draft, before, shown.fingerprint)
    elif not shown.trusted and not before:
        _ask_about_key(draft, shown, talk)
    return replace(draft, host_key=shown.fingerprint), shown.methods


def _ask_about_key(draft: Attachment, shown: contact.Contact, talk: Talk) -> None:
    talk.say(f"First connection to {draft.where}; its host key is {shown.fingerprint} ({shown.kind})")
    answer = talk.confirm("Trust this host key?")
    if answer is None:
        raise Unanswered(
            f"unknown host key for {draft.where}, and no terminal to confirm it",
            f"verify the fingerprint on the machine itself, then add --host-key {shown.fingerprint}",
            {"asks": "host_key", "identity": draft.where, "host_key": shown.fingerprint, "kind": shown.kind},
        )
    if not answer:
        raise UsageError(
            "nothing was attached: the host key was rejected",
            "print the key on the machine itself: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        )


def get_in(attempt: Attempt, wish: Wish, methods: tuple[str, ...]) -> None:
    """From now on the attempt's draft logs in by itself."""
    draft = attempt.draft
    if wish.own_key:
        _with_own_key(attempt)
        return
    if wish.private_key_file:
        _with_key_file(attempt, wish)
        return
    if wish.password is None and contact.try_keys(draft):
        attempt.entered(draft)
        return
    if methods and not {"password", "keyboard-interactive"} & set(methods):
        raise LoginRefused(
            f"{draft.where} rejected all your SSH keys, and does not accept passwords",
            "use --private-key-file, or use -k to create a key and add it to ~/.ssh/authorized_keys on the machine",
            methods,
        )
    password = _log_in_with_password(attempt, wish.password, methods)
    attempt.entered(draft)
    _keep_access(attempt, password)


def _log_in_with_password(attempt: Attempt, given: str | None, methods: tuple[str, ...]) -> str:
    """The password that was accepted. One that is typed may be wrong twice, as with ssh itself."""
    draft, talk = attempt.draft, attempt.talk
    for rest in (0,) if given else range(_TRIES - 1, -1, -1):
        password = given or talk.secret(f"Password for {draft.where}")
        if not password:
            break
        try:
            contact.login_with_password(draft, password, talk.secret)
            return password
        except LoginRefused as error:
            refused = f"{draft.where} rejected the password"
            if not rest:
                raise LoginRefused(refused, "check user name and password", error.methods) from None
            talk.say(f"{refused}; try again")
    raise LoginRefused(
        f"{draft.where} rejected all your SSH keys, and no password was given",
        "use --password-stdin or --private-key-file, or run the command in a terminal",
        methods,
    )


def _keep_access(attempt: Attempt, password: str) -> None:
    """From now on without the password, if the server takes keys."""
    draft, talk = attempt.draft, attempt.talk
    if _install_key(attempt):
        talk.say("installed an SSH key for this target; the password is no longer needed and was not stored")
        return
    if not secret.keep(draft.keyring_name, password):
        raise HostError(
            f"{draft.where} accepts no keys, and this machine has no keyring to store the password",
            "install one (gnome-keyring, KWallet), or let the server accept keys: PubkeyAuthentication yes",
            more="permission-denied",
        )
    attempt.password = True
    attempt.entered(replace(draft, password=True))
    talk.say("the server accepts no keys; the password was stored in the keyring of this machine")


def _install_key(attempt: Attempt) -> bool:
    """Over the connection that is open: a key of this target's own. False if the server takes none."""
    draft = attempt.draft
    with_key, line = contact.make_key(draft, MARK + draft.folder.name.removeprefix(".draft-"))
    host = SshHost(draft, attempt.paths)
    attempt.connect(host)
    attempt.line = line
    added = Reply(host.identity, host.ask({"do": "key", "action": "add", "line": line}))
    if not added.ok:
        raise HostError(
            f"cannot add a key to ~/.ssh/authorized_keys on {draft.where}: {added.problem}",
            "make sure that your user can write that file, or use --private-key-file",
        )
    failpoint("key-installed")
    if contact.key_works(with_key):
        attempt.entered(with_key)  # before the other way in is closed: whoever has to undo this must get in
        host.disconnect()
        return True
    host.ask({"do": "key", "action": "remove", "line": line})
    host.close()
    attempt.line = None
    for name in ("key", "key.pub"):
        (draft.folder / name).unlink()
    return False


def _with_key_file(attempt: Attempt, wish: Wish) -> None:
    """A key without a passphrase serves as it is; with one, it is used once, like a password."""
    draft, talk = contact.use_key_file(attempt.draft, Path(wish.private_key_file or "")), attempt.talk
    path = draft.key_file or Path()
    if not contact.has_passphrase(path):
        if contact.try_keys(draft):
            attempt.entered(draft)
            return
        raise LoginRefused(
            f"{draft.where} rejected the key {path}",
            "add its public key to ~/.ssh/authorized_keys on the machine, or use a different key",
            (),
        )
    given = [wish.passphrase] if wish.passphrase else []
    answers: list[bool] = []

    def ask(question: str) -> str | None:
        answer = given.pop() if given else talk.secret(question.rstrip(": ")) if not answers else None
        answers.append(answer is not None)
        return answer

    if not contact.try_keys(draft, ask):
        if not any(answers) and answers:
            why = f"cannot prompt for the passphrase of {path}: no terminal"
            raise UsageError(why, "add the key to your ssh-agent (ssh-add), and omit --private-key-file")
        raise LoginRefused(f"{draft.where} rejected the key {path}", "check the key and its passphrase", ())
    attempt.entered(draft)
    if not _install_key(attempt):
        raise HostError(
            f"the key {path} has a passphrase, and another key could not be installed",
            "add it to your ssh-agent (ssh-add), and attach without --private-key-file",
        )
    talk.say("the key has a passphrase; installed a separate key for this target")


def _with_own_key(attempt: Attempt) -> None:
    """The original's -k: one key for all targets of this user, whose public half the user puts there."""
    path, draft, talk = attempt.paths.home / "key", attempt.draft, attempt.talk
    if not path.exists():
        contact.make_key(draft, f"{MARK}user")
        os.replace(draft.folder / "key.pub", path.with_suffix(".pub"))
        os.replace(draft.folder / "key", path)
    with_key = contact.use_key_file(draft, path)
    if contact.key_works(with_key):
        attempt.entered(with_key)
        return
    line = path.with_suffix(".pub").read_text().strip()
    talk.say(f"append this line to ~/.ssh/authorized_keys of {draft.username} on {draft.address}:\n\nrestrict {line}\n")
    answer = talk.confirm("Is the line in place?")
    if answer and contact.key_works(with_key):
        attempt.entered(with_key)
        return
    words = f"{draft.where} does not accept this key yet", "append the line, then attach again"
    if answer is None:
        raise Unanswered(*words, {"asks": "public_key", "identity": draft.where, "line": f"restrict {line}"})
    raise LoginRefused(*words, ())


def as_before(attempt: Attempt, wish: Wish) -> bool:
    """The machine was attached before, and the way in of that time still is one: then it stays."""
    old = attempt.old
    if old is None or wish.private_key_file or wish.own_key:
        return False
    again = replace(attempt.draft, key=old.key, password=old.password)
    if old.password:
        password = wish.password or secret.stored(old.keyring_name)
        if not password or not _still_right(again, password):
            return False
        secret.keep(again.keyring_name, password)
    elif not (old.key != MADE or copy_files(old, again, "key", "key.pub")) or not contact.try_keys(again):
        for name in ("key", "key.pub"):
            (again.folder / name).unlink(missing_ok=True)
        return False
    attempt.entered(again)
    return True


def copy_files(source: Attachment, to: Attachment, *names: str) -> bool:
    """Whether all of them were there."""
    for name in names:
        try:
            data = (source.folder / name).read_bytes()
        except OSError:
            return False
        with open(os.open(to.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
    return True


def _still_right(draft: Attachment, password: str) -> bool:
    try:
        contact.login_with_password(draft, password)
    except LoginRefused:
        return False
    return True


def remove_key(host: SshHost, attachment: Attachment) -> bool:
    """Take our line out of authorized_keys there."""
    line = (attachment.folder / "key.pub").read_text().strip()
    return bool(host.ask({"do": "key", "action": "remove", "line": line}).get("changed"))
