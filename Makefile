# Two commands do all the set-up: `make demo` and `make test`. The rest is for working on ML Workbench itself.
.DEFAULT_GOAL := help
.PHONY: help demo demo-docker test quick e2e check docs test-loaded bench soak fuzz clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD_DOCS := env NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
QUICK := tests/unit tests/fuzz tests/contract tests/supervisor tests/golden
# Tests wait for processes and sockets: end-to-end tests a third of the time, supervisor tests half of it.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() * 2)')
E2E_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(max(2, os.cpu_count() * 3 // 2))')
# Set in some shells; they hide bugs that users would meet.
unexport PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONPATH

help:
	@echo "make demo        run a sample project on this machine"
	@echo "make demo-docker try a target with SSH and Docker, simulated on this machine"
	@echo "make test        run all checks and tests"
	@echo "make test-loaded run all tests under CPU load"
	@echo "make quick       run unit, contract, and supervisor tests"
	@echo "make e2e         run end-to-end tests"
	@echo "make check       run ruff, mypy --strict, architecture and documentation checks"
	@echo "make docs        build the documentation: build/site/index.html"
	@echo "make bench       run benchmarks; writes benchmarks/results"
	@echo "make soak        run the soak test with random kills; writes benchmarks/results/soak.txt"
	@echo "make fuzz        run 1,000,000 fuzz inputs; failing inputs go to build/fuzz"

$(BIN)/mlw: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "error: $(PYTHON) is older than 3.10"; echo "hint: make PYTHON=/path/to/a/newer/python $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "error: $(PYTHON) cannot create virtual environments"; echo "hint: on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/mlw
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(BIN)/mlw
	@sh scripts/demo $(BIN)/mlw

demo-docker: $(BIN)/mlw
	@$(BIN)/python scripts/demo-docker $(BIN)/mlw

# One session for all tests: while end-to-end tests wait, others use the processors.
test: check
	@sh scripts/test-tools
	$(BIN)/python -m tests $(QUICK) tests/e2e -n $(WORKERS) --dist worksteal

# Tests wait for conditions, not for times: their result is the same on a machine that does other things, too.
test-loaded: $(VENV)/.dev
	@sh scripts/beside-load 4 $(MAKE) test

quick: $(VENV)/.dev
	@sh scripts/test-tools
	$(BIN)/python -m tests $(QUICK) -n $(WORKERS) --dist worksteal

e2e: $(VENV)/.dev
	@sh scripts/test-tools
	$(BIN)/python -m tests tests/e2e -n $(E2E_WORKERS) --dist worksteal

docs: $(VENV)/.dev
	$(BUILD_DOCS)

check: $(VENV)/.dev
	@sh scripts/in-parallel \
	  '$(BIN)/mypy' \
	  '$(BIN)/python -m pytest tests/test_architecture.py tests/test_naming.py tests/test_own_messages.py tests/test_docs.py' \
	  '$(BUILD_DOCS)' \
	  '$(BIN)/ruff check .' \
	  '$(BIN)/ruff format --check .'

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

soak: $(VENV)/.dev
	$(BIN)/python benchmarks/soak.py

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz.run

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
