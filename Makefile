# Two commands, each alone enough on a machine with Python 3.11 or later and make: `make demo` and `make test`.
PYTHON  ?= python3
WORKERS ?= 2
SECONDS ?= 600
TIMES   ?= 20
TENTH   ?= $(shell expr $$(date +%s) / 86400 % 10)
FOUND   ?= tests/testing/found
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
LOCKER  := .cache/lock
LINKS   := .cache/links/probml
PIP     := -m pip --disable-pip-version-check
EXTRAS  := data dask plot sklearn cli arviz serve formula bench notebook test build

# In place, without the timestamps that would make every run a change; a notebook that fails stays as it was.
define EXECUTE
import sys, nbclient, nbformat
for path in sys.argv[1:]:
    print("executing", path, flush=True)
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, record_timing=False, resources={"metadata": {"path": "notebooks"}}).execute()
    for cell in book.cells:
        if cell.cell_type == "code":  # progress bars of a slow day are no output
            cell.outputs = [out for out in cell.outputs
                            if "\r" not in (said := out.get("text", "-")) and said.strip()]
    nbformat.write(book, path)
endef
export EXECUTE

# A path for editors, on which Python finds nothing: packages of stubs are for readers alone.
define EDITORS
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "probml_for_editors.pth").write_text(sys.argv[1] + "\n")
endef
export EDITORS

# Else every process of every test would compile all of our files anew, and pytest all of the tests: a minute.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env links demo test test-all slow peers test-versions fuzz faults kills hostile misuse certificates nightly times lint bench notebooks gallery house docs dist lock clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

env: $(STAMP)  ## build .venv from requirements.lock (PYTHON=python3.12 chooses another Python; after `make clean`)

# The stamp goes first and comes back last: an install that fails part-way is done again.
$(STAMP): requirements.lock pyproject.toml
	@rm -f $@
	@echo "building $(VENV) (once, a minute or two) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, got " + sys.version.split()[0] + ": say make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) install -q --require-hashes -r requirements.lock
	@$(BIN)/python $(PIP) install -q --no-deps --no-build-isolation -e .
	@$(MAKE) --no-print-directory links
	@touch $@

# For what reads and does not run: editors and the documentation follow no hook of an editable install, so the whole
# package lies in one folder of links for them.
links:  ## let editors and `make docs` find probml.models, by links
	@rm -rf $(LINKS) .cache/stubs && mkdir -p $(LINKS) .cache/stubs
	@ln -sfn $(CURDIR)/probml/* $(CURDIR)/models $(CURDIR)/data $(LINKS)/
	@ln -sfn $(CURDIR)/$(LINKS) .cache/stubs/probml-stubs
	@$(BIN)/python -c "$$EDITORS" "$(CURDIR)/.cache/stubs"

demo: env  ## fit mixtures to the Old Faithful eruptions and draw the best
	@$(BIN)/probml demo

# mypy has one core for some seconds, the tests have the others meanwhile
define TEST
@$(BIN)/ruff check .
@mkdir -p .cache
@$(BIN)/mypy --no-error-summary > .cache/types.txt 2>&1 & types=$$!; \
  $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=10 $(1); tests=$$?; \
  wait $$types || { cat .cache/types.txt; exit 1; }; exit $$tests
endef

test: env  ## lint and the tests (WORKERS=1 for one process of tests)
	$(call TEST,-m "not slow")

test-all: env  ## the slow tests as well, of long lists of cases a part (one_in.py)
	$(call TEST,)

slow: env  ## a tenth of all slow tests, another one each day; TENTH=3 SECONDS=600
	@SLOW_TENTH=$(TENTH) SLOW_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q -n $(WORKERS) -m slow

peers: env  ## scikit-learn's and hmmlearn's own tests, run against our classes
	@$(BIN)/python -m pytest -q tests/peers

test-versions: env  ## what reads JAX's and NumPyro's insides, with the oldest, locked and newest of both, and other Pythons
	@$(BIN)/python tests/versions.py

fuzz: env  ## random models and data against brute force; SECONDS=600 SEED=7; cases found are kept as tests
	@PYTHONPATH=tests/testing $(BIN)/python -m random_models.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) --keep $(FOUND)

faults: env  ## kill -9, Ctrl-C, full disks, threads, at random moments; SECONDS=600 SEED=7
	@$(BIN)/python tests/faults/faults.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

kills: env  ## kill -9 of workers, processes and drivers at random moments, TIMES=20 times; SEED=7
	@$(BIN)/python tests/faults/faults.py --only killed --times $(TIMES) $(if $(SEED),--seed $(SEED))

hostile: env  ## changed files of fits, networks, checkpoints, tables and programs; SECONDS=600 SEED=7
	@$(BIN)/python tests/faults/hostile.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# to their end, unless they are given SECONDS or nightly shares its own out
slow misuse certificates: SECONDS =

misuse: env  ## every public call with wrong kinds, shapes, sizes and values; SECONDS=600 SEED=7 for a part of it
	@$(BIN)/python tests/testing/misuse_all.py $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

certificates: env  ## simulation-based calibration of every model function by every engine; SECONDS=600 SEED=7 for some
	@$(BIN)/python tests/testing/certificates.py $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

nightly: SECONDS = 36000
nightly: env  ## slow, fuzz, faults, hostile, misuse and certificates, each its share of ten hours; SECONDS=60 SEED=7
	@$(BIN)/python tests/nightly.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

times: env  ## measure the tests on an empty cache, and which of them `make test` leaves out
	@rm -rf .cache/times .cache/times.txt && mkdir -p .cache
	@JAX_COMPILATION_CACHE_DIR=.cache/times TEST_TIMES=.cache/times.txt $(BIN)/python -m pytest -n $(WORKERS) -q -m "not slow"
	@$(BIN)/python tests/long_tests.py .cache/times.txt

lint: env  ## ruff, and mypy over probml/ and models/
	@$(BIN)/ruff check .
	@$(BIN)/mypy --no-error-summary

bench: env  ## time against peers, cold and warm (CASE=many QUICK=1 ONLY=chain PEERS=python-that-has-them)
	@$(if $(PEERS),PEERS=$(PEERS)) $(BIN)/python benchmarks/run.py $(CASE) $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

notebooks: env  ## execute every notebook in place
	@$(BIN)/python -c "$$EXECUTE" notebooks/*.ipynb notebooks/course/*.ipynb

gallery: env  ## draw the pictures of docs/gallery.md and docs/tasks/ anew
	@$(BIN)/python tests/gallery.py

house: env  ## draw which room imports which (docs/house.png)
	@$(BIN)/python tests/house.py

docs: env links  ## build the documentation site into out/site (needs the extra docs, which the lock leaves out)
	@$(BIN)/python $(PIP) install -q "mkdocs-material>=9.5" "mkdocstrings[python]>=0.29" "latex2mathml>=3.77"
	@$(BIN)/python -m mkdocs build

dist: env  ## a wheel and a source archive, tried in an empty environment of every Python at hand
	@$(BIN)/python tests/packing.py

lock:  ## resolve pyproject.toml again into requirements.lock
	@test -x $(LOCKER)/bin/pip-compile || { $(PYTHON) -m venv $(LOCKER) && $(LOCKER)/bin/python $(PIP) install -q pip-tools; }
	@$(LOCKER)/bin/pip-compile -q --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-options \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  $(addprefix --extra ,$(EXTRAS)) --output-file requirements.lock pyproject.toml

clean:  ## remove the environment, caches and build outputs
	@rm -rf $(VENV) .cache .hypothesis .pytest_cache .ruff_cache build dist *.egg-info out
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
