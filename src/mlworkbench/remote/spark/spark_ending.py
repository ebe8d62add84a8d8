"""Explain in one line why a Spark run failed, based on the log and Spark's events.

This module is imported only after a failure.
"""

from __future__ import annotations

import os

from ..failure_cause import explain_failure, find_exception, read_tail, signal_name
from ..shared import run_endings
from ..shared.atomic_files import read_json
from ..shared.failure import failure, parse_failure, text_of
from .spark_reasons import MEMORY, java_error, last_error, memory_error, script_output

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple

    from ..shared.failure import Failure, Reason
    from ..shared.layout import RunFolder
    from .application import Application

    Facts = Dict[str, Any]

CANNOT_START = 78  # exit code of inrun/mlworkbench/_spark, which writes the reason to REFUSAL
REFUSAL = "failure.json"
_OUT_OF_MEMORY = "spark-out-of-memory"  # failure code
_MAX_LENGTH = 800
_SIGNAL_BASE = 128  # base to which Spark adds the signal that ended the driver's Python process
_TERMINATING, _KILLING = (1, 2, 15), (4, 6, 7, 8, 9, 11)
_PY4J = "py4j.protocol.Py4J"  # prefix of Python exceptions for Java errors
_SETTINGS_FILE = "aml_config/spark_dependencies.yml"


def explain_ending(
    run: RunFolder, exit_facts: Facts, reason: Reason, application: Application, mask: Callable[[str], str]
) -> Tuple[str, Reason]:
    """Return the ending and a reason that includes Spark's events.

    ``reason`` is based on the log alone. ``mask`` returns "" if the secrets are not available: then, neither the
    log nor Spark's messages are used.
    """
    refusal = _read_refusal(run, mask) if exit_facts["code"] == CANNOT_START else None
    if refusal:
        return run_endings.COULD_NOT_START, refusal
    text = mask(read_tail(run.log))
    spark_failure = dict(application.data["failure"] or {})
    spark_failure["reason"] = mask(spark_failure.get("reason") or "")
    script_failure = find_exception(script_output(text), run.work, "the driver's Python") if text else None
    message = (
        _lost_driver(exit_facts, application, text)
        or _explain_failure(script_failure, exit_facts, text, spark_failure)
        or text_of(reason)
    )
    result = script_failure or parse_failure(reason) or failure("script-failed", "")
    result["message"] = message.replace(run.work + "/", "")[:_MAX_LENGTH]
    return run_endings.FAILED, _add_memory_hint(result, text, spark_failure, application)


def _read_refusal(run: RunFolder, mask: Callable[[str], str]) -> Optional[Failure]:
    """Return why ``inrun/mlworkbench/_spark`` did not start Spark, or None if it recorded no reason."""
    refusal = parse_failure(read_json(os.path.join(run.spark, REFUSAL)))
    if refusal is None:
        return None
    message, hint = mask(refusal["message"])[:_MAX_LENGTH], mask(refusal["hint"] or "")[:_MAX_LENGTH]
    return failure(refusal["code"], message, hint or None, refusal["explain"]) if message else None


def _lost_driver(exit_facts: Facts, application: Application, text: str) -> Optional[str]:
    """Describe the loss of the driver if its JVM or its Python process was killed."""
    number, code = exit_facts["signal"], exit_facts["code"]
    if number is None and (code is None or code - _SIGNAL_BASE not in (*_TERMINATING, *_KILLING)):
        return None
    if number is None and find_exception(script_output(text), "", ""):
        return None  # the script's exception explains the exit code
    stages = application.progress()["stages"]
    noun = "stage" if stages["total"] == 1 else "stages"
    done = "; %d of %d %s completed" % (stages["done"], stages["total"], noun) if stages["total"] else ""
    killed = number if number is not None else code - _SIGNAL_BASE
    is_jvm = number is not None or killed in _TERMINATING  # on such a signal, the JVM exits with 128 + signal
    what = "the Spark driver was lost" if is_jvm else "the Python process of the Spark driver was lost"
    return "%s: killed by signal %d (%s)%s" % (what, killed, signal_name(killed), done)


def _explain_failure(
    script_failure: Optional[Failure], exit_facts: Facts, text: str, spark_failure: Facts
) -> Optional[str]:
    """Return the script's exception, with Spark's reason if the exception only reports a Java error."""
    spark_reason: str = spark_failure["reason"]
    message = (
        text_of(script_failure or explain_failure(script_output(text), "", "", exit_facts["code"], None))
        if text
        else ""
    )
    is_java_error = script_failure is not None and message.startswith(_PY4J)
    if script_failure and not is_java_error:
        return (
            message + _describe_stage(spark_failure) if spark_reason and message.startswith(spark_reason) else message
        )
    if spark_reason and is_java_error:
        if not spark_reason.startswith(("Job ", "Stage ", "Task ", "[")):  # an exception in Python code
            return spark_reason + _describe_stage(spark_failure)
        return message + "; Spark: " + spark_reason
    details = java_error(text) if is_java_error else last_error(text) or spark_reason
    return message + "; Spark: " + details if message and details else message or spark_reason or None


def _describe_stage(spark_failure: Facts) -> str:
    if spark_failure.get("stage") is None:
        return ""
    return ", in a task of stage %d%s" % (
        spark_failure["stage"],
        " (%s)" % spark_failure["name"] if spark_failure.get("name") else "",
    )


def _add_memory_hint(result: Failure, text: str, spark_failure: Facts, application: Application) -> Failure:
    """If a process ran out of memory, name that process, and add a hint about its memory setting."""
    if MEMORY in spark_failure["reason"] and application.data["seen"]:
        what, setting = "an executor ran out of memory", "spark.executor.memory"
    else:
        error = memory_error(text)
        if not error:
            return result
        what, setting = "the driver ran out of memory (%s)" % error, "spark.driver.memory"
    message, hint = "%s; %s" % (result["message"], what), "raise %s in %s" % (setting, _SETTINGS_FILE)
    return failure(_OUT_OF_MEMORY, message, hint, result["explain"])
