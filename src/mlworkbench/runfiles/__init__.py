"""Run files: download outputs, promote assets, restore code, bundle diagnostics, and clean up."""
