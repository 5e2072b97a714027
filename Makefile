# One way to run each thing; CI calls the same targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Recordings of real robots that "make bench" calibrates, where they are at hand.
DATA ?= ../shared/data
# "make bench ARGS=--quick" takes the same paths at a small budget.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install the tested versions; does nothing the second time

# Installed again only when what is to be installed has changed.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "sbical needs Python 3.11 to 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[inference]" --group dev
	@touch $@

demo: $(STAMP) ## calibrate the shipped servo example on two local workers
	$(BIN)/sbical calibrate servo_pendulum --overwrite

# Two processes, each with modules of its own: tests of one module share what is expensive.
test: $(STAMP) ## run all tests and doctests
	$(BIN)/python -m pytest -n 2 --dist loadscope

lint: $(STAMP) ## check style, types and the layering of modules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

bench: $(STAMP) ## run the benchmarks; the one on real recordings needs DATA=folder
	$(BIN)/python benchmarks/throughput.py --json $(ARGS)
	$(BIN)/python benchmarks/servo_posterior.py --json $(or $(ARGS),--truths 3)
	$(BIN)/python benchmarks/bimodal_posterior.py --json $(ARGS)
	$(BIN)/python benchmarks/training.py --json --quick
	$(BIN)/python benchmarks/misspecification.py --json $(or $(ARGS),--robots 2 --well-specified 4)
	@if [ -d "$(DATA)" ]; then set -x; $(BIN)/python benchmarks/recordings.py --data "$(DATA)" --json $(ARGS); \
	  else echo "no recordings of real robots at '$(DATA)': benchmarks/recordings.py not run (make bench DATA=folder)"; fi
