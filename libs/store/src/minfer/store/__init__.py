"""Which models are on this machine, and which one a name means."""
