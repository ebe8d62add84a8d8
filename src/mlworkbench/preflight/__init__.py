"""Find problems in dependencies and scripts before a run is submitted to a target."""
