# Two commands do all the set-up:
#
#   make notebook    JupyterLab, open on the quickstart
#   make test        every check that passes without a GPU
#
# Needs Python 3.10 or newer, git and make. Another Python: make test PYTHON=python3.12
# Everything is installed into .venv in this folder; no kernel is registered outside it.

PYTHON ?= python3
# More options for JupyterLab, e.g. LAB_ARGS="--no-browser --port 9000"
LAB_ARGS ?=
# More options for pytest, e.g. PYTEST_ARGS="-x -k tensor"
PYTEST_ARGS ?=
# Processes that the tests are spread over; 0 for the one that you may want a debugger in
PYTEST_WORKERS ?= 2

ifeq ($(OS),Windows_NT)
BIN := .venv/Scripts
else
BIN := .venv/bin
# So that the address on the terminal leads to the quickstart too, where no browser can be opened.
LAB_URL := --LabApp.default_url=/lab/tree/notebooks/00_quickstart.ipynb
endif

PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
QUICKSTART := notebooks/00_quickstart.ipynb
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
SANITIZE := $(wildcard notebooks/sanitize.cfg)

# JupyterLab refuses to start as root, the only user that many containers have, unless told.
ifeq ($(shell id -u 2>/dev/null),0)
LAB_ROOT := --allow-root
endif

.PHONY: help notebook test lint check-notebooks coverage format bench clean

help:
	@echo "make notebook   open JupyterLab on the quickstart"
	@echo "make test       run every check that passes without a GPU"
	@echo "make lint       style, types, import rules and order only"
	@echo "make coverage   tests with a coverage report"
	@echo "make format     let ruff format the code"
	@echo "make bench      measure"
	@echo "make clean      remove .venv, builds and caches"

# The stamps make a second run instant; a changed pyproject.toml installs again.

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	    echo "Python 3.10 or newer is needed, and '$(PYTHON)' is not one. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot make virtual environments. On Debian or Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	@echo "Making the virtual environment .venv"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/installed-notebook: .venv/pyvenv.cfg pyproject.toml
	@echo "Installing what the notebooks need into .venv (once, a minute or two)"
	@$(PIP_INSTALL) --editable ".[notebook]"
	@touch $@

.venv/installed-test: .venv/pyvenv.cfg pyproject.toml
	@echo "Installing what the checks need into .venv (once, a minute or two)"
	@$(PIP_INSTALL) --editable ".[test]"
	@touch $@

# Jupyter's own data (which notebooks are trusted, running servers) is kept in .venv as well. The committed
# outputs are trusted, so that they show at once as they were saved.
JUPYTER := JUPYTER_DATA_DIR="$(CURDIR)/.venv/share/jupyter-data" $(BIN)/jupyter

notebook: .venv/installed-notebook
	@$(JUPYTER) trust $(NOTEBOOKS) >/dev/null
	@$(JUPYTER) lab --ServerApp.root_dir="$(CURDIR)" $(LAB_URL) $(LAB_ROOT) $(LAB_ARGS) $(QUICKSTART)

# Style and notebooks side by side; pytest comes last, so that its summary closes the output.
test: .venv/installed-test
	@$(MAKE) --no-print-directory -j2 lint check-notebooks
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) $(PYTEST_ARGS)

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/packaging/structure.py

# Notebooks are run in this environment and their outputs compared with the committed ones. Warnings are
# the kernel's affair here, hence -W default.
check-notebooks: .venv/installed-test
ifneq ($(NOTEBOOKS),)
	$(BIN)/python -m pytest -W default --nbval --nbval-current-env --nbval-cell-timeout=300 \
	    $(addprefix --nbval-sanitize-with ,$(SANITIZE)) $(NOTEBOOKS)
endif

coverage: .venv/installed-test
	$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)

format: .venv/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed-test
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache \
	    .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -type d -prune -exec rm -rf {} +
