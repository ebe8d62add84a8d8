"""Resources that a run must hold before it starts, such as GPUs; ``resource.py`` defines their interface."""
