# From a fresh clone, with nothing but Python 3.11 or later:
#   make demo   installs, then lets the shipped small model answer with and without a constraint
#   make test   installs, then runs linter, type checker and all tests, README and notebook included
# PYTHON=python3.13 chooses the interpreter, VENV=elsewhere the environment's folder, WORKERS=4 the test processes.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
PARITY_VENV ?= .venv-parity
GEMMA4_VENV ?= .venv-gemma4
BENCH_VENV ?= .venv-bench
SERVERS_VENV ?= .venv-servers
JAX_EXTRA ?= cuda12
WORKERS ?= 2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
# Tests are about results, not about speed, and must not depend on the accelerator at hand.
# Most of their time would go into XLA's compiler: programs that run once need little optimization. XLA_FLAGS= asks for all of it.
XLA_FLAGS ?= --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
# Bytecode is written even where the caller asks for none: every process that a test starts would compile the packages again.
TEST_ENV := JAX_PLATFORMS=cpu PYTHONHASHSEED=0 MPLBACKEND=Agg PYTHONDONTWRITEBYTECODE= XLA_FLAGS='$(XLA_FLAGS)'

.PHONY: help
help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*##  */  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "constrax needs Python 3.11 or later; name one: make PYTHON=python3.13 ...")'
	$(PYTHON) -m venv $(VENV)

# The stamps say what is installed; they are older than pyproject.toml when it has changed. Modules are compiled as they are imported: pip
# would compile all of them, which takes a third of the installation.
$(VENV)/.installed-all: pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) (once) ..."
	$(PIP) install --no-compile -e '.[all]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) (once) ..."
	$(PIP) install --no-compile -e '.[test]'
	@touch $@ $(VENV)/.installed-all

.PHONY: install
install: $(VENV)/.installed-all  ## environment with everything a user needs

DEMO_PROMPTS := \
	$$'Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\nJSON: ' \
	$$'Bio: Nina Stone was born in 1974 in Oslo and works as a pilot.\nJSON: ' \
	$$'Bio: Hugo Fields was born in 1990 in Lima and works as a baker.\nJSON: '
DEMO_PATTERN := '\{"name": "[A-Z][a-z]+( [A-Z][a-z]+){1,2}", "born": (1[89]|20)[0-9]{2}, "city": "[A-Z][a-z]+", "occupation": "[a-z ]+"\}'
SEED ?= 7
DEMO_OPTIONS := --temperature 1 --seed $(SEED) --max-new-tokens 64 --no-progress

.PHONY: demo
demo: $(VENV)/.installed-all  ## a small model writes JSON, with and without a constraint
	@printf '%s\n' '' 'Three prompts such as:' '' $$'  Bio: Ada Lovelace was born in 1815 in London and works as a mathematician.\n  JSON: '
	@printf '%s\n' '' '1. Without a constraint the model sometimes writes what nobody asked for (SEED=8 for other samples):' ''
	@$(BIN)/jax-decode $(DEMO_OPTIONS) $(DEMO_PROMPTS)
	@printf '%s\n' '' '2. With the same seed, inside the language of the regular expression' '' $(DEMO_PATTERN) '' 'it writes:' ''
	@$(BIN)/jax-decode $(DEMO_OPTIONS) --pattern $(DEMO_PATTERN) $(DEMO_PROMPTS)

# The site is built without importing the packages, in an environment of its own.
.venv-docs/bin/mkdocs: | $(BIN)/python
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check --no-input -q install 'mkdocs-material>=9.6' 'mkdocstrings[python]>=0.29'

.PHONY: figures
figures: $(VENV)/.installed-test  ## draw the site's figures anew
	JAX_PLATFORMS=cpu $(BIN)/python docs/figures/make_figures.py

.PHONY: docs
docs: .venv-docs/bin/mkdocs  ## the documentation site, into build/site
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict -q

.PHONY: test-pages
test-pages: docs  ## the site in a browser, in two widths; screenshots go to build/pages (needs chromium and chromedriver)
	.venv-docs/bin/python -m pip --disable-pip-version-check --no-input -q install selenium pytest
	.venv-docs/bin/python -m pytest -c /dev/null --rootdir . -p no:cacheprovider tests/pages

# The type checker keeps one core busy for a minute: it runs beside the tests. CI has no next time to keep its cache for.
.PHONY: test
test: lint  ## linter, type checker, all tests
	+$(MAKE) --no-print-directory -j2 types pytest

.PHONY: lint
lint: $(VENV)/.installed-test  ## ruff
	$(BIN)/ruff check .

.PHONY: types
types: $(VENV)/.installed-test  ## mypy
	$(BIN)/mypy $(if $(CI),--cache-dir=/dev/null)

.PHONY: pytest
pytest: $(VENV)/.installed-test  ## the tests alone (ARGS='tests/test_readme.py -x' chooses)
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --durations 15 $(ARGS)

.PHONY: test-exhaustive
test-exhaustive: $(VENV)/.installed-test  ## the tests, exhaustive checks in full (hours)
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --exhaustive --durations 15

# The official package pulls TensorFlow and an older SentencePiece, so it lives in an environment of its own (Python 3.11;
# every version is pinned, because the resolver needs many minutes for this set).
PINNED := tests/models/parity/requirements
$(PARITY_VENV)/.installed: $(PINNED)-gemma3.txt $(PINNED)-common.txt
	$(PYTHON) -m venv $(PARITY_VENV)
	$(PARITY_VENV)/bin/python -m pip --disable-pip-version-check --no-input -q install --no-deps -r $<
	@touch $@

# The same with gemma 4, which needs a later Python, jax and flax.
$(GEMMA4_VENV)/.installed: $(PINNED)-gemma4.txt $(PINNED)-common.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12) and "gemma 4 needs Python 3.12 or later; name one: make PYTHON=python3.12 test-gemma4")'
	$(PYTHON) -m venv $(GEMMA4_VENV)
	$(GEMMA4_VENV)/bin/python -m pip --disable-pip-version-check --no-input -q install --no-deps -r $<
	@touch $@

.PHONY: test-parity
test-parity: $(PARITY_VENV)/.installed  ## logits beside the gemma package; constraints in its and tunix's samplers, with the notebook (minutes, not in CI)
	PYTHONPATH=. $(TEST_ENV) $(PARITY_VENV)/bin/python -m pytest -o filterwarnings=default tests/models/parity tests/integrations 'tests/test_notebooks.py::test_the_notebook_runs[reinforcement]' $(ARGS)

.PHONY: test-gemma4
test-gemma4: $(GEMMA4_VENV)/.installed  ## the same with gemma 4 (Python 3.12 or later; minutes, not in CI)
	PYTHONPATH=. $(TEST_ENV) $(GEMMA4_VENV)/bin/python -m pytest -o filterwarnings=default tests/models/parity tests/integrations $(ARGS)

# Ray, with the compiling half only.
.venv-ray/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip --disable-pip-version-check --no-input -q install -e '.[ray]' 'pytest>=8'
	@touch $@

.PHONY: test-ray
test-ray: .venv-ray/.installed  ## batches on a Ray cluster of this machine
	.venv-ray/bin/python -m pytest -c /dev/null --rootdir . --import-mode importlib -p no:cacheprovider tests/integrations/test_ray.py

# vLLM as it is published (some gigabytes); tpu-inference needs Python 3.12 and is tested where it is installed beside it.
$(SERVERS_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(SERVERS_VENV)
	$(SERVERS_VENV)/bin/python -m pip --disable-pip-version-check --no-input -q install -e '.[compile,decode,models]' 'pytest>=8' 'vllm==0.33.0'
	@touch $@

.PHONY: test-servers
test-servers: $(SERVERS_VENV)/.installed  ## the backend in vLLM's own manager, constraints in its TPU runner's loop (minutes, not in CI)
	PYTHONPATH=.:tests JAX_PLATFORMS=cpu $(SERVERS_VENV)/bin/python -m pytest -o filterwarnings=default -p no:cacheprovider tests/interop/test_vllm_backend.py tests/integrations/test_tpu_inference.py tests/integrations/test_tpu_runner.py $(ARGS)

# Only common benchmark scripts: compilers.py is a part of compile_speed.py, tpu_aot.py needs a TPU compiler.
BENCHMARKS ?= benchmarks/compile_speed.py benchmarks/grammar_speed.py benchmarks/device_step.py benchmarks/conformance.py

# The libraries that are compared with live in an environment of their own, too.
$(BENCH_VENV)/.installed: pyproject.toml
	@echo "Installing into $(BENCH_VENV) (once) ..."
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip --disable-pip-version-check --no-input -q install -e '.[all,bench]'
	@touch $@

.PHONY: bench
bench: $(BENCH_VENV)/.installed  ## the benchmarks; raw figures go to benchmarks/results (BENCHMARKS=... chooses)
	for script in $(BENCHMARKS); do echo "== $$script"; $(BENCH_VENV)/bin/python "$$script"; done

.PHONY: bench-accelerator
bench-accelerator: $(BENCH_VENV)/.installed  ## what a constraint costs on this GPU or TPU; stops after eight minutes (JAX_EXTRA=cuda13, tpu)
	$(BENCH_VENV)/bin/python -m pip --disable-pip-version-check --no-input -q install 'jax[$(JAX_EXTRA)]'
	timeout 480 $(BENCH_VENV)/bin/python benchmarks/accelerator.py

.PHONY: notebook
notebook: $(VENV)/.installed-test  ## run the notebooks' sources and store the outputs
	cd notebooks && export JAX_DECODE_QUIET=1 && for name in welcome quickstart grammars structured_output speculative_and_mass tokenization diffusion agents programs; do ../$(BIN)/jupytext --to ipynb $$name.py && ../$(BIN)/jupyter-execute --inplace $$name.ipynb; done

.PHONY: notebook-tunix
notebook-tunix: $(VENV)/.installed-test $(PARITY_VENV)/.installed  ## the same for the notebook that needs google-tunix
	$(BIN)/jupytext --to ipynb notebooks/reinforcement.py
	cd notebooks && JAX_DECODE_QUIET=1 PYTHONPATH=.. ../$(PARITY_VENV)/bin/jupyter-execute --inplace reinforcement.ipynb

.PHONY: clean
clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist ./*.egg-info
