# make demo: set up and run the main job.   make test: set up and pass every check.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench clean

demo: .venv/demo
	$(BIN)/dwac demo

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest
	TRITON_INTERPRET=1 $(BIN)/pytest -k "fused or triton and (gaussian or outliers) and not norms and not rounding" \
		tests/engine tests/nn/test_loss.py

bench: .venv/bench
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.conformal
	$(BIN)/python -m benchmarks.stability
	$(BIN)/python -m benchmarks.training_cost
	$(BIN)/python -m benchmarks.rescale
	$(BIN)/python -m benchmarks.service
	$(BIN)/python -m benchmarks.explorer

clean:
	rm -rf .venv build dist src/*.egg-info

# One marker a set of extras: installed again only when pyproject.toml changes.
.venv/demo: EXTRAS := cli
.venv/test: EXTRAS := dev
.venv/bench: EXTRAS := dev,bench
.venv/demo .venv/test .venv/bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(EXTRAS)]"
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dwac needs Python 3.11 or newer; $$($(PYTHON) --version) came; use make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
