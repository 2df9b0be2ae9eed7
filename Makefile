# From a clean clone, `make demo` and `make test` do all their set-up themselves: python3, pip and a
# package index are enough. `make` alone lists the targets.

PYTHON ?= python3
VENV ?= .venv
# 0.28.0, 0.30.0, 0.31.0 and 0.32.0 run on a CPU; `none` leaves the engine out (enough for test-fast).
VLLM ?= 0.32.0
PYTEST_ARGS ?=

BIN := $(VENV)/bin
# No card is needed here; what needs one is started by hand, on a machine that has it.
NO_CARD := not gpu

.DEFAULT_GOAL := help
.PHONY: help env demo test test-fast lint reference versions clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "PYTHON=$(PYTHON)  VENV=$(VENV)  VLLM=$(VLLM)  PYTEST_ARGS=$(PYTEST_ARGS)"

env: ## make the virtual environment with the engine (some minutes once, nothing afterwards)
	@$(PYTHON) tools/setup_env.py --venv "$(VENV)" --vllm "$(VLLM)"

demo: env ## serve a tiny model with profiles of its own, and show what was chosen
	@"$(BIN)/python" -m tools.demo

test: lint ## lint and all tests, those with a real engine included
	@"$(BIN)/python" -m pytest -m "$(NO_CARD)" $(PYTEST_ARGS)

test-fast: env ## the tests that start no engine
	@"$(BIN)/python" -m pytest -m "$(NO_CARD) and not engine" $(PYTEST_ARGS)

lint: env ## ruff and mypy
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check .
	@"$(BIN)/mypy"

reference: env ## write the pages in .docs/reference and the README's picture anew, from the program itself
	@"$(BIN)/python" -m tools.reference
	@"$(BIN)/python" -m tools.picture

versions: env ## hold the compat table against the wheels of six vLLM versions (a gigabyte of downloads, once)
	@"$(BIN)/python" tools/engine_versions.py

clean: ## remove caches and build outputs (the environment stays: rm -r .venv removes it)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	@find . -path ./.git -prune -o -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
