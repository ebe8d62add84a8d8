"""Import names that Azure ML Workbench used until August 2017."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
