"""Where commands and files go: this machine, or one reached by SSH."""
