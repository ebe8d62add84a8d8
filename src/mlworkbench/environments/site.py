"""Former name of ``selection_request``, kept for plugins until version 1.0."""

from .selection_request import Settled, Site

__all__ = ["Settled", "Site"]
