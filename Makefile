# make demo   set up, record both runs of an OpenMP program, name the flag
# make test   set up, lint, run every test
# make lint   formatters, linters, types, layering
# Set-up is part of every target and cheap when there is nothing to do.

VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := build/stamps
CARGO  := cargo

PACKAGE_SOURCES := $(shell find flagfinder bindings core pintools include bpf frida_agents lldb_scripts -type f \
	-not -path '*/target/*' -not -path '*/__pycache__/*' -not -name '*.so' -not -name '*.md') \
	setup.py pyproject.toml Cargo.toml Cargo.lock
# Each clippy has other opinions: those of this one are errors, those of older and newer ones are shown.
CLIPPY_OF_RECORD := 0.1.95
STRICT = $(if $(findstring $(CLIPPY_OF_RECORD),$(shell $(CARGO) clippy --version)),-D warnings)
RUST_TESTS := --workspace --exclude flagfinder-bindings --release --locked

.PHONY: demo test lint setup tracer samples clean

demo: tracer
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh samples/demo/run.sh build/demo

test: lint tracer $(STAMPS)/packages-live
	$(CARGO) test $(RUST_TESTS)
	FF_REQUIRE_LIVE=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest

lint: $(STAMPS)/dev $(STAMPS)/packages-lint
	$(BIN)/ruff check flagfinder tests bench lldb_scripts setup.py
	$(BIN)/ruff format --check flagfinder tests bench lldb_scripts setup.py
	$(BIN)/mypy
	PYTHONPATH=$(CURDIR) $(BIN)/lint-imports --no-cache
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --release --locked -- $(STRICT)
	git ls-files 'pintools/*.[ch]' 'include/*.h' 'bpf/*.[ch]' | xargs $(BIN)/clang-format --dry-run -Werror

setup: $(STAMPS)/installed

# The tracer's build is keyed by its sources; this asks for it and for its health check.
tracer: $(STAMPS)/installed
	@$(BIN)/flagfinder record --check

clean:
	rm -rf build target $(VENV) flagfinder.egg-info

$(STAMPS)/packages: .ci/packages.txt .ci/setup | $(STAMPS)/.made
	.ci/setup packages
	@touch $@

$(STAMPS)/packages-lint: .ci/packages-lint.txt $(STAMPS)/packages
	command -v rustfmt >/dev/null && command -v cargo-clippy >/dev/null || .ci/setup packages .ci/packages-lint.txt
	@touch $@

$(STAMPS)/packages-live: tests/live/packages.txt $(STAMPS)/packages
	.ci/setup packages tests/live/packages.txt
	@touch $@

$(STAMPS)/installed: $(PACKAGE_SOURCES) $(STAMPS)/packages
	.ci/setup venv $(VENV)
	$(BIN)/pip install --quiet .
	@touch $@

$(STAMPS)/dev: .ci/requirements.txt $(STAMPS)/installed
	$(BIN)/pip install --quiet -r .ci/requirements.txt
	@touch $@

$(STAMPS)/.made:
	@mkdir -p $(STAMPS)
	@touch $@
