# Two commands set everything up on a fresh machine:
#   make demo   makes .venv, installs levelport and its laboratory, teleports on embedded problems, writes pictures to demo/
#   make test   makes .venv, installs the development tools, then lints, type-checks and tests
# make lowest does the same with the oldest versions that pyproject.toml allows, in an environment of its own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOWEST ?= .venv-lowest
CLIENTS ?= .venv-integrations
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

# The problems are small and two processes share two cores: more threads only wait for each other.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit plain roundings mutation smoke lowest integrations dist fuzz docs bench format clean

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch goes first and alone, so that the constraint decides which build is fetched.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "installing torch ..."
	$(PIP) torch
	@touch $@

$(VENV)/.demo: pyproject.toml lab/pyproject.toml constraints.txt $(VENV)/.torch
	@echo "installing levelport and its laboratory ..."
	$(PIP) --editable . --editable lab
	@touch $@

$(VENV)/.dev: pyproject.toml lab/pyproject.toml constraints.txt $(VENV)/.torch
	@echo "installing levelport, its laboratory and the development tools ..."
	$(PIP) --editable '.[dev]' --editable 'lab[test]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## teleport on embedded problems, pictures in demo/
	$(BIN)/levelport demo --out demo

test: lint types smoke unit plain ## lint, type-check, test on two code paths, run every figure of the paper in miniature

lint: $(VENV)/.dev ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy, on the snippets of README and tutorial as well
	$(BIN)/mypy
	$(BIN)/python tools/type_snippets.py build/snippets
	$(BIN)/mypy --config-file= build/snippets

unit: $(VENV)/.dev ## pytest on two processes
	$(BIN)/python -m pytest -n 2 --dist worksteal

# What rounding can decide, once more: on torch's code path for processors without vector units, and with derivatives
# disturbed in their last bits; tests that compare bits are not disturbed. Examples, ranks and leaks are about processes
# and memory, and take long.
NUMERICAL := tests/solvers tests/objectives tests/optim tests/goals lab/tests/library lab/tests/functions
UNMOVED := tests/optim/test_examples.py tests/optim/test_optim_distributed.py tests/solvers/test_leaks.py \
	tests/solvers/test_vectors_held.py
ROUNDED := $(BIN)/python -m pytest -n 2 --dist worksteal $(NUMERICAL) $(UNMOVED:%=--ignore %)

plain: $(VENV)/.dev ## the numerical tests on torch's plain code path, with artificial roundings
	ATEN_CPU_CAPABILITY=default $(ROUNDED) --roundings 1

roundings: $(VENV)/.dev ## the numerical tests under artificial roundings with three seeds (minutes; not part of the test)
	for seed in 1 2 3; do $(ROUNDED) lab/tests/theory --roundings $$seed || exit 1; done

mutation: $(VENV)/.dev ## would the tests notice a changed line? 200 mutants (an hour; not part of the test)
	$(PIP) coverage mutmut
	$(BIN)/python tools/mutation.py map
	$(BIN)/python tools/mutation.py run
	$(BIN)/python tools/mutation.py report

# Old versions warn of what newer ones of their own dependencies deprecate: no error here. torch's own index has the
# builds without CUDA.
lowest: ## the suite with the lowest versions that pyproject.toml allows
	mkdir -p build
	$(PYTHON) tools/lower_bounds.py > build/lowest.txt
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip --disable-pip-version-check install --quiet --constraint build/lowest.txt torch \
		--extra-index-url https://download.pytorch.org/whl/cpu
	$(LOWEST)/bin/pip --disable-pip-version-check install --quiet --constraint build/lowest.txt --editable '.[test]' --editable 'lab[test]'
	$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal -W default::DeprecationWarning \
		-W default::FutureWarning -W default::ResourceWarning

# The frameworks warn of each other's deprecations: no error here.
integrations: ## the matrix of frameworks, in an environment of its own (minutes; not part of the test)
	test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip --disable-pip-version-check install --quiet --constraint constraints.txt torch
	$(CLIENTS)/bin/pip --disable-pip-version-check install --quiet --constraint constraints.txt --editable '.[integrations]' --editable lab
	$(CLIENTS)/bin/python -m pytest -W default tests/integrations

fuzz: $(VENV)/.dev ## 10 000 random functions and arguments against the guarantee (minutes; not a test)
	$(BIN)/python tools/fuzz.py --cases 10000 --jobs 2

# Library first, then the laboratory; the tests inside the unpacked source distribution show that it is complete.
dist: $(VENV)/.dev ## build both distributions, check them, try them in empty environments (minutes)
	$(PIP) build twine
	rm -rf dist build/sdist && mkdir -p build/sdist
	$(BIN)/python -m build --outdir dist/levelport .
	$(BIN)/python -m build --outdir dist/levelport-lab lab
	$(BIN)/python -m twine check --strict dist/*/*
	tar -xzf dist/levelport/*.tar.gz -C build/sdist --strip-components 1
	cd build/sdist && $(abspath $(BIN))/python -m pytest -q tests/objectives
	$(BIN)/python tools/try_distributions.py --torch "$$(grep ^torch== constraints.txt)" dist

smoke: $(VENV)/.dev ## every figure of the paper on tiny data
	rm -rf build/smoke
	$(BIN)/levelport reproduce all --tier smoke --jobs 2 --out build/smoke

docs: $(VENV)/.dev ## the site in build/site: checks the pictures, runs the gallery, then builds strictly
	$(BIN)/python tools/draw_pictures.py --check
	$(BIN)/python tools/build_gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(VENV)/.dev ## solvers compared (most of an hour; not a test)
	$(BIN)/levelport bench solvers --report docs/results

format: $(VENV)/.dev ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that was made
	rm -rf $(VENV) $(LOWEST) $(CLIENTS) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
