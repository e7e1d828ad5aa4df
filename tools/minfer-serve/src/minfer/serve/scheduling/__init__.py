"""Between the requests of clients and the one thread that runs the model."""
