"""minfer-serve: an OpenAI-compatible server."""
