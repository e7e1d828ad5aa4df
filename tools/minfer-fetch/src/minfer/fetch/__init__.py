"""minfer-fetch: find, download, verify and list models."""
