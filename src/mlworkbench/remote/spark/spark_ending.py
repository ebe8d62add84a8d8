"""How a failed Spark run ended, and why: the log and Spark's own account of it, in one line. Loaded at a failure."""

from __future__ import annotations

import os

from ..cause import exception_in, explain, read_tail, signal_name
from ..shared import endings
from ..shared.failure import checked, failure, text_of
from ..shared.files import read_json
from .reasons import MEMORY, last_error, memory_error, own_words, said_by_java

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple

    from ..shared.failure import Failure, Reason
    from ..shared.layout import RunFolder
    from .application import Application

    Facts = Dict[str, Any]

CANNOT_START = 78  # of inrun/mlworkbench/_spark, which then writes why
REFUSAL = "failure.json"
_MEMORY = "spark-out-of-memory"  # code
_LENGTH = 800
_SIGNALLED = 128  # and more: how Spark tells of a signal that ended the Python beside it
_ENDED, _KILLED = (1, 2, 15), (4, 6, 7, 8, 9, 11)
_GATEWAY = "py4j.protocol.Py4J"  # Python's word for whatever happened in Java
_FILE = "aml_config/spark_dependencies.yml"


def judge(
    run: RunFolder, ended: Facts, reason: Reason, application: Application, mask: Callable[[str], str]
) -> Tuple[str, Reason]:
    """``reason``: what the log says by itself. Without the log (its secrets are not known) Spark's account is left."""
    refused = _refused(run, mask) if ended["code"] == CANNOT_START else None
    if refused:
        return endings.COULD_NOT_START, refused
    text = mask(read_tail(run.log))
    account = dict(application.data["failure"] or {})
    account["reason"] = mask(account.get("reason") or "")
    own = exception_in(own_words(text), run.work, "the driver's Python") if text else None
    words = _lost(ended, application, text) or _why(own, ended, text, account) or text_of(reason)
    known = own or checked(reason) or failure("script-failed", "")
    known["message"] = words.replace(run.work + "/", "")[:_LENGTH]
    return endings.FAILED, _with_memory(known, text, account, application)


def _refused(run: RunFolder, mask: Callable[[str], str]) -> Optional[Failure]:
    """Why the program before Spark did not start it."""
    known = checked(read_json(os.path.join(run.spark, REFUSAL)))
    if known is None:
        return None
    message, hint = mask(known["message"])[:_LENGTH], mask(known["hint"] or "")[:_LENGTH]
    return failure(known["code"], message, hint or None, known["explain"]) if message else None


def _lost(ended: Facts, application: Application, text: str) -> Optional[str]:
    """The driver did not end by itself: its JVM, or the Python beside it, was killed."""
    number, code = ended["signal"], ended["code"]
    if number is None and (code is None or code - _SIGNALLED not in (*_ENDED, *_KILLED)):
        return None
    if number is None and exception_in(own_words(text), "", ""):
        return None  # the script says itself why it exits so
    stages = application.progress()["stages"]
    noun = "stage" if stages["total"] == 1 else "stages"
    done = "; %d of %d %s completed" % (stages["done"], stages["total"], noun) if stages["total"] else ""
    killed = number if number is not None else code - _SIGNALLED
    of_java = number is not None or killed in _ENDED  # asked to end, Java exits by itself
    what = "the Spark driver was lost" if of_java else "the Python process of the Spark driver was lost"
    return "%s: killed by signal %d (%s)%s" % (what, killed, signal_name(killed), done)


def _why(own: Optional[Failure], ended: Facts, text: str, account: Facts) -> Optional[str]:
    """The traceback of the script, and what Spark says where that tells only that Java failed."""
    said: str = account["reason"]
    words = text_of(own or explain(own_words(text), "", "", ended["code"], None)) if text else ""
    java = own is not None and words.startswith(_GATEWAY)
    if own and not java:
        return words + _where(account) if said and words.startswith(said) else words
    if said and java:
        if not said.startswith(("Job ", "Stage ", "Task ", "[")):  # an exception of Python code
            return said + _where(account)
        return words + "; Spark: " + said
    more = said_by_java(text) if java else last_error(text) or said
    return words + "; Spark: " + more if words and more else words or said or None


def _where(account: Facts) -> str:
    if account.get("stage") is None:
        return ""
    return ", in a task of stage %d%s" % (account["stage"], " (%s)" % account["name"] if account.get("name") else "")


def _with_memory(known: Failure, text: str, account: Facts, application: Application) -> Failure:
    """Whose memory ended, and the setting that gives more."""
    if MEMORY in account["reason"] and application.data["seen"]:
        what, setting = "an executor ran out of memory", "spark.executor.memory"
    else:
        found = memory_error(text)
        if not found:
            return known
        what, setting = "the driver ran out of memory (%s)" % found, "spark.driver.memory"
    message, hint = "%s; %s" % (known["message"], what), "raise %s in %s" % (setting, _FILE)
    return failure(_MEMORY, message, hint, known["explain"])
