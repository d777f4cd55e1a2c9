# make demo: set up and run the main job.   make test: set up and run the checks.
# make docs: builds the site into site/, to be read offline from site/index.html.
# make test-slow: the tests that take long, and that make test leaves out.
# make fuzz MINUTES=10: draws new cases for the property tests until the minutes are over, and keeps those that fail.
# make test-triton: all interpreted tests of the kernels, of which make test runs the core.
# make test-engines: the tests on Dask, Ray, Spark (which needs Java 17) and an object store.
# make test-lowest: most tests with the lowest versions that pyproject.toml allows.   make build: wheel and sdist, checked.
PYTHON ?= python3
BIN := .venv/bin
# One more than there are cores: many tests wait for other processes.
JOBS := $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

MINUTES ?= 10
# Compiled modules are kept, whatever the environment says: compiling them again takes every new process 6 seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test types kernels tests docs test-slow fuzz test-triton test-engines test-lowest build bench clean

demo: .venv/demo
	$(BIN)/dwac demo

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --jobs 3 types kernels tests

# mypy keeps one core busy for more than a minute: beside the compiler and the tests. It makes little garbage, and looking
# for it takes a fifth of its time.
types: .venv/test
	$(BIN)/python -c "import gc; gc.disable(); gc.enable = lambda: None; from mypy.__main__ import console_entry as check; check()"

# One process: each would import and collect for as long as it tests.
kernels: .venv/compiled
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 $(BIN)/pytest -n0 -q -k "(fused or place_in_the_batch and 16 or triton and gaussian and (oracle or few_outliers or closed_form)) \
		and not every_width and not any_ and not 64-50 and not 7-1000 and not 3-50 and not 1-40-16 and not False-1 and not 130-257 and not 65-130 and not 257-33 \
		and not True-1-2-17 and not True-14-2-17 and not (130-3 and not (ids and weights))" tests/engine tests/nn/test_loss.py

tests: .venv/compiled
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --durations=20

# Much data, many fits, other processes or a browser.
test-slow: .venv/slow
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) -m slow

fuzz: .venv/test
	$(BIN)/python -m tools.fuzz $(MINUTES)

test-triton: .venv/test
	TRITON_INTERPRET=1 $(BIN)/pytest -k "(fused or place_in_the_batch or triton and (gaussian or outliers) and not norms and not rounding) and not every_width" \
		tests/engine tests/nn/test_loss.py

# A warning ends it: a broken link, a page that nobody can find, a docstring that cannot be read. `make test-slow` builds it, too.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Ray and Spark are large (0.7 GB installed): `make test` runs these tests on Dask alone. Here none may be skipped.
test-engines: .venv/engines
	@java -version 2>/dev/null || { echo "Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless"; exit 1; }
	DWAC_ENGINES=all $(BIN)/pytest -n0 -m "" tests/scoring/engines tests/training/test_trainers.py

# The tests that versions of dependencies touch most. Deprecations are those of old packages among new ones.
# torch 2.6 for Linux brings its CUDA libraries: 5 minutes and 6 GB of disk, once. The tests take 6 minutes of
# processor time.
test-lowest: .venv-lowest/installed
	.venv-lowest/bin/python -m pytest -W ignore::DeprecationWarning tests/test_*.py tests/cli tests/encoders tests/engine \
		tests/nn tests/storage tests/explain/test_explanation.py tests/estimator/test_classifier.py \
		tests/estimator/test_persistence.py tests/training/test_checkpoint.py

build: .venv-build/installed
	rm -rf dist
	.venv-build/bin/python -m build
	.venv-build/bin/python -m twine check --strict dist/*

bench: .venv/bench
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.conformal
	$(BIN)/python -m benchmarks.stability
	$(BIN)/python -m benchmarks.training_cost
	$(BIN)/python -m benchmarks.rescale
	$(BIN)/python -m benchmarks.service
	$(BIN)/python -m benchmarks.explorer
	$(BIN)/python -m benchmarks.map
	$(BIN)/python -m benchmarks.worth

clean:
	rm -rf .venv .venv-lowest .venv-build build dist site src/*.egg-info

# One marker per set of extras: installed again only when pyproject.toml changes. Most modules of the dependencies are
# never imported: Python compiles those that are.
.venv/demo: EXTRAS := cli
.venv/test: EXTRAS := dev
.venv/slow: EXTRAS := dev,docs
.venv/docs: EXTRAS := cli,docs,server
.venv/bench: EXTRAS := dev,bench
.venv/engines: EXTRAS := dev,engines
.venv/demo .venv/test .venv/slow .venv/docs .venv/bench .venv/engines: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$(EXTRAS)]"
	@touch $@

# What the tests import is compiled once, not by every worker at the same time: 54 s of processor time for each of them.
.venv/compiled: .venv/test
	-OMP_NUM_THREADS=1 $(BIN)/pytest --collect-only -n0 -qq > /dev/null
	@touch $@

.venv-lowest/installed: pyproject.toml tools/lowest.py
	$(PYTHON) -m venv --clear .venv-lowest
	$(PYTHON) tools/lowest.py > .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --requirement .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.venv-build/installed:
	$(PYTHON) -m venv --clear .venv-build
	.venv-build/bin/python -m pip install --quiet --disable-pip-version-check build twine
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dwac needs Python 3.11 or newer; got $$($(PYTHON) --version); use make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	@# The pip that comes with Python 3.11 takes twice as long to find the versions.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade pip
