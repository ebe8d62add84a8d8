"""``mlw doctor``: collect facts about this machine, then diagnose them. Changes nothing and uses no network."""
