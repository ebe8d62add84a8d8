"""Log in to a machine. No secret is sent before the host key has been verified and accepted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from .. import secret_sources
from ..attachments import MADE, Attachment
from ..errors import HostError, UsageError
from ..hosts import first_contact
from ..hosts.openssh import HostKeyChanged, LoginRefused, key_changed
from ..hosts.replies import Reply
from ..hosts.ssh_host import SshHost
from ..remote.shared.failpoint import failpoint
from .attach_request import AttachRequest, Prompter, Unanswered
from .attach_transaction import AttachTransaction

MARK = "mlw-"  # comment prefix of mlw's line in authorized_keys
_TRIES = 3


def verify_host(
    draft: Attachment, host_key: str | None, prompter: Prompter, earlier: Attachment | None
) -> tuple[Attachment, tuple[str, ...]]:
    """Verify the host key, prompting if needed. Return the draft and the possible login methods."""
    before = earlier.host_key if earlier else ""
    try:
        known_hosts = earlier.known_hosts if earlier and host_key is None else None
        shown = first_contact.contact_host(
            draft, ignore_known_hosts=host_key is not None, earlier_known_hosts=known_hosts
        )
    except HostKeyChanged as error:
        raise key_changed(earlier or draft, before, error.fingerprint) from None
    if host_key is not None:
        if not first_contact.matches_host_key(shown, host_key):
            raise HostError(
                f"host key of {draft.where} is {shown.fingerprint}, not {host_key}; nothing was sent",
                "verify it on the machine itself: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
                more="host-key-changed",
            )
    elif before and shown.fingerprint and before != shown.fingerprint:
        raise key_changed(earlier or draft, before, shown.fingerprint)
    elif not shown.trusted and not before:
        _ask_about_key(draft, shown, prompter)
    return replace(draft, host_key=shown.fingerprint), shown.methods


def _ask_about_key(draft: Attachment, shown: first_contact.Contact, prompter: Prompter) -> None:
    prompter.say(f"First connection to {draft.where}; its host key is {shown.fingerprint} ({shown.kind})")
    answer = prompter.confirm("Trust this host key?")
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


def log_in(transaction: AttachTransaction, request: AttachRequest, methods: tuple[str, ...]) -> None:
    """Complete the draft so that mlw can log in without prompting."""
    draft = transaction.draft
    if request.own_key:
        _with_own_key(transaction)
        return
    if request.private_key_file:
        _with_key_file(transaction, request)
        return
    if request.password is None and first_contact.try_keys(draft):
        transaction.record_login(draft)
        return
    if methods and not {"password", "keyboard-interactive"} & set(methods):
        raise LoginRefused(
            f"{draft.where} rejected all your SSH keys, and does not accept passwords",
            "use --private-key-file, or use -k to create a key and add it to ~/.ssh/authorized_keys on the machine",
            methods,
        )
    password = _log_in_with_password(transaction, request.password, methods)
    transaction.record_login(draft)
    _keep_access(transaction, password)


def _log_in_with_password(transaction: AttachTransaction, given: str | None, methods: tuple[str, ...]) -> str:
    """Return the accepted password. Like ssh, allow two wrong attempts at the prompt."""
    draft, prompter = transaction.draft, transaction.prompter
    for rest in (0,) if given else range(_TRIES - 1, -1, -1):
        password = given or prompter.secret(f"Password for {draft.where}")
        if not password:
            break
        try:
            first_contact.login_with_password(draft, password, prompter.secret)
            return password
        except LoginRefused as error:
            refused = f"{draft.where} rejected the password"
            if not rest:
                raise LoginRefused(refused, "check user name and password", error.methods) from None
            prompter.say(f"{refused}; try again")
    raise LoginRefused(
        f"{draft.where} rejected all your SSH keys, and no password was given",
        "use --password-stdin or --private-key-file, or run the command in a terminal",
        methods,
    )


def _keep_access(transaction: AttachTransaction, password: str) -> None:
    """Replace the password with a key if the server accepts keys."""
    draft, prompter = transaction.draft, transaction.prompter
    if _install_key(transaction):
        prompter.say("installed an SSH key for this target; the password is no longer needed and was not stored")
        return
    if not secret_sources.keep(draft.keyring_name, password):
        raise HostError(
            f"{draft.where} accepts no keys, and this machine has no keyring to store the password",
            "install one (gnome-keyring, KWallet), or let the server accept keys: PubkeyAuthentication yes",
            more="permission-denied",
        )
    transaction.password = True
    transaction.record_login(replace(draft, password=True))
    prompter.say("the server accepts no keys; the password was stored in the keyring of this machine")


def _install_key(transaction: AttachTransaction) -> bool:
    """Install a key for this target over the open connection. Return False if keys are not accepted."""
    draft = transaction.draft
    with_key, line = first_contact.create_key(draft, MARK + draft.folder.name.removeprefix(".draft-"))
    host = SshHost(draft, transaction.paths)
    transaction.connect(host)
    transaction.line = line
    added = Reply(host.identity, host.ask({"do": "key", "action": "add", "line": line}))
    if not added.ok:
        raise HostError(
            f"cannot add a key to ~/.ssh/authorized_keys on {draft.where}: {added.problem}",
            "make sure that your user can write that file, or use --private-key-file",
        )
    failpoint("key-installed")
    if first_contact.key_works(with_key):
        transaction.record_login(with_key)  # before disconnecting, so that a rollback can log in
        host.disconnect()
        return True
    host.ask({"do": "key", "action": "remove", "line": line})
    host.close()
    transaction.line = None
    for name in ("key", "key.pub"):
        (draft.folder / name).unlink()
    return False


def _with_key_file(transaction: AttachTransaction, request: AttachRequest) -> None:
    """Use a key file. A key with a passphrase is used only once, like a password."""
    draft, prompter = (
        first_contact.use_key_file(transaction.draft, Path(request.private_key_file or "")),
        transaction.prompter,
    )
    path = draft.key_file or Path()
    if not first_contact.has_passphrase(path):
        if first_contact.try_keys(draft):
            transaction.record_login(draft)
            return
        raise LoginRefused(
            f"{draft.where} rejected the key {path}",
            "add its public key to ~/.ssh/authorized_keys on the machine, or use a different key",
            (),
        )
    given = [request.passphrase] if request.passphrase else []
    answers: list[bool] = []

    def ask(question: str) -> str | None:
        answer = given.pop() if given else prompter.secret(question.rstrip(": ")) if not answers else None
        answers.append(answer is not None)
        return answer

    if not first_contact.try_keys(draft, ask):
        if not any(answers) and answers:
            why = f"cannot prompt for the passphrase of {path}: no terminal"
            raise UsageError(why, "add the key to your ssh-agent (ssh-add), and omit --private-key-file")
        raise LoginRefused(f"{draft.where} rejected the key {path}", "check the key and its passphrase", ())
    transaction.record_login(draft)
    if not _install_key(transaction):
        raise HostError(
            f"the key {path} has a passphrase, and another key could not be installed",
            "add it to your ssh-agent (ssh-add), and attach without --private-key-file",
        )
    prompter.say("the key has a passphrase; installed a separate key for this target")


def _with_own_key(transaction: AttachTransaction) -> None:
    """Use the same key for all targets, like the original ``-k``. The user installs it."""
    path, draft, prompter = transaction.paths.home / "key", transaction.draft, transaction.prompter
    if not path.exists():
        first_contact.create_key(draft, f"{MARK}user")
        os.replace(draft.folder / "key.pub", path.with_suffix(".pub"))
        os.replace(draft.folder / "key", path)
    with_key = first_contact.use_key_file(draft, path)
    if first_contact.key_works(with_key):
        transaction.record_login(with_key)
        return
    line = path.with_suffix(".pub").read_text().strip()
    prompter.say(
        f"append this line to ~/.ssh/authorized_keys of {draft.username} on {draft.address}:\n\nrestrict {line}\n"
    )
    answer = prompter.confirm("Is the line in place?")
    if answer and first_contact.key_works(with_key):
        transaction.record_login(with_key)
        return
    reason = f"{draft.where} does not accept this key yet", "append the line, then attach again"
    if answer is None:
        raise Unanswered(*reason, {"asks": "public_key", "identity": draft.where, "line": f"restrict {line}"})
    raise LoginRefused(*reason, ())


def reuse_login(transaction: AttachTransaction, request: AttachRequest) -> bool:
    """Reuse the login of an earlier attach if it still works. Return whether it does."""
    old = transaction.old
    if old is None or request.private_key_file or request.own_key:
        return False
    again = replace(transaction.draft, key=old.key, password=old.password)
    if old.password:
        password = request.password or secret_sources.stored(old.keyring_name)
        if not password or not _is_password_accepted(again, password):
            return False
        secret_sources.keep(again.keyring_name, password)
    elif not (old.key != MADE or copy_files(old, again, "key", "key.pub")) or not first_contact.try_keys(again):
        for name in ("key", "key.pub"):
            (again.folder / name).unlink(missing_ok=True)
        return False
    transaction.record_login(again)
    return True


def copy_files(source: Attachment, to: Attachment, *names: str) -> bool:
    """Copy the named files between two attachment folders. Return whether all of them exist."""
    for name in names:
        try:
            data = (source.folder / name).read_bytes()
        except OSError:
            return False
        with open(os.open(to.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
    return True


def _is_password_accepted(draft: Attachment, password: str) -> bool:
    try:
        first_contact.login_with_password(draft, password)
    except LoginRefused:
        return False
    return True


def remove_key(host: SshHost, attachment: Attachment) -> bool:
    """Remove mlw's line from ``authorized_keys`` on the machine."""
    line = (attachment.folder / "key.pub").read_text().strip()
    return bool(host.ask({"do": "key", "action": "remove", "line": line}).get("changed"))
