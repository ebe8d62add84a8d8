"""Attach and detach machines: use cases behind ``mlw computetarget attach|detach|update|reset-key``."""
