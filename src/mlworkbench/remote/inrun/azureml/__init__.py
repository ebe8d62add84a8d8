"""The original's import names, for scripts written for it. A really installed azureml.core still imports."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
