"""How a failed Spark run ended, and why: the log and Spark's own account of it, in one line. Loaded at a failure."""

from __future__ import annotations

from .. import endings
from ..cause import explain, read_tail, signal_name
from .reasons import MEMORY, last_error, last_words, memory_error, own_words, said_by_java

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple

    from ..folder import RunFolder
    from .application import Application

    Facts = Dict[str, Any]

CANNOT_START = 78  # of inrun/mlworkbench/_spark, whose last line then says why
SAYS = "mlw: "
_LENGTH = 800
_SIGNALLED = 128  # and more: how Spark tells of a signal that ended the Python beside it
_ENDED, _KILLED = (1, 2, 15), (4, 6, 7, 8, 9, 11)
_GATEWAY = "py4j.protocol.Py4J"  # Python's word for whatever happened in Java
_NOTHING = "exit code "
_FILE = "aml_config/spark_dependencies.yml"


def judge(
    run: RunFolder, ended: Facts, reason: str, application: Application, mask: Callable[[str], str]
) -> Tuple[str, str]:
    """``reason``: what the log says by itself. Without the log (its secrets are not known) Spark's account is left."""
    text = mask(read_tail(run.log))
    said = last_words(text)
    if ended["code"] == CANNOT_START and said.startswith(SAYS):
        return endings.COULD_NOT_START, said[len(SAYS) :][:_LENGTH]
    failure = dict(application.data["failure"] or {})
    failure["reason"] = mask(failure.get("reason") or "")
    words = _lost(ended, application, text) or _why(run, ended, text, failure) or reason
    words = words.replace(run.work + "/", "")[:_LENGTH]
    return endings.FAILED, words + _memory(text, failure, application)


def _lost(ended: Facts, application: Application, text: str) -> Optional[str]:
    """The driver did not end by itself: its JVM, or the Python beside it, was killed."""
    number, code = ended["signal"], ended["code"]
    if number is None and (code is None or code - _SIGNALLED not in (*_ENDED, *_KILLED)):
        return None
    if number is None and not explain(own_words(text), "", "", code, None).startswith(_NOTHING):
        return None  # the script says itself why it exits so
    stages = application.progress()["stages"]
    noun = "stage" if stages["total"] == 1 else "stages"
    done = "; %d of %d %s completed" % (stages["done"], stages["total"], noun) if stages["total"] else ""
    killed = number if number is not None else code - _SIGNALLED
    of_java = number is not None or killed in _ENDED  # asked to end, Java exits by itself
    what = "the Spark driver was lost" if of_java else "the Python process of the Spark driver was lost"
    return "%s: killed by signal %d (%s)%s" % (what, killed, signal_name(killed), done)


def _why(run: RunFolder, ended: Facts, text: str, failure: Facts) -> Optional[str]:
    """The traceback of the script, and what Spark says where that tells only that Java failed."""
    said: str = failure["reason"]
    own = explain(own_words(text), run.work, "the driver's Python", ended["code"], None) if text else ""
    if own and not own.startswith((_GATEWAY, _NOTHING)):
        return own + _where(failure) if said and own.startswith(said) else own
    if said and own.startswith(_GATEWAY):
        if not said.startswith(("Job ", "Stage ", "Task ", "[")):  # an exception of Python code
            return said + _where(failure)
        return own + "; Spark: " + said
    more = said_by_java(text) if own.startswith(_GATEWAY) else last_error(text) or said
    return own + "; Spark: " + more if own and more else own or said or None


def _where(failure: Facts) -> str:
    if failure.get("stage") is None:
        return ""
    return ", in a task of stage %d%s" % (failure["stage"], " (%s)" % failure["name"] if failure.get("name") else "")


def _memory(text: str, failure: Facts, application: Application) -> str:
    """Whose memory ended, and the setting that gives more."""
    if MEMORY in failure["reason"] and application.data["seen"]:
        return "; an executor ran out of memory; hint: raise spark.executor.memory in " + _FILE
    found = memory_error(text)
    if not found:
        return ""
    return "; the driver ran out of memory (%s); hint: raise spark.driver.memory in %s" % (found, _FILE)
