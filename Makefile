# Everything runs from a .venv inside the project; `make setup` makes it, and each target calls it when needed.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# two processes; each takes a row of neighbouring tests, which share fixtures, and then half of what the other has left
PAIR   := -n 2 --dist worksteal

# compile modules and rewrite the tests' assertions once, also where the environment forbids it: else each of the two
# processes, and of the hundreds that tests start, does it anew
export PYTHONDONTWRITEBYTECODE :=

help:  ## list these targets
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

setup: $(READY)  ## create .venv and install headway with the pinned versions; then: source .venv/bin/activate

demo: $(READY)  ## train a translator of dates (three minutes) and show its attention
	@$(BIN)/headway demo
	@echo; echo "to use the command in this shell: source .venv/bin/activate"

browser:  ## install Debian's chromium for the browser tests, where that is possible; without it they are skipped
	@if [ -x /usr/bin/chromium ]; then echo "chromium is there"; \
	elif ! command -v apt-get >/dev/null || [ "$$(id -u)" -ne 0 ]; then \
	  echo "browser tests will be skipped: install chromium so that /usr/bin/chromium is there (sudo apt-get install chromium)"; \
	elif { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
	  >/dev/null 2>&1; then echo "installed chromium"; \
	else echo "browser tests will be skipped: apt-get could not install chromium"; fi

test: $(READY)  ## every case of every test but the long ones and the proofs (11 minutes on two cores)
	@start=$$(date +%s); $(PYTEST) $(PAIR) -m "not long and not proof"; code=$$?; \
	echo "make test took $$(( $$(date +%s) - start )) s"; exit $$code

test-long: $(READY)  ## the long tests: torch's compiler, runs of every family, browser, hostile files, examples (20 minutes)
	@$(PYTEST) $(PAIR) -m long

check: $(READY)  ## before each commit: format, lint, types, and a case of each fast test (80 seconds on two idle cores)
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(MAKE) --no-print-directory -j 2 --output-sync=target check-types check-tests

check-types: $(READY)
	@$(BIN)/basedpyright

check-tests: $(READY)
	@HEADWAY_CASES=4 $(PYTEST) --sample 1 -m "not slow and not long and not proof"  # one process: the other checks types

proof: $(READY)  ## long proofs: the laws on more cases, and a deliberate defect for each law
	@$(PYTEST) $(PAIR) -m proof -o faulthandler_timeout=7200  # the server is under load for 20 minutes
	@HEADWAY_CASES=200 $(PYTEST) $(PAIR) tests/laws
	@OMP_NUM_THREADS=1 $(BIN)/python tests/laws/mutants.py
	@OMP_NUM_THREADS=1 $(BIN)/python tests/interop/table.py

proof-%: $(READY)  ## train on real data and write docs/RESULTS.md; NAME: multi30k, multi30k-rnn, shakespeare, …
	@$(BIN)/python recipes/prove.py $* $(ARGS)

proof-lessons: $(READY)  ## every lesson at full size, its figures and its answers, with the time of each (half an hour)
	@$(BIN)/python tests/learn/prove_lessons.py $(ARGS)

bench: $(READY)  ## every suite of headway bench, with the peers that are installed; writes docs/BENCHMARKS.md
	@$(BIN)/headway bench all --peers --out docs/BENCHMARKS.md

peers: $(READY)  ## install what headway is compared with
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[peers]' -c constraints.txt

pages: $(READY)  ## write docs/models, docs/tasks and docs/API.md from the code
	@$(BIN)/python docs/pages.py

site: pages  ## the documentation and the pages of the lectures as plain HTML in build/site, offline (two minutes)
	@$(BIN)/python docs/site.py

format: $(READY)  ## format the code and fix lint findings
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

clean:  ## remove .venv, builds and caches
	rm -rf .venv build dist src/*.egg-info src/headway/native/_step.* .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt setup.py src/headway/native/step.c src/headway/native/kernels.h
	@echo "installing into .venv, a minute or two the first time"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps timm -c constraints.txt  # without torchvision
	@touch $@

.PHONY: help setup demo browser test test-long check check-types check-tests proof proof-lessons bench peers pages site format clean
