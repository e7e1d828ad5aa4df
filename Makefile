# Everything a developer runs. `make demo` and `make test` need only Python 3.11+, gcc and make.
PYTHON ?= .venv/bin/python
CODE := libs tools tests bench

.PHONY: demo test check fix prove bench proto venv

check:
	$(PYTHON) -m ruff check $(CODE)
	$(PYTHON) -m ruff format --check $(CODE)
	$(PYTHON) -m mypy $(wildcard libs/*/src tools/*/src) tests
	$(PYTHON) -c "from importlinter.cli import lint_imports_command as c; c()"
	$(PYTHON) -m pytest tests/structure

fix:
	$(PYTHON) -m ruff check --fix $(CODE)
	$(PYTHON) -m ruff format $(CODE)

test:
	$(PYTHON) -m pytest -n 2 tests
