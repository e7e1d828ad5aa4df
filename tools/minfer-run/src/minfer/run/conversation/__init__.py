"""`--cnv`: a conversation in the terminal, or one read from a script."""
