"""`python -m minfer.fetch`: what minfer.store starts when a model has to be fetched."""

from minfer.fetch.cli import main

if __name__ == "__main__":
    main()
