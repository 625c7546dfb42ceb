# make quickstart        generate a small graph, train on it, score it and write the report
# make test              every claim once, on its smallest case (six minutes on two cores)
# make test-slice        a part of the exhaustive tests: odd inputs, layers on executions, damages, kills, faults of S3
# make test-airflow      operators and DAGs, and four journeys and a kill on a live Airflow, in an environment of its own
# make test-card         the programs for graphics cards, which Triton interprets and compiles without one
# make test-helm         the Helm chart and the Dockerfile; needs Python 3.12
# make test-all          everything, each property on all its examples: an hour or two
# make mutants           seeded faults in the code, and which of the tests find them: a few hours
# make bench             list the benchmarks; make bench NAME=epoch ARGS="--small" runs one
# make lint              style, types, import contracts, generated documentation
# make docs              write docs/config.md, and the documentation as a site to build/site
# make proto             generate the class of GraphFeatures from its .proto
# make clean             remove caches, runs and the generated graph

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AIRFLOW_VENV := .venv-airflow
UV := $(BIN)/uv
INSTALL := UV_FIND_LINKS="$$PIP_FIND_LINKS" $(UV) pip install --quiet --compile-bytecode --python
NATIVE := $(wildcard native/*)

# The part of the exhaustive tests that `test-slice` runs: K/N, or COMMIT/N for the one that the last commit chooses.
SLICE ?= COMMIT/14
EXHAUSTIVE := (drawn or exhaustive or robustness or slow or distributed or s3 or browser) and not (airflow or gpu or helm)

MUTANT_RINGS ?= test ci all
MUTANTS := $(BIN)/python .ci/mutants.py --exhaustive "$(EXHAUSTIVE)" --slice $(SLICE)

# The tests start hundreds of interpreters, and uv leaves what it installs uncompiled: without a place to keep what one of
# them compiled, each does so again, which doubles the time it takes to start.
unexport PYTHONDONTWRITEBYTECODE

# A link that leads nowhere, or a page that no list names, ends it with an error.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.DELETE_ON_ERROR:
.PHONY: quickstart test test-slice test-airflow test-airflow-live test-airflow-here test-airflow-all test-card test-card-all test-helm test-all mutants bench lint docs proto clean

quickstart: $(VENV)/.installed quickstart-data/edges/part-00000.parquet
	$(BIN)/gnnflow run configs/quickstart.yaml

# The edges are written last, so they are there only if the whole graph is.
quickstart-data/edges/part-00000.parquet: | $(VENV)/.installed
	$(BIN)/gnnflow generate payments --out quickstart-data

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-slice: $(VENV)/.installed-dev
	GNNFLOW_TESTS=all exec .ci/suite $(BIN)/python --numprocesses 2 --dist loadgroup -m "$(EXHAUSTIVE)" --slice $(SLICE)

# Two processes: those on a live Airflow mostly wait, and the others compute. An interrupt reaches both, unlike those of
# pytest-xdist, and so all that they started.
test-airflow: $(AIRFLOW_VENV)/.installed
	$(MAKE) --jobs=2 --output-sync=target test-airflow-live test-airflow-here

test-airflow-live: $(AIRFLOW_VENV)/.installed
	exec .ci/suite $(AIRFLOW_VENV)/bin/python -m "airflow and not exhaustive" tests/airflow/live

test-airflow-here: $(AIRFLOW_VENV)/.installed
	exec .ci/suite $(AIRFLOW_VENV)/bin/python -m "airflow and not exhaustive" tests/airflow --ignore=tests/airflow/live

test-airflow-all: $(AIRFLOW_VENV)/.installed
	exec .ci/suite $(AIRFLOW_VENV)/bin/python -m airflow tests/airflow

INTERPRETED := TRITON_INTERPRET=1 PYTHONPATH=$(VENV)/card:. $(BIN)/python -m pytest --numprocesses 2 --dist worksteal \
	tests/cuda/test_kernels.py tests/cuda/test_compiled.py

# By Triton's interpreter where there is no card; all programs are compiled for one.
test-card: $(VENV)/card/.installed
	GNNFLOW_TRITONS=$(VENV)/card $(INTERPRETED) --slice $(SLICE)

test-card-all: $(VENV)/card/.installed $(VENV)/card-3.6/.installed
	GNNFLOW_TESTS=all GNNFLOW_TRITONS=$(VENV)/card:$(VENV)/card-3.6 $(INTERPRETED)

test-helm: | $(UV)
	.ci/helm

test-all: export GNNFLOW_TESTS := all
test-all: $(VENV)/.installed-dev $(AIRFLOW_VENV)/.installed
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal
	exec .ci/suite $(BIN)/python --numprocesses 2 --dist loadgroup -m "$(EXHAUSTIVE)"
	$(MAKE) test-airflow-all test-card-all test-helm

mutants: $(VENV)/.installed-dev
	$(MUTANTS) choose
	$(MUTANTS) instrument
	for ring in $(MUTANT_RINGS); do \
		$(MUTANTS) reach --ring $$ring && $(MUTANTS) kill --ring $$ring --budget 120 || exit; \
	done
	$(MUTANTS) table

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/$(or $(NAME),harness).py $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd benchmarks && ../$(BIN)/mypy --config-file=../pyproject.toml --cache-dir=../.mypy_cache *.py
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py
	$(BIN)/python -m gnnflow.config | diff -u docs/config.md -
	$(SITE)

docs: $(VENV)/.installed-dev
	$(BIN)/python -m gnnflow.config > docs/config.md
	$(SITE)

# The compiler writes for protobuf 6.31.1 and later, as pyproject.toml promises: a newer one would need a newer protobuf.
proto: | $(UV)
	$(INSTALL) $(BIN)/python --target $(VENV)/protoc grpcio-tools==1.75.1
	PYTHONPATH=$(VENV)/protoc $(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
		gnnflow/graphfeature/graph_feature.proto

clean:
	rm -rf build dist runs quickstart-data .mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find gnnflow operators tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'gnnflow needs Python 3.11 or newer, and "$(PYTHON)" is older or does not run;' \
			'name one that does: make PYTHON=/path/to/python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# uv installs in a tenth of pip's time, and finds versions of Airflow's packages that agree; it reads none of pip's
# settings, so it is told where pip would look.
$(UV): | $(BIN)/python
	$(BIN)/python -m pip install --quiet uv

# The stamps are older than pyproject.toml exactly when what it asks for may not be installed, or than the native core's
# sources when it may not be compiled from them.
$(VENV)/.installed: pyproject.toml $(NATIVE) | $(UV)
	$(INSTALL) $(BIN)/python --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(NATIVE) | $(UV)
	$(INSTALL) $(BIN)/python --editable '.[dev]'
	touch $(VENV)/.installed $@

# The interpreter of 3.9.0 has `and` of two truth values as an integer, and that of 3.6 does not run beside numpy 2.4.
$(VENV)/card/.installed: Makefile | $(VENV)/.installed-dev
	$(INSTALL) $(BIN)/python --no-deps --target $(VENV)/card triton==3.8.0
	touch $@

# What came with torch 2.11, whose compiler refuses more than others do: all programs are compiled by both.
$(VENV)/card-3.6/.installed: Makefile | $(VENV)/card/.installed
	$(INSTALL) $(BIN)/python --no-deps --target $(VENV)/card-3.6 triton==3.6.0
	touch $@

# An environment of its own: gnnflow must install, and pass its other tests, without Airflow. After the other, which
# compiles the native core that both load: a minute of a processor.
$(AIRFLOW_VENV)/.installed: pyproject.toml tests/airflow/requirements.txt | $(VENV)/.installed-dev
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(AIRFLOW_VENV)
	$(INSTALL) $(AIRFLOW_VENV)/bin/python --editable '.[airflow,s3]' --requirement tests/airflow/requirements.txt
	touch $@
