"""What the agent answers. Requests come by stdin and are answered in order on stdout (see ``frames.py``).

An answer is one message; before it there may be others that say ``"more": true``. It ends when stdin does.
"""

from __future__ import annotations

import os
import sys
import time

from .shared import machine
from .shared.failure import AGENT_ERROR, completed, failure, of_os_error, refusal
from .shared.frames import CHUNK, Closed, FrameError, Pipe
from .shared.layout import Root, RunFolder, check_run_id, is_taken
from .shared.versions import PROTOCOL

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, Optional

    Message = Dict[str, Any]

LONGEST_WAIT = 60.0


class Talk:
    """One conversation: what handlers need besides the request."""

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


def _hello(talk: Talk, request: Message, body: bytes) -> Message:
    theirs = request.get("protocol", PROTOCOL)
    if theirs != PROTOCOL:  # before anything is written for a client that may mean something else by it
        problem = "the client uses protocol %a, but this agent uses protocol %d" % (theirs, PROTOCOL)
        return {"ok": False, "protocol": PROTOCOL, "problem": problem}
    from .clients import greet  # noqa: PLC0415

    os.makedirs(talk.root.path, 0o700, exist_ok=True)
    greet(talk.root, request.get("client"))
    return {
        "ok": True,
        "protocol": PROTOCOL,
        "root": talk.root.path,
        "python": sys.executable,
        "version": list(sys.version_info[:3]),
        "uid": os.getuid() if hasattr(os, "getuid") else None,
        "time": time.time(),
        "identity": machine.identity(),
    }


def _verb(talk: Talk, request: Message, body: bytes) -> Message:
    if request["do"] not in ("start", "build"):
        return _act(talk, request)
    from .shared.store_lock import relying_on_store  # noqa: PLC0415

    with relying_on_store(talk.root):  # no purge begins before the supervisor holds the lock of its run
        if not os.path.exists(__file__):
            return {"ok": False, "problem": "another client removed mlw from this machine; try again"}
        return _act(talk, request)


def _act(talk: Talk, request: Message) -> Message:
    from .verbs import VERBS  # noqa: PLC0415 - a connection that only reads has no use for a supervisor

    run = talk.run(request)
    words, message = [str(word) for word in request.get("words", [])], request.get("message", {})
    decided = is_taken(run) or os.path.exists(run.cancel)  # then no code is needed
    if request["do"] == "start" and "spec" in message and not decided:
        from .present import has_code  # noqa: PLC0415

        if not has_code(talk.root, message["spec"]["snapshot"]):
            return {"ok": False, "lacks": "code"}
        message = dict(message, lock=message["spec"].get("lock"))
    if request["do"] in ("start", "build") and not decided:
        supplies = _supplies(talk.root, message.get("lock") or {}, bool(message.get("everything")))
        if supplies:
            return dict(supplies, ok=False, lacks="packages")
    return VERBS[request["do"]](talk.root, run, words, message)


def _supplies(root: Root, lock: Message, everything: bool) -> "Optional[Message]":
    """What is missing for the build of an environment; most often it is there, and nothing is loaded."""
    if lock.get("kind") != "managed" or os.path.exists(root.environment(str(lock["digest"])) + ".json"):
        return None
    from .environments.supplies import lacking  # noqa: PLC0415

    return lacking(root, lock, everything)


def _status(talk: Talk, request: Message, body: bytes) -> Message:
    from .starters.starter import statuses  # noqa: PLC0415

    return {"ok": True, "runs": statuses(talk.root, [check_run_id(str(name)) for name in request["runs"]])}


def _built(talk: Talk, request: Message, body: bytes) -> Message:
    from .environments.ahead import built  # noqa: PLC0415

    return built(talk.root, request)


def _news(talk: Talk, request: Message, body: bytes) -> Message:
    from .serve import News  # noqa: PLC0415

    news = News(talk.run(request), {str(name): int(offset) for name, offset in request["offsets"].items()})
    wait = float(request.get("wait", 0))
    if wait > 0:
        news.wait(min(wait, LONGEST_WAIT), lambda seconds: _pause(talk, seconds))
    answer: Message = dict(news.standing(), ok=True, unwritten=news.unwritten())
    for name, data in news.parts(min(int(request["limit"]), CHUNK)):
        _send_part(talk, {"name": name}, data, bool(request.get("pack")))
    return dict(answer, pending=news.pending)


def _pause(talk: Talk, seconds: float) -> bool:
    _reap()
    return talk.pipe.ready(seconds)


def _send_part(talk: Talk, facts: Message, data: bytes, pack: bool) -> None:
    if pack and len(data) > 1024:
        import zlib  # noqa: PLC0415

        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            talk.pipe.send(dict(facts, more=True, packed=True), packed)
            return
    talk.pipe.send(dict(facts, more=True), data)


def _file(talk: Talk, request: Message, body: bytes) -> Message:
    from .serve import check_name, read_plain  # noqa: PLC0415

    name = str(request["name"])
    check_name(name)
    path = os.path.join(talk.run(request).path, name)
    data = read_plain(path, int(request.get("offset", 0)), min(int(request["limit"]), CHUNK))
    talk.pipe.send({"more": True}, data)
    return {"ok": True}


def _outputs(talk: Talk, request: Message, body: bytes) -> Message:
    from .serve import read_outputs  # noqa: PLC0415

    files = [[str(path), int(offset), int(size)] for path, offset, size in request["files"]]
    for index, data in read_outputs(talk.run(request), files):
        _send_part(talk, {"file": index}, data, bool(request.get("pack")))
    return {"ok": True}


def _code(talk: Talk, request: Message, body: bytes) -> Message:
    """A whole upload: manifest, answer what is missing, blobs, answer."""
    from .shared.store_lock import relying_on_store  # noqa: PLC0415

    with relying_on_store(talk.root):
        return _receive(talk, request)


def _receive(talk: Talk, request: Message) -> Message:
    from .receive import Upload  # noqa: PLC0415

    root = talk.root
    if request.get("parcel"):  # packages
        from .environments.supplies import incoming  # noqa: PLC0415

        root = incoming(talk.root)
    upload = Upload(root, str(request["digest"]))
    plan = upload.plan(request, _bodies(talk))
    if not plan["ok"] or not plan["base"]:
        return plan
    talk.pipe.send(dict(plan, more=True))
    blobs = _bodies(talk)
    try:
        upload.take(lambda: next(blobs, None), plan["have"])
    except OSError as error:
        talk.pipe.send({"more": True, "stop": True})  # the client may be in the middle of gigabytes
        for _ in blobs:
            pass
        return refusal(of_os_error(error, talk.root.path))
    for _ in blobs:
        pass
    return {"ok": True}


def _packages(talk: Talk, request: Message, body: bytes) -> Message:
    """What came as code is packages."""
    from .environments.supplies import keep  # noqa: PLC0415
    from .present import check_digest  # noqa: PLC0415

    keep(talk.root, check_digest(str(request["digest"])), [(str(n), check_digest(str(s))) for n, s in request["files"]])
    return {"ok": True}


def _image(talk: Talk, request: Message, body: bytes) -> Message:
    from .images import ask  # noqa: PLC0415

    return ask(request)


def _bodies(talk: Talk) -> "Iterator[bytes]":
    """Bodies of the client's frames up to the one that says that it was the last."""
    while True:
        message, body = talk.pipe.receive()
        if message.get("packed"):
            from .shared.frames import inflate  # noqa: PLC0415

            body = inflate(body)
        if body:
            yield body
        if not message.get("more"):
            return


def _facts(talk: Talk, request: Message, body: bytes) -> Message:
    from .facts import gather  # noqa: PLC0415

    return {
        "ok": True,
        "facts": gather(
            talk.root.path, python=request.get("python"), reach=request.get("reach"), named=bool(request.get("named"))
        ),
    }


def _gpus(talk: Talk, request: Message, body: bytes) -> Message:
    from .gpus.report import gather  # noqa: PLC0415

    return {"ok": True, "gpus": gather(talk.root)}


def _doctor(talk: Talk, request: Message, body: bytes) -> Message:
    from .gpus.doctor import examine  # noqa: PLC0415

    return {
        "ok": True,
        "found": examine(talk.root, request.get("python"), request.get("container"), bool(request.get("managed"))),
    }


def _spark(talk: Talk, request: Message, body: bytes) -> Message:
    from .spark.ahead import look  # noqa: PLC0415

    return look(request)


def _key(talk: Talk, request: Message, body: bytes) -> Message:
    from . import keys  # noqa: PLC0415

    change = {"add": keys.add, "remove": keys.remove}[request["action"]]
    return {"ok": True, "changed": change(str(request["line"]))}


def _mounts(talk: Talk, request: Message, body: bytes) -> Message:
    from .mounts import survey  # noqa: PLC0415

    return survey(talk.root.path, os.path.expanduser("~"), [str(path) for path in request.get("paths", ())])


def _keeping(talk: Talk, request: Message, body: bytes) -> Message:
    from . import space  # noqa: PLC0415

    return space.ASKED[request["do"]](talk.root, request)


def _fetched(talk: Talk, request: Message, body: bytes) -> Message:
    from .clients import acknowledge  # noqa: PLC0415

    return acknowledge(talk.run(request), str(request["client"]), int(request["log"]))


def _leave(talk: Talk, request: Message, body: bytes) -> Message:
    from .clients import leave  # noqa: PLC0415

    leave(talk.root, str(request["client"]))
    return {"ok": True}


def _purging(talk: Talk, request: Message, body: bytes) -> Message:
    from . import keys, purge  # noqa: F401, PLC0415 - keys may be asked for next, when there is nothing to load it from

    return purge.ASKED[request["do"]](talk.root, request)


def _environments(talk: Talk, request: Message, body: bytes) -> Message:
    from .environments import retire, stock  # noqa: PLC0415

    asked = {"environments": stock.every, "environment": stock.one, "environments-remove": retire.remove}
    return asked[request["do"]](talk.root, request)


HANDLERS: "Dict[str, Callable[[Talk, Message, bytes], Message]]" = {
    "hello": _hello,
    "start": _verb,
    "build": _verb,
    "built": _built,
    "adopt": _verb,
    "cancel": _verb,
    "status": _status,
    "news": _news,
    "file": _file,
    "outputs": _outputs,
    "code": _code,
    "packages": _packages,
    "image": _image,
    "facts": _facts,
    "gpus": _gpus,
    "gpu doctor": _doctor,
    "spark": _spark,
    "key": _key,
    "mounts": _mounts,
    "linger": _keeping,
    "space": _keeping,
    "free": _keeping,
    "survey": _purging,
    "purge": _purging,
    "purge bare": _purging,
    "fetched": _fetched,
    "leave": _leave,
    "environments": _environments,
    "environment": _environments,
    "environments-remove": _environments,
}


def answer(talk: Talk, request: Message, body: bytes) -> Message:
    """Do what is asked. What goes wrong with one request does not end the conversation."""
    try:
        handler = HANDLERS.get(str(request.get("do")))
        if handler is None:
            return refusal(failure(AGENT_ERROR, "this version does not support %a" % request.get("do")))
        return completed(handler(talk, request, body))
    except FrameError:
        raise  # nobody is there to be answered, or nobody knows where the next message begins
    except OSError as error:
        return refusal(of_os_error(error, talk.root.path))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ImportError) as error:
        return refusal(failure(AGENT_ERROR, "%s: %s" % (type(error).__name__, error)))


def _reap() -> None:
    """Supervisors that have ended: we started them, so nobody else can bury them."""
    try:
        while machine.FORKS and os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _get_ready(request: Message) -> None:
    """Load what the client says it will ask for, while it is busy with other things."""
    soon = request.get("soon") or ()
    if "start" in soon:
        from . import present, verbs  # noqa: F401, PLC0415
        from .shared import store_lock  # noqa: F401, PLC0415
    if "container" in soon:
        from . import container  # noqa: F401, PLC0415


def main(argv: "list[str]") -> int:
    root = Root(argv[2] if len(argv) > 2 else os.path.join(os.path.expanduser("~"), ".mlw"))
    os.write(1, b"\nMLW-AGENT " + argv[1].encode("ascii") + b"\n")
    pipe = Pipe(0, 1)
    talk = Talk(root, pipe)
    try:
        while True:
            request, body = pipe.receive()
            pipe.send(answer(talk, request, body))
            _reap()
            _get_ready(request)
    except Closed:
        return 0
    except FrameError as error:
        sys.stderr.write("mlw agent: %s\n" % error)
        return 1
