"""Former name of ``local_host``, kept for plugins until version 1.0."""

from .local_host import LocalHost

__all__ = ["LocalHost"]
