# make quickstart   generate a small graph, train on it, score it and write the report
# make test         the default tests, in as many processes as there are cores (eight minutes on two)
# make test-slow    the odd inputs and the slow tests, likewise in several processes
# make test-workers those that start worker processes or talk to S3, in two processes
# make test-all     these three
# make test-card    the programs for graphics cards, which Triton interprets and compiles without one
# make test-helm    the Helm chart and the Dockerfile; needs Python 3.12
# make test-airflow operators and DAGs, four journeys and a kill on a live Airflow, in an environment of its own
# make test-airflow-all  the same and everything else on a live Airflow: other graphs, PostgreSQL, what is killed or stopped
# make lint         style, types, import contracts, generated documentation
# make clean        remove caches, runs and the generated graph

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AIRFLOW_VENV := .venv-airflow
NATIVE := $(wildcard native/*)

# What runs a suite, such as SUITE_LIMIT="timeout 60m".
SUITE_LIMIT ?=
GIVING_WAY := nice -n 5

# Benchmarks are scripts of one folder, and call peers' code that has no types.
LOOSELY := --allow-untyped-calls --no-warn-return-any --allow-subclassing-any

# The tests start hundreds of interpreters, and uv leaves what it installs uncompiled: without a place to keep what one of
# them compiled, each does so again, which doubles the time it takes to start.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: quickstart test test-slow test-workers test-all test-airflow test-airflow-all test-card test-helm lint docs clean

quickstart: $(VENV)/.installed quickstart-data/edges/part-00000.parquet
	$(BIN)/gnnflow run configs/quickstart.yaml

# The edges are written last, so they are there only if the whole graph is.
quickstart-data/edges/part-00000.parquet: | $(VENV)/.installed
	$(BIN)/gnnflow generate payments --out quickstart-data

# What keeps all cores busy gives way to a live Airflow beside it, and to whoever works here: a third of their share of a
# core, not nice's default of a tenth, of which a test may starve. All suites alike, or one starves the other.
test: $(VENV)/.installed-dev
	$(GIVING_WAY) $(SUITE_LIMIT) $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-slow: $(VENV)/.installed-dev
	$(GIVING_WAY) $(SUITE_LIMIT) $(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "(robustness or slow) and not (distributed or s3)"

# They mostly wait, and each process may have a cluster of four workers at work: two, however many cores there are. The
# kills and the faults of S3 are counted at the end where their folder is named too.
test-workers: $(VENV)/.installed-dev
	$(GIVING_WAY) $(SUITE_LIMIT) $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "distributed or s3" tests tests/robustness

test-all: test test-slow test-workers

test-airflow: $(AIRFLOW_VENV)/.installed
	$(SUITE_LIMIT) $(AIRFLOW_VENV)/bin/python -m pytest -m "airflow and not exhaustive" tests/airflow

test-airflow-all: $(AIRFLOW_VENV)/.installed
	$(SUITE_LIMIT) $(AIRFLOW_VENV)/bin/python -m pytest -m airflow tests/airflow

# Beside what is installed and not among it: torch's builds for processors have no Triton, and it takes 600 MB each time.
test-card: $(VENV)/card/.installed $(VENV)/card-3.6/.installed
	TRITON_INTERPRET=1 GNNFLOW_TRITONS=$(VENV)/card:$(VENV)/card-3.6 PYTHONPATH=$(VENV)/card:. \
		$(GIVING_WAY) $(SUITE_LIMIT) $(BIN)/python -m pytest --numprocesses 2 --dist worksteal \
		tests/cuda/test_kernels.py tests/cuda/test_compiled.py

test-helm:
	$(SUITE_LIMIT) .ci/helm

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd benchmarks && ../$(BIN)/mypy --config-file=../pyproject.toml --cache-dir=../.mypy_cache $(LOOSELY) *.py
	$(BIN)/lint-imports
	$(BIN)/python -m gnnflow.config | diff -u docs/config.md -

docs: $(VENV)/.installed-dev
	$(BIN)/python -m gnnflow.config > docs/config.md

clean:
	rm -rf build dist runs quickstart-data .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find gnnflow operators tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'gnnflow needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps are older than pyproject.toml exactly when what it asks for may not be installed, or than the native core's
# sources when it may not be compiled from them.
$(VENV)/.installed: pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(VENV)/.installed $@

# The interpreter of 3.9.0 has `and` of two truth values as an integer, and that of 3.6 does not run beside numpy 2.4.
$(VENV)/card/.installed: Makefile | $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/card triton==3.8.0
	touch $@

# What came with torch 2.11, whose compiler refuses more than others do: all programs are compiled by both.
$(VENV)/card-3.6/.installed: Makefile | $(VENV)/card/.installed
	$(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/card-3.6 triton==3.6.0
	touch $@

# An environment of its own: gnnflow must install, and pass its other tests, without Airflow. uv, because pip searches for
# many minutes before it finds versions of Airflow's packages that agree. After the other, since both install into .venv
# and compile the native core.
$(AIRFLOW_VENV)/.installed: pyproject.toml tests/airflow/requirements.txt | $(VENV)/.installed-dev
	$(BIN)/python -m venv $(AIRFLOW_VENV)
	$(BIN)/python -m pip install --quiet uv
	UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip install --quiet --python $(AIRFLOW_VENV)/bin/python \
		--editable '.[airflow,s3,dev]' --requirement tests/airflow/requirements.txt
	touch $@
