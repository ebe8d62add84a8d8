"""The original's import names until August 2017."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
