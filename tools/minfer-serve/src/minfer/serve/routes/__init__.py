"""One file for each group of paths; minfer.serve.app lists them all."""
