"""`python -m minfer.run`."""

from minfer.run.start import main

if __name__ == "__main__":
    main()
