"""From the bytes of a GGUF model to text."""
