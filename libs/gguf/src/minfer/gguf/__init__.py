"""Read, write and decode GGUF files."""


class GGUFFile:
    """An open model file."""
