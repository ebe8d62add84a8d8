"""Form fields of the attach dialog."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from nicegui import ui

from ...config.project_files import is_plain_name
from ...targets.types import DEFAULT_ATTACH, IMAGE, JOB, MASTER, ComputeType, attachable
from ..operation_arguments import Attach
from ..queries.targets import Card
from .secret_field import SecretField

PASSWORD, OWN_KEYS, FILE, APPEND = "password", "own", "file", "append"
_AUTHENTICATION = {
    PASSWORD: "Password, used once to install a key",
    OWN_KEYS: "My SSH keys or SSH agent",
    FILE: "Private key file",
    APPEND: "New key that I add to the machine",
}
_JOB_FIELDS = {
    "partition": ("Partition", "default: that of the cluster"),
    "account": ("Account", "default: your default account"),
    "qos": ("QoS", "default: that of the account"),
    "constraint": ("Node features", "a100"),
    "time": ("Time limit", "2:00:00, or 1-12:00 (days-hours:minutes)"),
}
_FIELD_PROPS = "outlined dense"


class AttachForm:
    """The attach form. The password is its only secret; reading it clears the field."""

    def __init__(self, card: Card | None, on_enter: Callable[[], Awaitable[None]]) -> None:
        compute = card.compute if card else None
        with ui.element("div").classes("mlw-fields"):
            self._types = {row.name: row for row in attachable()}
            kind = card.type if card and card.type in self._types else DEFAULT_ATTACH.name
            self._kind = ui.select(_labels(self._types), value=kind, label="Run scripts").props(_FIELD_PROPS)
            self._name = _field("Target name", card.name if card else "", "my_dsvm")
            self._address = _field(
                "Address", (compute and compute.address) or "", "10.0.0.7, a host name, or an alias from ~/.ssh/config"
            )
            self._username = _field(
                "User", (compute and compute.username) or "", "default: from ~/.ssh/config, or your user name"
            )
            self._master = _field(
                "Spark master", (compute and compute.spark_master) or "", "spark://host:7077, or yarn"
            )
            self._job = {
                name: _field(label, (compute and getattr(compute, name)) or "", example)
                for name, (label, example) in _JOB_FIELDS.items()
            }
        self._authentication = ui.radio(_AUTHENTICATION, value=PASSWORD).props("dense inline").classes("mlw-ways")
        self._authentication.props('aria-label="Authentication"')
        self._secret = SecretField("Password").classes("mlw-full")
        self._secret.on("enter", on_enter)
        self._file = _field("Private key file on this machine", "", "~/.ssh/id_ed25519").classes("mlw-full")
        self._note = ui.label("mlw shows a public key to append to ~/.ssh/authorized_keys on the machine.").classes(
            "mlw-faint"
        )
        is_expanded = bool(compute and (compute.port or compute.jump_host))  # show values from the .compute file
        more = ui.expansion("More options: port, jump host, image, mounts", value=is_expanded)
        with (
            more.classes("mlw-full mlw-more").props("dense"),
            ui.element("div").classes("mlw-fields"),
        ):
            self._port = ui.number(
                "Port (default: 22)", value=compute.port if compute else None, min=1, max=65535, precision=0
            ).props(_FIELD_PROPS)
            self._jump = _field("Jump host", (compute and compute.jump_host) or "", "user@gateway:2222")
            self._image = _field("Container image", "", "default: from the .compute file")
            self._mounts = ui.textarea("Folders on the machine that containers may mount, one per line").props(
                f"{_FIELD_PROPS} autogrow"
            )
            self._replace = ui.checkbox("Replace an existing target with this name").props("dense")
        self._authentication.on_value_change(self._update_visibility)
        self._kind.on_value_change(self._update_visibility)
        self._update_visibility()

    @property
    def authentication(self) -> str:
        return str(self._authentication.value)

    def on_change(self, callback: Callable[[], None]) -> None:
        fields = (self._kind, self._name, self._address, self._username, self._master, self._authentication, self._file)
        for field in (*fields, *self._job.values(), self._port, self._jump, self._image, self._mounts, self._replace):
            field.on_value_change(lambda _: callback())

    @property
    def _type(self) -> ComputeType:
        return self._types[str(self._kind.value)]

    def _update_visibility(self) -> None:
        self._master.set_visibility(self._type.asks(MASTER))
        for field in self._job.values():
            field.set_visibility(self._type.asks(JOB))
        self._secret.set_visibility(self.authentication == PASSWORD)
        self._file.set_visibility(self.authentication == FILE)
        self._note.set_visibility(self.authentication == APPEND)

    async def password(self) -> str | None:
        """Return the typed password and clear the field."""
        return await self._secret.take() if self.authentication == PASSWORD else None

    def clear_password(self) -> None:
        self._secret.clear_typed()

    def missing_value(self, password: bool) -> str | None:
        """Return a message about the first missing value, or None."""
        if not is_plain_name(_text(self._name.value)):
            return "Enter a valid target name; it is used as a file name"
        if not _text(self._address.value):
            if self._type.asks(MASTER):
                return None if _text(self._master.value) else "Enter an address or a Spark master"
            return "Enter the address of the machine"
        if self.authentication == PASSWORD and not password:
            return "Enter the password"
        if self.authentication == FILE and not _text(self._file.value):
            return "Enter the path of the private key"
        return None

    def request(self, host_key: str | None = None) -> Attach:
        return Attach(
            name=_text(self._name.value),
            kind=self._type.name,
            address=_text(self._address.value) or None,
            username=_text(self._username.value) or None,
            port=int(self._port.value) if self._port.value else None,
            jump=_text(self._jump.value) or None,
            private_key_file=os.path.expanduser(_text(self._file.value)) or None
            if self.authentication == FILE
            else None,
            own_key=self.authentication == APPEND,
            host_key=host_key,
            mounts=[line.strip() for line in _text(self._mounts.value).splitlines() if line.strip()],
            image=_text(self._image.value) or None if self._type.asks(IMAGE) else None,
            master=_text(self._master.value) or None if self._type.asks(MASTER) else None,
            **{name: _text(field.value) or None for name, field in self._job.items() if self._type.asks(JOB)},
            replace=bool(self._replace.value),
        )


def _labels(types: dict[str, ComputeType]) -> dict[str, str]:
    return {name: f"{row.attach.label} ({name})" for name, row in types.items() if row.attach is not None}


def _field(label: str, value: str, example: str) -> ui.input:
    field = ui.input(label, value=value, placeholder=example).props(_FIELD_PROPS)
    field.props("autocomplete=off spellcheck=false")
    return field


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
