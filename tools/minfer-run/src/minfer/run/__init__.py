"""minfer-run: run a language model in the terminal."""
