"""The JSON of requests and answers. Nothing here knows of sockets or of the engine's thread."""
