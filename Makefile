# Every target installs what it needs; the machine needs only Python >= 3.10, make and git.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo test browser lint format bench fuzz docs site pictures hooks release-check lock clean

help:
	@echo "make demo    compare five methods in about a minute, after the first installation"
	@echo "make test    run every test"
	@echo "make browser install Chromium for the tests of pages, if possible"
	@echo "make lint    run ruff and mypy --strict"
	@echo "make bench   run the benchmarks of speed, methods and audit"
	@echo "make fuzz    damage every file that is read, in 20,000 ways, and count the outcomes"
	@echo "make docs    update the tables and numbers in README and docs/"
	@echo "make site    build the documentation, build/site/index.html"
	@echo "make pictures  take the screenshots in docs/images in a real browser"
	@echo "make hooks   install a git hook that runs ruff and mypy before every commit"
	@echo "make release-check  build the package and follow the README in a clean environment"
	@echo "make lock    pin the tested versions in constraints.txt"

# torch is pinned through constraints.txt, so that no GPU build is pulled in by accident.
$(VENV)/.base:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q "pip>=25.1"
	@touch $@
$(VENV)/.run: $(VENV)/.base pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e ".[all]"
	@touch $@
$(VENV)/.dev: $(VENV)/.run
	$(PIP) install -q -c constraints.txt --group dev
	@touch $@

demo: $(VENV)/.run
	$(BIN)/proselflc demo --out runs/demo

# Each process gets one half of the tests and then takes from the other's rest, so that fixtures of
# a file are made once. Bytecode is kept, because tests start many processes.
test: $(VENV)/.dev browser
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 --dist worksteal -rs

# Root on Debian can install it; otherwise the tests in a browser are skipped with a message.
browser:
	@command -v chromium >/dev/null \
	|| { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	    && echo "installing chromium" && apt-get update -qq >/dev/null 2>&1 \
	    && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1; } \
	|| printf '%s\n' "" "*** Chromium is not installed and could not be installed:" \
	    "*** THE TESTS IN A REAL BROWSER ARE SKIPPED. Install chromium and run make test again." ""

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/step_cost.py
	$(BIN)/python benchmarks/loader_speed.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/method_cost.py
	$(BIN)/python benchmarks/methods_on_digits.py
	$(BIN)/python benchmarks/estimator.py
	$(BIN)/python benchmarks/detection.py
	$(BIN)/python benchmarks/outside_predictions.py
	$(BIN)/python benchmarks/reviewed_sample.py
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/scaling.py --processes

# A failing case prints the command that repeats it.
fuzz: $(VENV)/.dev
	$(BIN)/python tools/fuzz.py --cases 20000

docs: $(VENV)/.dev
	$(BIN)/proselflc demo --out runs/demo --quiet > docs/printed/demo.txt
	$(BIN)/python examples/own_loop.py > docs/printed/own_loop.txt
	$(BIN)/python tools/fill_documents.py

# Warnings are errors, and every reference to a name must resolve.
site: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -n -q docs build/site
	@echo "open build/site/index.html"

pictures: $(VENV)/.dev browser
	PROSELFLC_PICTURES=docs/images $(BIN)/python -m pytest -q tests/browser/test_pictures.py

hooks: $(VENV)/.dev
	$(BIN)/python tools/install_hook.py

release-check: $(VENV)/.dev
	$(BIN)/python tools/release_check.py

lock: $(VENV)/.base
	$(BIN)/python tools/lock.py > constraints.new && mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
