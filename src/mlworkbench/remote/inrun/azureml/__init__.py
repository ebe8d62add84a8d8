"""Import names of Azure ML Workbench, for scripts that were written for it.

An installed ``azureml.core`` takes precedence.
"""

import os
import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
# Searched last: this azureml.core is used only if no other one is installed.
__path__.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_otherwise"))
