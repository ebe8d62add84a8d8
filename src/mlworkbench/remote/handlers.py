"""Request handlers of the agent.

Requests arrive on stdin; responses are written to stdout in order (see ``message_frames.py``). A response
is one message, possibly preceded by messages with ``"more": true``. The agent exits when stdin
ends.
"""

from __future__ import annotations

import os
import sys
import time

from .shared import machine
from .shared.failure import AGENT_ERROR, complete_answer, failure, failure_answer, failure_from_os_error
from .shared.layout import Root, RunFolder, check_run_id, is_claimed
from .shared.message_frames import CHUNK, ConnectionClosed, FrameError, Pipe
from .shared.protocol_versions import PROTOCOL

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, Optional

    Message = Dict[str, Any]

MAX_WAIT = 60.0


class Connection:
    """A client connection: the data that handlers need in addition to the request."""

    def __init__(self, root: Root, pipe: "Optional[Pipe]") -> None:
        self.root = root
        self._pipe = pipe

    @property
    def pipe(self) -> Pipe:
        if self._pipe is None:
            raise ValueError("available on remote targets only")
        return self._pipe

    def run(self, request: Message) -> RunFolder:
        return self.root.run(check_run_id(str(request["run"])))


def _hello(connection: Connection, request: Message, body: bytes) -> Message:
    client_protocol = request.get("protocol", PROTOCOL)
    if client_protocol != PROTOCOL:  # write no files, because such a client may interpret them differently
        problem = "the client uses protocol %a, but this agent uses protocol %d" % (client_protocol, PROTOCOL)
        return {"ok": False, "protocol": PROTOCOL, "problem": problem}
    from .client_registry import register_client  # noqa: PLC0415

    os.makedirs(connection.root.path, 0o700, exist_ok=True)
    register_client(connection.root, request.get("client"))
    return {
        "ok": True,
        "protocol": PROTOCOL,
        "root": connection.root.path,
        "python": sys.executable,
        "version": list(sys.version_info[:3]),
        "uid": os.getuid() if hasattr(os, "getuid") else None,
        "time": time.time(),
        "identity": machine.identity(),
    }


def _run_command(connection: Connection, request: Message, body: bytes) -> Message:
    if request["do"] not in ("start", "build"):
        return _execute_command(connection, request)
    from .shared.store_lock import using_store  # noqa: PLC0415

    with using_store(connection.root):  # no purge can start before the supervisor locks its run
        if not os.path.exists(__file__):
            return {"ok": False, "problem": "another client removed mlw from this machine; try again"}
        return _execute_command(connection, request)


def _execute_command(connection: Connection, request: Message) -> Message:
    from .run_control import COMMANDS  # noqa: PLC0415 - not needed by connections that only read

    run = connection.run(request)
    arguments, message = [str(argument) for argument in request.get("words", [])], request.get("message", {})
    is_decided = is_claimed(run) or os.path.exists(run.cancel)  # if so, neither code nor packages are needed
    if request["do"] == "start" and "spec" in message and not is_decided:
        from .snapshot_check import has_snapshot  # noqa: PLC0415

        if not has_snapshot(connection.root, message["spec"]["snapshot"]):
            return {"ok": False, "lacks": "code"}
        message = dict(message, lock=message["spec"].get("lock"))
    if request["do"] in ("start", "build") and not is_decided:
        missing = _missing_packages(connection.root, message.get("lock") or {}, bool(message.get("everything")))
        if missing:
            return dict(missing, ok=False, lacks="packages")
    return COMMANDS[request["do"]](connection.root, run, arguments, message)


def _missing_packages(root: Root, lock: Message, everything: bool) -> "Optional[Message]":
    """Return what is missing to build an environment; None if nothing is missing or the environment exists."""
    if lock.get("kind") != "managed" or os.path.exists(root.environment(str(lock["digest"])) + ".json"):
        return None
    from .environments.missing_packages import find_missing  # noqa: PLC0415

    return find_missing(root, lock, everything)


def _read_statuses(connection: Connection, request: Message, body: bytes) -> Message:
    from .starters.starter import read_statuses  # noqa: PLC0415

    return {"ok": True, "runs": read_statuses(connection.root, [check_run_id(str(name)) for name in request["runs"]])}


def _build_status(connection: Connection, request: Message, body: bytes) -> Message:
    from .environments.prebuild import build_status  # noqa: PLC0415

    return build_status(connection.root, request)


def _read_updates(connection: Connection, request: Message, body: bytes) -> Message:
    from .run_reader import RunUpdates  # noqa: PLC0415

    offsets = {str(name): int(offset) for name, offset in request["offsets"].items()}
    updates = RunUpdates(connection.run(request), offsets)
    wait = float(request.get("wait", 0))
    if wait > 0:
        updates.wait(min(wait, MAX_WAIT), lambda seconds: _pause(connection, seconds))
    response: Message = dict(updates.status(), ok=True, unwritten=updates.unwritten_reason())
    for name, data in updates.parts(min(int(request["limit"]), CHUNK)):
        _send_part(connection, {"name": name}, data, bool(request.get("pack")))
    return dict(response, pending=updates.pending)


def _pause(connection: Connection, seconds: float) -> bool:
    _reap_children()
    return connection.pipe.is_ready(seconds)


def _send_part(connection: Connection, facts: Message, data: bytes, pack: bool) -> None:
    if pack and len(data) > 1024:
        import zlib  # noqa: PLC0415

        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            connection.pipe.send(dict(facts, more=True, packed=True), packed)
            return
    connection.pipe.send(dict(facts, more=True), data)


def _read_file(connection: Connection, request: Message, body: bytes) -> Message:
    from .run_reader import read_run_file  # noqa: PLC0415

    limit = min(int(request["limit"]), CHUNK)
    data = read_run_file(connection.run(request), str(request["name"]), int(request.get("offset", 0)), limit)
    connection.pipe.send({"more": True}, data)
    return {"ok": True}


def _read_outputs(connection: Connection, request: Message, body: bytes) -> Message:
    from .run_reader import read_outputs  # noqa: PLC0415

    files = [[str(path), int(offset), int(size)] for path, offset, size in request["files"]]
    for index, data in read_outputs(connection.run(request), files):
        _send_part(connection, {"file": index}, data, bool(request.get("pack")))
    return {"ok": True}


def _list_checkpoints(connection: Connection, request: Message, body: bytes) -> Message:
    from .checkpoints import list_checkpoints  # noqa: PLC0415

    return list_checkpoints(connection.run(request))


def _receive_code(connection: Connection, request: Message, body: bytes) -> Message:
    """Receive an upload: read the manifest, send the list of missing blobs, and read these blobs."""
    from .shared.store_lock import using_store  # noqa: PLC0415

    with using_store(connection.root):
        return _receive_upload(connection, request)


def _receive_upload(connection: Connection, request: Message) -> Message:
    from .snapshot_receiver import Upload  # noqa: PLC0415

    root = connection.root
    if request.get("parcel"):  # an upload of packages
        from .environments.missing_packages import incoming_store  # noqa: PLC0415

        root = incoming_store(connection.root)
    upload = Upload(root, str(request["digest"]))
    plan = upload.plan(request, _receive_bodies(connection))
    if not plan["ok"] or not plan["base"]:
        return plan
    connection.pipe.send(dict(plan, more=True))
    blobs = _receive_bodies(connection)
    try:
        upload.receive(lambda: next(blobs, None), plan["have"])
    except OSError as error:
        connection.pipe.send({"more": True, "stop": True})  # stop the client, which may still send gigabytes
        for _ in blobs:
            pass
        return failure_answer(failure_from_os_error(error, connection.root.path))
    for _ in blobs:
        pass
    return {"ok": True}


def _store_packages(connection: Connection, request: Message, body: bytes) -> Message:
    """Store uploaded files as packages."""
    from .environments.missing_packages import store_uploaded  # noqa: PLC0415
    from .snapshot_check import check_digest  # noqa: PLC0415

    files = [(str(name), check_digest(str(sha256))) for name, sha256 in request["files"]]
    store_uploaded(connection.root, check_digest(str(request["digest"])), files)
    return {"ok": True}


def _inspect_image(connection: Connection, request: Message, body: bytes) -> Message:
    from .image_facts import inspect_image  # noqa: PLC0415

    return inspect_image(request)


def _receive_bodies(connection: Connection) -> "Iterator[bytes]":
    """Yield the body of each frame, up to the first frame without ``more``."""
    while True:
        message, body = connection.pipe.receive()
        if message.get("packed"):
            from .shared.message_frames import inflate  # noqa: PLC0415

            body = inflate(body)
        if body:
            yield body
        if not message.get("more"):
            return


def _gather_facts(connection: Connection, request: Message, body: bytes) -> Message:
    from .system_facts import gather  # noqa: PLC0415

    return {
        "ok": True,
        "facts": gather(
            connection.root.path,
            python=request.get("python"),
            reach=request.get("reach"),
            named=bool(request.get("named")),
        ),
    }


def _list_gpus(connection: Connection, request: Message, body: bytes) -> Message:
    from .gpus.gpu_listing import list_gpus  # noqa: PLC0415

    return {"ok": True, "gpus": list_gpus(connection.root)}


def _examine_gpus(connection: Connection, request: Message, body: bytes) -> Message:
    from .gpus.gpu_probe import probe_gpu_stack  # noqa: PLC0415

    python, container = request.get("python"), request.get("container")
    return {"ok": True, "found": probe_gpu_stack(connection.root, python, container, bool(request.get("managed")))}


def _check_tools(connection: Connection, request: Message, body: bytes) -> Message:
    from . import tool_preflight  # noqa: PLC0415

    return tool_preflight.HANDLERS[request["do"]](request)


def _change_key(connection: Connection, request: Message, body: bytes) -> Message:
    from . import authorized_keys  # noqa: PLC0415

    change = {"add": authorized_keys.add, "remove": authorized_keys.remove}[request["action"]]
    return {"ok": True, "changed": change(str(request["line"]))}


def _resolve_mounts(connection: Connection, request: Message, body: bytes) -> Message:
    from .bind_mounts import resolve_mounts  # noqa: PLC0415

    paths = [str(path) for path in request.get("paths", ())]
    return resolve_mounts(connection.root.path, os.path.expanduser("~"), paths)


def _manage_disk(connection: Connection, request: Message, body: bytes) -> Message:
    from . import disk_usage  # noqa: PLC0415

    return disk_usage.HANDLERS[request["do"]](connection.root, request)


def _record_fetched(connection: Connection, request: Message, body: bytes) -> Message:
    from .client_registry import record_fetched  # noqa: PLC0415

    return record_fetched(connection.run(request), str(request["client"]), int(request["log"]))


def _unregister_client(connection: Connection, request: Message, body: bytes) -> Message:
    from .client_registry import unregister_client  # noqa: PLC0415

    unregister_client(connection.root, str(request["client"]))
    return {"ok": True}


def _purge_root(connection: Connection, request: Message, body: bytes) -> Message:
    from . import authorized_keys, root_purge  # noqa: F401, PLC0415 - not importable after the purge

    return root_purge.HANDLERS[request["do"]](connection.root, request)


def _manage_environments(connection: Connection, request: Message, body: bytes) -> Message:
    from .environments import garbage_collection  # noqa: PLC0415

    return garbage_collection.HANDLERS[request["do"]](connection.root, request)


HANDLERS: "Dict[str, Callable[[Connection, Message, bytes], Message]]" = {
    "hello": _hello,
    "start": _run_command,
    "build": _run_command,
    "built": _build_status,
    "adopt": _run_command,
    "cancel": _run_command,
    "status": _read_statuses,
    "news": _read_updates,
    "file": _read_file,
    "outputs": _read_outputs,
    "checkpoints": _list_checkpoints,
    "code": _receive_code,
    "packages": _store_packages,
    "image": _inspect_image,
    "facts": _gather_facts,
    "gpus": _list_gpus,
    "gpu doctor": _examine_gpus,
    "spark": _check_tools,
    "launcher": _check_tools,
    "slurm facts": _check_tools,
    "key": _change_key,
    "mounts": _resolve_mounts,
    "linger": _manage_disk,
    "space": _manage_disk,
    "free": _manage_disk,
    "survey": _purge_root,
    "purge": _purge_root,
    "purge bare": _purge_root,
    "fetched": _record_fetched,
    "leave": _unregister_client,
    "environments": _manage_environments,
    "environment": _manage_environments,
    "environments-remove": _manage_environments,
}


def handle_request(connection: Connection, request: Message, body: bytes) -> Message:
    """Handle one request. A failure does not end the connection."""
    try:
        handler = HANDLERS.get(str(request.get("do")))
        if handler is None:
            return failure_answer(failure(AGENT_ERROR, "this version does not support %a" % request.get("do")))
        return complete_answer(handler(connection, request, body))
    except FrameError:
        raise  # the client has disconnected, or the start of the next message is unknown
    except OSError as error:
        return failure_answer(failure_from_os_error(error, connection.root.path))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ImportError) as error:
        return failure_answer(failure(AGENT_ERROR, "%s: %s" % (type(error).__name__, error)))


def _reap_children() -> None:
    """Reap supervisors that have ended, which only their parent process can do."""
    try:
        while machine.CAN_FORK and os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _preload_modules(request: Message) -> None:
    """Import modules for the requests that the client has announced, while the client is busy."""
    upcoming = request.get("soon") or ()
    if "start" in upcoming:
        from . import run_control, snapshot_check  # noqa: F401, PLC0415
        from .shared import store_lock  # noqa: F401, PLC0415
    if "container" in upcoming:
        from . import container_work  # noqa: F401, PLC0415


def main(argv: "list[str]") -> int:
    root = Root(argv[2] if len(argv) > 2 else os.path.join(os.path.expanduser("~"), ".mlw"))
    os.write(1, b"\nMLW-AGENT " + argv[1].encode("ascii") + b"\n")
    pipe = Pipe(0, 1)
    connection = Connection(root, pipe)
    try:
        while True:
            request, body = pipe.receive()
            pipe.send(handle_request(connection, request, body))
            _reap_children()
            _preload_modules(request)
    except ConnectionClosed:
        return 0
    except FrameError as error:
        sys.stderr.write("mlw agent: %s\n" % error)
        return 1
