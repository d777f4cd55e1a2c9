# Every job is written once, in tools/__main__.py: without make (on Windows, say), python -m tools test is make test.
# make lists all jobs; CONTRIBUTING.md says which to run when. Another Python: make test PYTHON=python3.12
PYTHON ?= python3
MINUTES ?= 10
JOBS := demo test lint types docs test-slow fuzz test-triton test-engines test-mlflow test-onnx test-lowest test-newest build bench clean

.PHONY: help $(JOBS)

help:
	@$(PYTHON) -m tools

$(JOBS):
	@$(PYTHON) -m tools $@ $(if $(filter fuzz,$@),$(MINUTES))
