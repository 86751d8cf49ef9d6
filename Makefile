# Two commands install everything that they need:
#
#   make notebook    open JupyterLab on the quickstart
#   make test        run every check that passes without a GPU
#
# They need Python 3.10 or newer, git and make. To use another Python: make test PYTHON=python3.12
# Everything is installed into .venv in this folder; no kernel is registered outside it.

PYTHON ?= python3
# The folder of the virtual environment
VENV ?= .venv
# Further versions of Python, for `make test-pythons`
PYTHONS ?= 3.10 3.12 3.13
PYENV_ROOT ?= $(HOME)/.pyenv
# More options for JupyterLab, e.g. LAB_ARGS="--no-browser --port 9000"
LAB_ARGS ?=
# More options for pytest, e.g. PYTEST_ARGS="-x -k tensor"
PYTEST_ARGS ?=
# Number of processes that run the tests; with 0, pytest runs them itself, which a debugger needs. Twice the number of
# cores of a small machine, because many tests wait for a server, a kernel or a browser.
PYTEST_WORKERS ?= 4

ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
# If no browser can be opened, the address in the terminal leads to the quickstart.
LAB_URL := --LabApp.default_url=/lab/tree/notebooks/00_quickstart.ipynb
endif

# Without compiling, which takes a third of the time: few of the modules are imported, and Python compiles those.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings
QUICKSTART := notebooks/00_quickstart.ipynb
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
SANITIZE := $(wildcard notebooks/sanitize.cfg)

# JupyterLab refuses to start as root without this option, and many containers have no other user.
ifeq ($(shell id -u 2>/dev/null),0)
LAB_ROOT := --allow-root
endif

# Tests start a hundred processes that import the package. Without its compiled files, each would compile it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help notebook quick test test-extra test-pythons install-pythons lint check-notebooks coverage format bench docs release clean

help:
	@echo "make notebook   open JupyterLab on the quickstart"
	@echo "make quick      run the checks and tests that belong before every commit"
	@echo "make test       run every check that passes without a GPU"
	@echo "make test-extra run the tests that repeat what others cover, such as benchmarks"
	@echo "make test-pythons run the quick tests with the other installed versions of Python"
	@echo "make lint       check style, types, import rules and structure"
	@echo "make coverage   run the tests with a coverage report"
	@echo "make format     let ruff format the code"
	@echo "make docs       build the manual: docs/_build/html/index.html"
	@echo "make bench      measure what README claims"
	@echo "make release    build the wheel and the sdist, and install each with every version of Python"
	@echo "make clean      remove .venv, builds and caches"

# The stamp files make a second run instant. A changed pyproject.toml installs again.

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	    echo "bls_notebook needs Python 3.10 or newer, and '$(PYTHON)' is older or missing. Use another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot create virtual environments. On Debian or Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	@echo "Creating the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The setting: JupyterLab does not cover the first outputs with a question about news.
$(VENV)/installed-notebook: $(VENV)/pyvenv.cfg pyproject.toml
	@echo "Installing the packages of the notebooks into $(VENV) (once, a minute)"
	@$(PIP_INSTALL) --editable ".[notebook]"
	@mkdir -p $(LAB_SETTINGS)
	@echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}' >$(LAB_SETTINGS)/overrides.json
	@touch $@

$(VENV)/installed-quick: $(VENV)/pyvenv.cfg pyproject.toml
	@echo "Installing the packages of make quick into $(VENV) (once, a minute)"
	@$(PIP_INSTALL) --editable ".[quick]"
	@touch $@

$(VENV)/installed-test: $(VENV)/pyvenv.cfg pyproject.toml
	@echo "Installing the packages of the checks into $(VENV) (once, a minute or two)"
	@$(PIP_INSTALL) --editable ".[test]"
	@touch $@

# Jupyter keeps its data (trusted notebooks, running servers) in .venv as well. JupyterLab shows the committed outputs
# at once because the notebooks are trusted.
JUPYTER := JUPYTER_DATA_DIR="$(CURDIR)/$(VENV)/share/jupyter-data" $(BIN)/jupyter

notebook: $(VENV)/installed-notebook
	@$(JUPYTER) trust $(NOTEBOOKS) >/dev/null
	@$(JUPYTER) lab --ServerApp.root_dir="$(CURDIR)" $(LAB_URL) $(LAB_ROOT) $(LAB_ARGS) $(QUICKSTART)

# The linters and the quick tests need no PyTorch and no JupyterLab, but work beside them.
QUICK_INSTALLED := $(firstword $(wildcard $(VENV)/installed-test) $(VENV)/installed-quick)

# Lint and tests run at the same time. The tests are chosen by `--quick` in tests/conftest.py.
quick: $(QUICK_INSTALLED)
	@$(MAKE) --no-print-directory -j2 lint quick-tests

.PHONY: quick-tests
quick-tests: $(QUICK_INSTALLED)
	$(BIN)/python -m pytest -n 2 --quick $(PYTEST_ARGS)

# Runs the command $(1) with the options $(2), then at most ten tests that failed once more, alone: one that passes then
# depends on other tests or on a busy machine. Its failure stays in the output, and it has to be mended, but it does not
# stop everybody else's work. A test that ended its process ran again at once, in a new one. The cleared cache names no
# failed test if pytest itself fails, and then nothing passes.
once_more = $(1) $(2) --maxfail 11 --cache-clear $(PYTEST_ARGS) || { \
    [ $$? -eq 1 ] && echo "== Once more, alone, what failed above" && \
    $(1) -n 0 --last-failed --last-failed-no-failures none $(PYTEST_ARGS); }

# Lint and notebooks run at the same time. pytest comes last, so that its summary ends the output.
test: $(VENV)/installed-test
	@$(MAKE) --no-print-directory -j2 lint check-notebooks
	$(call once_more,$(BIN)/python -m pytest -m "not extra",-n $(PYTEST_WORKERS))

# Ray and Spark run the recipes of docs/guides/data_sets.md where they can be installed.
test-extra: $(VENV)/installed-test
	-$(BIN)/python -m pip install -q "ray[data]" pyspark datasets pandas
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m extra $$(grep -rl --include="*.py" "mark\.extra" tests) $(PYTEST_ARGS)

# The other versions run the quick tests of what depends on the interpreter, and the recorded conformance kit, each in its
# own environment in .venv. Texts, pictures, exercises and exports depend on it no more than these folders do.
PYTHON_TESTS := $(addprefix tests/,checking completion devices engine lifetimes magics network packaging pb_utils profiling \
    repository testing trying)
PYTHON_TEST = .venv/$*/bin/python -m pytest --quick -o cache_dir=.pytest_cache/$* $(PYTHON_TESTS)

# With make's option -j, the versions run at the same time. One worker each: a second would collect all tests once more.
test-pythons: $(addprefix test-python-,$(PYTHONS))

test-python-%: install-pythons
	@if [ -e .venv/$*/installed-quick ]; then \
	    echo "== Python $*"; \
	    { $(call once_more,$(PYTHON_TEST),-n 1); } && \
	    .venv/$*/bin/python -m pytest -p no:cacheprovider tests/conformance/test_kit.py -k every_recorded_outcome; \
	fi

# pyenv's shims are commands that may name no version, so each candidate has to run. A version that is the one of .venv
# has run all tests already.
install-pythons:
	@for version in $(PYTHONS); do \
	    found=""; \
	    for python in python$$version $(PYENV_ROOT)/versions/$$version.*/bin/python; do \
	        if $$python -c 'import ensurepip, venv' 2>/dev/null; then found=$$python; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "Python $$version is not installed: its tests are skipped"; \
	    elif $(PYTHON) -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')"; then \
	        echo "Python $$version is the one of all other tests"; \
	    else \
	        $(MAKE) --no-print-directory VENV=.venv/$$version PYTHON=$$found .venv/$$version/installed-quick || exit 1; \
	    fi; \
	done

lint: $(QUICK_INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/packaging/structure.py

# Run the notebooks in this environment and compare their outputs with the committed ones. `-W default`: a warning in
# pytest's own process is no error here, because the notebooks' code runs in kernels.
check-notebooks: $(VENV)/installed-test
ifneq ($(NOTEBOOKS),)
	$(BIN)/python -m pytest -p nbval.plugin -p tests.packaging.notebook_outputs -W default \
	    -n $(PYTEST_WORKERS) --dist loadfile --nbval --nbval-current-env --nbval-cell-timeout=300 \
	    $(addprefix --nbval-sanitize-with ,$(SANITIZE)) $(NOTEBOOKS)
endif

coverage: $(VENV)/installed-test
	$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)

format: $(QUICK_INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/installed-test
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

# The release checklist of tests/packaging/release.py.
release: $(VENV)/installed-test
	$(BIN)/python tests/packaging/release.py $(if $(REHEARSE),--rehearse)

$(VENV)/installed-docs: $(VENV)/pyvenv.cfg pyproject.toml
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Sphinx needs Python 3.11 or newer. Use another: make docs PYTHON=python3.12 VENV=.venv-docs"; exit 1; }
	@echo "Installing the packages of the manual into $(VENV)"
	@$(PIP_INSTALL) --editable ".[docs]"
	@touch $@

# A warning is an error: a link that leads nowhere, a page that no other lists. Beside the tests, the search is tried.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -q -b html -W --keep-going docs docs/_build/html
	@[ ! -e $(VENV)/installed-test ] || $(BIN)/python -m pytest -n 0 tests/browser/test_manual.py

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache \
	    docs/_build docs/reference/generated docs/tutorials/*.ipynb \
	    .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -type d -prune -exec rm -rf {} +
