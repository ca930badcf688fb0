# Each target does all of its own set-up: a virtual environment in .venv with the pinned versions.
# Needs python3 (3.11 or later) with venv, and make; nothing else.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SOURCE := tracker collectors reports tests benchmarks docs configs
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check lint bench forecast-study changes-study torture docs examples dashboards wheel sbom audit clean

help:
	@echo "make demo    a whole run in one minute, from bundled simulated logs"
	@echo "make test    all tests"
	@echo "make check   what to run before a commit: lint, types, contracts, the quick tests"
	@echo "make lint    lint, types and contracts only"
	@echo "make bench   the figures we promise, each beside a peer's"
	@echo "make forecast-study   replay simulated and real runs, write docs/forecast.md anew (minutes)"
	@echo "make changes-study    count false alarms on simulated steady runs, write docs/changes.md anew (minutes)"
	@echo "make torture   1,000 kills, faults of disk and world, 400 days played: writes docs/reliability.md anew (two hours; some of it as root)"
	@echo "make docs    write the generated pages of docs/ anew"
	@echo "make examples   print the example reports of docs/examples/ anew, from simulated runs"
	@echo "make dashboards   write configs/grafana/dashboards/ anew from its code"
	@echo "make wheel   build the distribution into dist/"
	@echo "make sbom    what the installed product is made of, CycloneDX, into dist/"
	@echo "make audit   known vulnerabilities of the pinned versions (needs the advisories of PyPI or OSV)"
	@echo "make clean   remove what the other targets made"

$(READY): constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/tracker demo

test: $(READY)
	$(BIN)/python -m pytest -q -n auto

check: lint
	$(BIN)/python -m pytest -q -n auto --hypothesis-profile=quick -m "not slow and not shared"

lint: $(READY)
	$(BIN)/ruff check $(SOURCE)
	$(BIN)/ruff format --check $(SOURCE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)
	@for bench in $(filter-out benchmarks/forecast_study.py benchmarks/changes_study.py,$(wildcard benchmarks/[a-z]*.py)); do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

forecast-study: $(READY)
	$(BIN)/python benchmarks/forecast_study.py --out docs/forecast.md

changes-study: $(READY)
	$(BIN)/python benchmarks/changes_study.py --out docs/changes.md

torture: $(READY)
	$(BIN)/python -m tests.torture --kills $(or $(KILLS),1000) --soak 400 --keep --out docs/reliability.md

docs: $(READY)
	$(BIN)/python docs/generate.py

examples: $(READY)
	$(BIN)/python docs/examples/make.py

dashboards: $(READY)
	$(BIN)/python configs/grafana/build.py

wheel: $(READY)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --wheel --outdir dist .

$(BIN)/pip-audit: $(READY)
	$(BIN)/python -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install --quiet cyclonedx-bom==7.5.0 pip-audit==2.10.1
	ln -sf ../tools/bin/pip-audit $@

sbom: $(BIN)/pip-audit
	mkdir -p dist
	$(PYTHON) -m venv --clear --without-pip $(VENV)/product
	PIP_CONSTRAINT=constraints.txt $(VENV)/tools/bin/python -m pip --python $(VENV)/product/bin/python install --quiet .
	$(VENV)/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --mc-type application --of JSON -o dist/sbom.json $(VENV)/product/bin/python

audit: $(BIN)/pip-audit
	@$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict --vulnerability-service $(or $(AUDIT),pypi) || { echo "No clean audit: a known vulnerability, or (not found, connection failed) the advisories of $(or $(AUDIT),pypi) cannot be had here: then nothing was audited. Try AUDIT=osv, or another network."; exit 1; }

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
