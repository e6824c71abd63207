# Everything a person or the build machine runs here. `make setup` first; the others call it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOCK := requirements-dev.lock

# How many test processes: one more than there are cores, since tests of servers wait for leases
# to end more than half of the time.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))

# The tool that writes the lock file lives in a folder of its own: the lock does not depend on itself.
LOCK_VENV := .cache/lock-venv
UV_VERSION := 0.13.9

# What tests need of the system: command=package. Servers of these are started by tests alone.
SERVER_PACKAGES := pg_ctlcluster=postgresql etcd=etcd-server etcdctl=etcd-client
TEST_PACKAGES := git=git strace=strace setpriv=util-linux pgbouncer=pgbouncer faketime=faketime $(SERVER_PACKAGES)

# How long `make soak` kills workers, and how many there are.
SECONDS ?= 600
SOAK_WORKERS ?= 7

# What `make bench` is told: --quick, --only SCENARIO, names of sides. See `python -m benchmarks.peers --help`.
BENCH ?=
PEERS := benchmarks/peers/requirements

# Tests start hundreds of processes: what one of them has compiled, the next need not.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check soak bench figures lock clean

help:
	@echo "make setup   install what development needs into $(VENV)"
	@echo "make demo    kill a real task in every crash window and watch it recover"
	@echo "make check   formatting, lint, types, import contracts, house rules"
	@echo "make test    check, then all tests, then the acceptance list under python -O"
	@echo "make soak    kill workers on PostgreSQL and etcd for SECONDS=$(SECONDS), and count effects"
	@echo "make bench   ours, the peers and the raw limits by turns, into benchmarks/results; BENCH=--quick to try"
	@echo "make figures our own figures one by one, each beside its raw limit"
	@echo "make lock    choose versions again and write $(LOCK)"
	@echo "make clean   remove what these targets made"

setup: $(INSTALLED)

$(INSTALLED): $(LOCK) pyproject.toml
	@bash scripts/make-venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(INSTALLED)

demo: setup
	$(BIN)/counterfoil demo

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n $(WORKERS) tests/house

# The last line sets the variable as well as the flag: test processes that pytest-xdist starts
# inherit only the variable, and so do the workers that crash tests start.
test: check
	@bash scripts/install-packages $(TEST_PACKAGES)
	@bash scripts/install-restate $(BIN)/python .cache/restate
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --ignore=tests/house
	PYTHONOPTIMIZE=1 $(BIN)/python -O -m pytest -n $(WORKERS) --dist worksteal --ignore=tests/house -k acc-

soak: setup
	@bash scripts/install-packages $(SERVER_PACKAGES)
	$(BIN)/counterfoil drill --store postgresql --heads etcd --workers $(SOAK_WORKERS) --seconds $(SECONDS)

bench: setup
	@bash scripts/install-packages $(SERVER_PACKAGES)
	$(BIN)/python -m benchmarks.peers $(BENCH)

figures: setup
	@bash scripts/install-packages $(SERVER_PACKAGES)
	$(BIN)/python -m benchmarks

lock:
	@bash scripts/make-venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(LOCK_VENV)/bin/uv pip compile pyproject.toml --group dev --quiet --upgrade \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --output-file $(LOCK)
	for pins in $(PEERS)/*.in; do \
		$(LOCK_VENV)/bin/uv pip compile "$$pins" --quiet --universal --python-version 3.11 \
			--generate-hashes --no-emit-index-url --no-emit-find-links \
			--custom-compile-command "make lock" --output-file "$${pins%.in}.txt"; \
	done

clean:
	rm -rf $(VENV) .cache build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
