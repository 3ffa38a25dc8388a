# The commands people rely on; each target says what it leaves behind.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON  ?= python3
VENV    := .venv
UV      := $(VENV)/bin/uv
UV_PIN  := 0.13.8
FUZZ_SECONDS ?= 60
SUDO    := $(if $(filter 0,$(shell id -u)),,sudo)
PACKAGES := dial-lb dial-lb-haproxy dial-lb-envoy dial-lb-pinot dial-lab dial-pbox dial-training dial-sim
EDITABLE := -e . -e lb-adapters/haproxy -e lb-adapters/envoy -e lb-adapters/pinot/python -e pbox/python -e lab
MANIFESTS := pyproject.toml lb-adapters/haproxy/pyproject.toml lb-adapters/envoy/pyproject.toml \
  lb-adapters/pinot/python/pyproject.toml pbox/python/pyproject.toml lab/pyproject.toml
PLUGIN   := lb-adapters/pinot/plugin
EDITABLE_DEV := -e training -e sim
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  $(PACKAGES:%=--no-emit-package %) --custom-compile-command "make lock" --group build

.PHONY: help setup setup-dev lock demo test check reference bench fuzz pbox clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.setup ## what the product, the lab and the demo need

setup-dev: $(VENV)/.setup-dev ## the rest that tests and benchmarks need

# System packages first: python3-venv may be what makes the environment possible at all.
$(VENV)/.setup: requirements.lock $(MANIFESTS)
	@scripts/system-packages lean
	@test -x $(UV) || { $(PYTHON) -m venv $(VENV) && $(VENV)/bin/pip install --quiet uv==$(UV_PIN); }
	@$(UV) pip install --quiet --python $(VENV)/bin/python --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(VENV)/bin/python --no-deps --no-build-isolation $(EDITABLE)
	@touch $@

$(VENV)/.setup-dev: $(VENV)/.setup requirements-dev.lock training/pyproject.toml sim/pyproject.toml $(PLUGIN)/pom.xml
	@scripts/system-packages dev
	@$(UV) pip install --quiet --python $(VENV)/bin/python --require-hashes -r requirements-dev.lock
	@$(UV) pip install --quiet --python $(VENV)/bin/python --no-deps --no-build-isolation $(EDITABLE_DEV)
	@scripts/plugin-dependencies $(PLUGIN)
	@touch $@

lock: ## resolve anew into the two lock files (exact versions, hashes, no index)
	$(COMPILE) $(MANIFESTS) -o requirements.lock
	$(COMPILE) --group lint --group test --constraint requirements.lock \
	  $(MANIFESTS) training/pyproject.toml sim/pyproject.toml -o requirements-dev.lock

demo: setup ## the main job on real parts: out/demo/report.json and out/demo/timeline.png
	@$(VENV)/bin/dial-lab demo

test: setup-dev ## the whole test suite, real HAProxy included
	@$(VENV)/bin/python -m pytest

check: setup-dev ## format, lint, types, import rules, nothing undocumented, no dead link
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/python scripts/reference.py --check
	@$(VENV)/bin/python scripts/links.py

reference: setup ## docs/reference from the code
	@$(VENV)/bin/python scripts/reference.py

bench: setup-dev ## every benchmark, one line of JSON each
	@for module in $$(ls benchmarks/*.py | grep -v __init__ | xargs -n1 basename | sed 's/\.py$$//'); do \
	  echo "== $$module"; $(VENV)/bin/python -m benchmarks.$$module --json | tail -1; done

fuzz: setup-dev ## every parser for FUZZ_SECONDS (60) each; what breaks one is left in out/fuzz/found
	@$(VENV)/bin/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

pbox: setup-dev ## the C library, its shim, cases and benchmarks: out/pbox/plain
	@$(VENV)/bin/python -c 'from benchmarks.support.pbox import build; print(build())'

clean: ## the environment and everything that runs leave behind
	rm -rf $(VENV) $(PLUGIN)/target out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
