"""Packages and Spark settings that the files of a project list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Dependencies:
    """A ``conda_dependencies.yml`` file: the packages that a project needs."""

    name: str = "project_environment"
    channels: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()


@dataclass(frozen=True)
class SparkDependencies:
    """A ``spark_dependencies.yml`` file: settings and packages for the Spark session."""

    configuration: Mapping[str, str] = field(default_factory=dict)
    repositories: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # Maven coordinates, group:artifact:version
