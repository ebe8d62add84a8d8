"""Former name of ``solve_request``, kept for plugins until version 1.0."""

from .solve_request import Settled, Site

__all__ = ["Settled", "Site"]
