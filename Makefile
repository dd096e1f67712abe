# Tailrace. `make` alone prints this help; every target prepares what it needs.

VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready
# PySpark comes as source, most of it jars: packed without compression, its wheel is made in a third of the time.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	--config-settings='--build-option=--compression=stored'
RESULTS := benchmarks/results
# The newest of the supported interpreters that is here; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $$p && break; done)

# Each worker has a broker and a Spark of its own, together up to 4 GB. It uses half a core and otherwise waits for them, so
# there are two workers more than cores: on two cores four, which keep both busy.
WORKERS := $(shell awk -v cores="$$(nproc 2>/dev/null || echo 1)" '/MemAvailable/ {fit = int($$2 / 4000000); \
	wanted = cores < 2 ? 2 : cores + 2; print (fit < wanted ? fit : wanted)}' /proc/meminfo 2>/dev/null || echo 1)
PARALLEL := $(shell [ "$(WORKERS)" -gt 1 ] 2>/dev/null && printf -- '-n $(WORKERS) --dist worksteal')
PYTEST ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint unit matrix test-engines bench bench-start bench-idle bench-batch-end bench-backlog soak soak-stops soak-watch docs lock class-lists clean

help:  ## show this help
	@printf 'Tailrace: real-time PySpark on Kafka\n\n'
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | \
		awk -F'|' '{printf "%-24s %s\n", $$1, $$2}'
	@printf '\nStart with: make demo\n'

setup: $(RUNS)  ## make .venv with everything pinned, find or download Java, fetch the jars
	@$(BIN)/tailrace doctor --fix

demo: $(RUNS)  ## the main job: card payments through Kafka, real time against micro-batch
	@$(BIN)/tailrace demo

test: $(READY) lint  ## every check that a change must pass: ruff, mypy, pytest; about 20 minutes
	@$(BIN)/tailrace doctor --fix --quiet
	@$(BIN)/pytest $(PARALLEL) $(PYTEST)

matrix: $(READY)  ## unit and smoke tests on every supported Python and Java; five minutes
	@$(BIN)/tailrace doctor --fix --quiet
	@$(BIN)/python -m tests.matrix.pythons --others --jobs 2
	@$(BIN)/python -m tests.matrix.javas

lint: $(READY)  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

unit: $(READY)  ## the tests that need no JVM: under a minute
	@$(BIN)/pytest tests/unit tests/meta tests/matrix $(PARALLEL)

test-engines: $(READY)  ## the lanes of Flink, PyFlink, Kafka Streams and Quix Streams, for real: downloads much
	@TAILRACE_ENGINES=1 $(BIN)/pytest tests/e2e/test_bench_engines.py

bench: $(READY)  ## the README's figures: Kafka alone, micro-batch, real time; five minutes (tailrace bench study --list: others)
	@$(BIN)/tailrace bench --profile article --out $(RESULTS)/article

# The next four measure this repository: they compare commits or read internals. Studies of the product: tailrace bench study.
bench-start: $(READY)  ## time from `tailrace run` to the first output, also after a crash, and of the first record; ten minutes
	@$(BIN)/tailrace doctor --fix --quiet
	@$(BIN)/python benchmarks/start_time.py

bench-idle: $(READY)  ## CPU time of an idle query with 2 and with 24 partitions; two minutes
	@$(BIN)/tailrace doctor --fix --quiet
	@$(BIN)/python benchmarks/idle_cpu.py

bench-batch-end: $(READY)  ## time from a request to end a batch until it has ended, here and on a cluster
	@$(BIN)/tailrace doctor --fix --quiet
	@$(BIN)/python benchmarks/batch_end.py

bench-backlog: $(READY)  ## partitions that share tasks: latency beside a backlog, CPU time without records
	@$(BIN)/tailrace doctor --fix --quiet
	@$(BIN)/python benchmarks/backlog.py

soak: $(READY)  ## all modes agree on 25 generated inputs per example and function; 20 stops of each query, 50 runs without a false alarm, 20 faults of each kind
	@TAILRACE_EXAMPLES=25 TAILRACE_RESTARTS=20 TAILRACE_WAITS=50 $(BIN)/pytest -q tests/e2e/test_examples.py tests/e2e/test_python_functions.py \
		tests/e2e/test_python_failures.py tests/e2e/test_python_restarts.py tests/e2e/test_preflight_corpus.py \
		tests/e2e/test_exact_stop.py tests/e2e/test_exact_stop_cluster.py tests/e2e/test_once.py tests/e2e/test_waits.py \
		tests/e2e/test_delivery.py tests/e2e/chaos_soak.py

soak-stops: $(READY)  ## 20 stops and restarts under load for each kind of query and mode, here and on a cluster; a quarter of an hour
	@rm -f $(RESULTS)/stops.json
	@TAILRACE_FIGURES=$(RESULTS) TAILRACE_RESTARTS=20 $(BIN)/pytest -q tests/e2e/test_exact_stop.py \
		tests/e2e/test_exact_stop_cluster.py tests/e2e/test_once.py

soak-watch: $(READY)  ## 50 runs beside busy cores without a false alarm; how soon changes of topics are noticed; all combinations of parameters; 25 minutes
	@rm -f $(RESULTS)/watch.json
	@TAILRACE_FIGURES=$(RESULTS) TAILRACE_WAITS=50 $(BIN)/pytest -q tests/e2e/test_waits.py \
		tests/e2e/test_shared_tasks.py tests/e2e/test_lost_records.py tests/e2e/test_relayed_broker.py tests/e2e/test_rights.py \
		tests/e2e/test_controlled_source.py tests/e2e/test_formats.py tests/e2e/test_python_columns.py

docs: $(READY)  ## regenerate the reference pages
	@$(BIN)/python -m docs.generate

COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links pyproject.toml
lock: $(READY)  ## write both lock files from pyproject.toml (needs uv)
	@$(COMPILE) --group dev -o requirements.lock
	@$(COMPILE) --group install --constraints requirements.lock -o requirements-run.lock

class-lists: $(READY)  ## record again which classes Spark's driver and the broker load
	@$(BIN)/python benchmarks/class_lists.py

clean:  ## remove .venv and what tools left behind
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .tailrace
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): $(RUNS) requirements.lock
	@echo "Installing what tests need, about a minute ..."
	@$(INSTALL) -r requirements.lock
	@touch $@

$(RUNS): requirements-run.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer with venv and pip was found." \
		"Install one (on Debian: python3-venv too), or name it: make PYTHON=/path/to/python3.12"; exit 1; }
	@echo "Making $(VENV) with $(PYTHON), about a minute ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) -r requirements-run.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
