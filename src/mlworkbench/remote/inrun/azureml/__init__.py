"""The original's import names, for scripts written for it. A really installed azureml.core still imports."""

import os
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
# Searched last: azureml.core is ours only where no other one is installed.
__path__.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_otherwise"))
