# Everything a person or a CI does with this repository, on Python 3.11 or newer, pip and make alone.
#   make run     a demo cluster on 127.0.0.1:8000, with servers of its own under var/
#   make serve   the web process alone, settings from the environment
#   make test    every test, on throwaway servers of its own
#   make prove   what the tests try for a moment, for long

PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements-dev.txt
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header -p 3.11

export PYTHONUNBUFFERED = 1

# What reads the settings without serving anything (types, schema, migrations): no database is asked.
STATIC := HAMIACCT_DATABASE_URL=postgresql://nobody@127.0.0.1:1/none HAMIACCT_SECRET_KEY=static

.PHONY: setup run serve test prove prove-faults prove-races prove-kills prove-live prove-hostile prove-upgrade prove-month bench bench-peers lint format openapi chart lock audit-dependencies clean

# The environment is rebuilt when the lock differs from the one it was built from, and only then.
# Where Python comes without ensurepip (Debian's python3 with python3-pip), the outer pip fills the venv.
setup:
	@cmp -s $(LOCK) .venv/built-from && $(BIN)/python -c '' 2>/dev/null || { \
	  set -e; \
	  $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed (make PYTHON=...)")'; \
	  echo "building .venv from $(LOCK)"; rm -rf .venv; \
	  if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	    $(PYTHON) -m venv .venv; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK); \
	  else \
	    $(PYTHON) -m venv --without-pip .venv; \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check --require-hashes -r $(LOCK); \
	  fi; \
	  $(BIN)/python -c 'import os, site; open(site.getsitepackages()[0] + "/checkout.pth", "w").write(os.getcwd() + "\n")'; \
	  cp $(LOCK) .venv/built-from; }

run: setup
	@exec $(BIN)/python -m devservers.run

serve: setup
	@exec $(BIN)/python -m devservers.serve

# Two processes, each with servers of its own, file by file; PROCESSES=0: one after the other, as `pytest` alone does.
PROCESSES ?= 2
test: setup
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile

# What `make test` tries for a moment, tried at length. Histories: HISTORIES of them, chances by SEED, in PROCESSES
# processes; what was tried is counted in var/prove and printed. Before them FAULT_HISTORIES (200; 0: none) at most to find
# each of the faults that are planted into the service.
HISTORIES ?= 20000
SEED ?= 1
prove: setup
	@rm -rf var/prove && mkdir -p var/prove
	HISTORIES=$(HISTORIES) SEED=$(SEED) FAULT_HISTORIES=$${FAULT_HISTORIES:-200} PROVE_TALLY=$(abspath var/prove) \
	  $(BIN)/python -m pytest -n $(PROCESSES) -p no:logging tests/proof; \
	  status=$$?; $(BIN)/python -m tests.proof.tally var/prove; exit $$status

# Something goes wrong at every single round trip to PostgreSQL of every operation. RACE_SECONDS of everybody at work at
# once, and what else many do at the same time. KILLS times SIGKILL to web, workers, beat, watchers, Valkey and
# PostgreSQL. RACE_SEED=n: other chances.
prove-faults: setup
	PROOF=all FAULT_EVERY=1 $(BIN)/python -m pytest tests/races/test_every_operation.py tests/races/test_faults.py -q -s

RACES := test_one_site test_many_at_once test_freshness test_fairness test_order_of_locks
prove-races: setup
	RACE_SECONDS=$${RACE_SECONDS:-300} RACE_SEEDS=$${RACE_SEEDS:-10} FRESHNESS_SECONDS=$${FRESHNESS_SECONDS:-60} \
	  $(BIN)/python -m pytest $(RACES:%=tests/races/%.py) -q -s -k 'not killed'

prove-kills: setup
	KILLS=$${KILLS:-300} KILL_SECONDS=$${KILL_SECONDS:-60} $(BIN)/python -m pytest tests/races/test_one_site.py \
	  tests/races/test_kills.py -q -s

# The code before the newest migration serves while it is applied, then both, then the new alone, UPGRADE_SECONDS each.
# UPGRADE_FROM=0006_lighter_indexes: the code before that one. Needs the history of this repository.
prove-upgrade: setup
	UPGRADE_SECONDS=$${UPGRADE_SECONDS:-20} $(BIN)/python -m pytest tests/upgrade/test_running.py -q -s

# DAYS days of a busy cluster with PODS_A_DAY new pods in one run, one line a day; about a quarter of an hour on two quiet cores.
prove-month: setup
	DAYS=$${DAYS:-30} $(BIN)/python -m pytest tests/longlife -q -s -k month

# Bent inputs at every door, so many of each sort; HOSTILE_SEED=n: others. Then what schemathesis makes of the document.
prove-hostile: setup
	HOSTILE_EXAMPLES=$${HOSTILE_EXAMPLES:-2000} $(BIN)/python -m pytest tests/hostile -v --show-capture=no \
	  --ignore tests/hostile/test_requests.py
	HOSTILE_EXAMPLES=$${HOSTILE_REQUESTS:-100} $(BIN)/python -m pytest tests/hostile/test_requests.py -q --show-capture=no

# The judging trial: CHURN_PODS pods live while the watcher is killed CHURN_KILLS times, against the API server of the
# tests; `make prove-live KUBECONFIG=path` tries it on that cluster too. CHURN_SEED=n: other chances.
prove-live: setup
	CHURN_PODS=$${CHURN_PODS:-2000} CHURN_KILLS=$${CHURN_KILLS:-10} CHURN_LEASE=1 \
	  HAMIACCT_TEST_KUBECONFIG=$(if $(KUBECONFIG),$(abspath $(KUBECONFIG))) $(BIN)/python -m pytest tests/cluster -v --show-capture=no

# Every figure beside a yardstick of the same minute, into bench/results.json and docs/performance.md: about 20 minutes on
# two quiet cores. BENCH="--quick" is for a look, into var/, in 2 minutes; BENCH="--nodes 5000 --only fit events" narrows
# it and keeps the other figures. Needs pgbench.
bench: setup
	$(BIN)/python -m bench $(BENCH)

# OpenStack Placement in an environment of its own, for `make bench` to measure beside us.
bench-peers:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bench/requirements-peers.txt

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(STATIC) $(BIN)/mypy
	$(BIN)/lint-imports
	$(STATIC) $(BIN)/python -W ignore manage.py makemigrations --check --dry-run
	@mkdir -p var
	$(STATIC) $(BIN)/python manage.py spectacular --fail-on-warn --file var/openapi.yaml
	diff -u docs/openapi.yaml var/openapi.yaml

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

openapi: setup
	$(STATIC) $(BIN)/python manage.py spectacular --fail-on-warn --file docs/openapi.yaml

# What the Helm chart makes of its cases, for the tests. Needs Helm 3.
chart:
	sh deploy/helm/render.sh

lock: setup
	$(COMPILE) $(UPGRADE) pyproject.toml -o requirements.txt
	$(COMPILE) $(UPGRADE) --extra dev -c requirements.txt pyproject.toml -o $(LOCK)

# Whether anything known is wrong with a locked dependency. No part of .ci/run: it asks a public service about every
# package, so it needs a way out, and a run that was fine yesterday fails today without any change here. For a job
# of its own, daily.
audit-dependencies: setup
	$(BIN)/uv tool run --from 'pip-audit>=2.9,<3' pip-audit --require-hashes --disable-pip -r requirements.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
