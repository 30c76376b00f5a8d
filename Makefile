# make smoke   set up what it needs and run the whole workflow on embedded data
# make test    set up what it needs and run every check
# make report  every table and figure, the verdict and report.html of results/reference, and the tables of README and
#              docs, from the records of results/reference; trains nothing
# make bench   time the E-step against the ceilings of this machine, PCX and FabricPC
.PHONY: help smoke test lint unit lock clean bench report slurm
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
export PATH := $(abspath $(BIN)):$(PATH)

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	@touch $@

smoke: $(INSTALLED)
	snakemake --workflow-profile smoke
	@echo; cat results/smoke/tables/depth.md; echo; echo 'Tables and figures: results/smoke/tables, results/smoke/figures'

test: lint unit

lint: $(INSTALLED)
	ruff check
	ruff format --check
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

unit: $(INSTALLED)
	pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Only the tests of the SLURM profile, on a real SLURM of one node; skipped, with the reason, where it cannot be had.
slurm: $(INSTALLED)
	pytest -rs -m slurm

report: $(INSTALLED)
	highways report --runs results/reference/runs --traces results/reference/propagation --out results/reference \
		--renew README.md docs/results.md docs/baselines.md docs/engine.md

# The lock is what a fresh environment resolves to today.
lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet '.[dev]'
	{ head -n 1 requirements.lock; $(VENV)-lock/bin/python -m pip freeze --exclude highways; } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -r $(VENV)-lock

clean:
	rm -rf $(VENV) results/smoke .snakemake

# The benchmark suite, with every peer in an environment of its own: make bench, on a quiet machine.
bench: $(INSTALLED)
	$(PYTHON) -m venv $(VENV)-pcx
	$(VENV)-pcx/bin/python -m pip install --quiet pcx==0.6.3
	$(PYTHON) -m venv $(VENV)-fabricpc
	$(VENV)-fabricpc/bin/python -m pip install --quiet fabricpc==0.6.0
	python benchmarks/run.py --pcx $(VENV)-pcx/bin/python --fabricpc $(VENV)-fabricpc/bin/python
