# Two commands set everything up on a fresh machine:
#   make demo   makes .venv, installs levelport, teleports on embedded problems, writes pictures to demo/
#   make test   makes .venv, installs the development tools, then lints, type-checks and tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit smoke bench format clean

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch goes first and alone, so that the constraint decides which build is fetched.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "installing torch ..."
	$(PIP) torch
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "installing levelport ..."
	$(PIP) --editable '.[experiments]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "installing levelport and its development tools ..."
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## teleport on embedded problems, pictures in demo/
	$(BIN)/levelport demo --out demo

test: lint types smoke unit ## lint, type-check, test, and run every figure of the paper in miniature

lint: $(VENV)/.dev ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy
	$(BIN)/mypy

unit: $(VENV)/.dev ## pytest on two processes
	$(BIN)/python -m pytest -n 2 --dist worksteal

smoke: $(VENV)/.dev ## every figure of the paper on tiny data
	rm -rf build/smoke
	$(BIN)/levelport reproduce all --tier smoke --jobs 2 --out build/smoke

bench: $(VENV)/.dev ## solvers against SciPy and the published settings (minutes; not a test)
	$(PIP) --editable '.[bench]'
	$(BIN)/python -m levelport.lab.bench.subproblem

format: $(VENV)/.dev ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that was made
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
