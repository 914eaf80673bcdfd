VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.stamp

# More than one thread makes the solvers slower at these sizes, and the timings noisy.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.PHONY: help setup test quick lint docs bench ratios bench-save bench-compare asv constraints clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP)  ## create .venv with the project, its tools and the solver packages
$(STAMP): pyproject.toml constraints.txt $(wildcard tools/*.sh solvers/_*_kernel/* solvers/_library/*)
	@tools/setup.sh
	@touch $@

lint: setup  ## check style, types and the direction of imports
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-logo

# One process more than cores, because tests also wait. A group of tests shares a process. Benchmarks are left out: their
# times mean nothing while other tests run.
PARALLEL := -n $(shell expr $$(nproc) + 1) --dist loadgroup -p no:benchmark

test: lint  ## run lint, then all tests in parallel on all cores
	$(PYTHON) -m pytest $(PARALLEL)

quick: setup  ## run the fast tests: no slow ones, no browser, no network, no solver packages
	$(PYTHON) -m pytest $(PARALLEL) -m "not slow and not browser and not network and not solver"

# autosummary keeps the pages of names that are no longer public, so they are written anew.
docs: setup  ## build the documentation site into docs/_build/html; warnings and broken links are errors
	rm -rf docs/_build docs/reference/api
	$(PYTHON) -m sphinx -M html docs docs/_build -W --keep-going -n -q
	@echo "docs/_build/html/index.html"

bench: setup  ## run or resume the default suite into results.db, and write report.html
	$(VENV)/bin/qcqpbench run default -o results.db
	$(VENV)/bin/qcqpbench report results.db -o report.html

ratios: setup  ## run tests/benchmarks and print ratios of times within the run
	$(PYTHON) -m pytest -n 0 tests/benchmarks --benchmark-only

bench-save: setup  ## run tests/benchmarks and save the times in .benchmarks
	$(PYTHON) -m pytest -n 0 tests/benchmarks --benchmark-only --benchmark-autosave

bench-compare: setup  ## run tests/benchmarks and fail if a minimum is 20 % above that of the last saved run
	@ls .benchmarks/*/*.json >/dev/null 2>&1 || { echo "no saved run to compare with: 'make bench-save' saves one"; exit 1; }
	$(PYTHON) -m pytest -n 0 tests/benchmarks --benchmark-only --benchmark-compare --benchmark-compare-fail=min:20%

# asv stores facts about the machine in the home directory. ASV=--quick runs everything once.
asv: setup  ## measure the current commit with asv, in .venv, and write .asv/html
	HOME=$(CURDIR)/.asv $(VENV)/bin/asv machine --yes >/dev/null
	HOME=$(CURDIR)/.asv $(VENV)/bin/asv run --environment existing:$(CURDIR)/$(PYTHON) --set-commit-hash $$(git rev-parse HEAD) $(ASV)
	HOME=$(CURDIR)/.asv $(VENV)/bin/asv publish

# A separate environment, so that packages installed by hand are not pinned.
constraints:  ## pin the newest versions of all packages in constraints.txt
	VENV=.venv-constraints CONSTRAINTS=/dev/null tools/setup.sh
	.venv-constraints/bin/python -m pip freeze --all --exclude-editable --exclude pip > .venv-constraints/pins
	mv .venv-constraints/pins constraints.txt
	rm -rf .venv-constraints

clean:  ## remove .venv, caches and build products
	rm -rf .venv .venv-constraints .*_cache build dist *.egg-info docs/_build docs/reference/api
	rm -f solvers/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +
