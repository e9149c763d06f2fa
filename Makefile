# make demo   set up, record both runs of an OpenMP program, name the flag
# make check  the tests that record no program, compiled for that: three minutes on two CPUs
# make test   what a change needs before it goes in: lint and every kind of test, each on a part of
#             the samples, cases and ways
# make soak   what a release needs (hours): every variant of every sample five times, the bars of
#             all rounds, long suites, fuzzing
# make fuzz   feed damaged input to all that reads it for SECONDS (default: 3600), see
#             fuzz/src/lib.rs
# make lab    ask flagfinder about programs with a known truth, see lab/lab.py (hours)
# make lint   formatters, linters, types, layering
# make report render docs/benchmarks.md from bench/results
# make wheel  the wheel with everything inside, for others' machines, in dist/
# make zipapp  one file of what looks at processes and cores, for production hosts, in dist/
# make deb    a Debian package of the wheel with all that it needs, in dist/
# make test-wheel  installs all three in bare systems of Debian 12 and 13, and uses them there
# make test-kernels KERNELS="/path/vmlinuz-6.1 ..."  boots these in QEMU, and uses the wheel there
# make sdist  the archive of the sources, in dist/
# Set-up is part of every target and cheap when there is nothing to do. tests/sizes.py says what is
# in which size.

VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := build/stamps
CARGO  := cargo

PACKAGE_SOURCES := $(shell find flagfinder flagfinder_pytest bindings core graph pintools include \
	bpf frida_agents lldb_scripts -type f \
	-not -path '*/target/*' -not -path '*/__pycache__/*' -not -name '*.so' -not -name '*.md') \
	setup.py share.py pyproject.toml Cargo.toml Cargo.lock
# Each clippy has other opinions: those of this one are errors, those of others are shown.
CLIPPY_OF_RECORD := 0.1.95
STRICT = $(if $(findstring $(CLIPPY_OF_RECORD),$(shell $(CARGO) clippy --version)),-D warnings)
# Of what is compiled for the package, nothing is compiled again for its tests: the same crates are
# chosen, with the same features. Those of `make check` are in the profile for development.
CHECKED := --workspace --exclude flagfinder-fuzz --locked
RUST_TESTS := --workspace --locked --release

PYTEST := MAKEFLAGS= FF_REQUIRE_LIVE=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest
# Each test has a time limit (pyproject.toml). These are for all of them, in seconds; pytest then
# shows what ran until then.
BESIDE_TEST := 2700
ALONE_TEST := 1800

LAB := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python lab/lab.py

.PHONY: lab lab-check lab-quick lab-keep demo check check-built check-rust check-python test \
	test-static test-live test-live-and-lint-rust soak fuzz lint lint-rust \
	lint-others report test-rust setup tracer samples clean wheel zipapp deb test-wheel \
	test-kernels sdist

demo:
	@echo "This builds flagfinder (the first time a quarter of an hour on two processors), records a"
	@echo "good and a hanging run of a program, and names what the hanging one waits for (a minute)."
	@$(MAKE) --no-print-directory tracer
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh samples/demo/run.sh build/demo

# Installing packages runs beside the compiler, and building the engine beside the tests of Rust,
# which wait for a part of their time.
check:
	@$(MAKE) --no-print-directory -j2 $(STAMPS)/requirements check-built
	@$(MAKE) --no-print-directory -j2 --output-sync=target check-rust check-python

check-built: $(STAMPS)/packages
	$(CARGO) build $(CHECKED) $(EXAMPLES:%=--example %) --tests

check-rust: export FF_CHECK := 1
check-rust: check-built
	$(CARGO) test $(CHECKED) --tests --no-fail-fast --quiet

check-python: $(STAMPS)/check
	FF_CARGO_PROFILE=dev PYTHONPATH="$(CURDIR)/build/check" \
		PATH="$(CURDIR)/build/check/bin:$(CURDIR)/$(BIN):$$PATH" \
		$(BIN)/pytest -m "not live" tests/unit tests/events

# Compiling needs no network, and installing the rest needs little of a CPU: they run side by side.
test:
	@$(MAKE) --no-print-directory -j2 $(STAMPS)/dev $(STAMPS)/packages-live $(STAMPS)/packages-lint
	@$(MAKE) --no-print-directory test-static test-live-and-lint-rust
	@$(MAKE) --no-print-directory lab-quick

# Linters of Python need one CPU and nothing that cargo builds: they run beside it.
test-static: $(STAMPS)/dev $(STAMPS)/packages-lint
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint-others test-rust tracer

# Clippy takes what the tests leave of the CPUs.
test-live-and-lint-rust:
	@$(MAKE) --no-print-directory -j2 test-live lint-rust ASIDE="chrt --idle 0"

# Most tests wait more than they compute: three files at a time. tests/sizes.py says which need the
# machine alone.
test-live: $(STAMPS)/dev $(STAMPS)/packages-live
	$(PYTEST) -n 3 --dist loadfile -m "not alone and not waits" --session-timeout=$(BESIDE_TEST); \
	beside=$$?; \
	$(PYTEST) -n 3 --dist load -m waits --session-timeout=$(ALONE_TEST); waits=$$?; \
	$(PYTEST) -m alone --session-timeout=$(ALONE_TEST) && exit $$((beside + waits))

soak: export FF_SOAK := 1
soak: $(STAMPS)/dev $(STAMPS)/packages-live $(STAMPS)/requirements-soak tracer test-rust
	$(PYTEST)
	fuzz/run $(SECONDS)

# Some of them step programs that the live tests install; they and those of Python start examples.
EXAMPLES := record protocol_layout watch_layout events_layout
test-rust: $(STAMPS)/packages-live
	$(CARGO) build $(RUST_TESTS) $(EXAMPLES:%=--example %)
	RUSTC_WRAPPER="$(CURDIR)/.ci/rustc-of-tests" .ci/test-rust

lint: lint-others lint-rust

lint-others: $(STAMPS)/dev $(STAMPS)/packages-lint
	$(BIN)/ruff check flagfinder flagfinder_pytest tests bench fuzz lab lldb_scripts setup.py share.py
	$(BIN)/ruff format --check flagfinder flagfinder_pytest tests bench fuzz lab lldb_scripts \
		setup.py share.py
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 flagfinder flagfinder_pytest
	PYTHONPATH=$(CURDIR) $(BIN)/lint-imports --no-cache
	git ls-files 'pintools/*.[ch]' 'include/*.h' 'bpf/*.[ch]' | \
		xargs $(BIN)/clang-format --dry-run -Werror

lint-rust: $(STAMPS)/packages-lint
	$(CARGO) fmt --all --check
	$(ASIDE) $(CARGO) clippy --quiet --workspace --all-targets --release --locked \
		--target-dir target/lint -- $(STRICT)

report:
	python3 bench/report.py

# PART: open, check or sealed; CASES: families or FAMILY/CASE.
lab: $(STAMPS)/dev tracer
	@$(LAB) run $(CASES) $(PART:%=--part %)

lab-check: $(STAMPS)/dev
	@$(LAB) check $(CASES) $(PART:%=--part %)

lab-quick: $(STAMPS)/dev
	@$(LAB) quick --part check

lab-keep:
	@$(LAB) keep && $(LAB) page

SECONDS := 3600
fuzz: $(STAMPS)/packages $(STAMPS)/requirements
	fuzz/run $(SECONDS)

setup: $(STAMPS)/installed

# The tracer's build is keyed by its sources; this asks for it and for its health check.
tracer: $(STAMPS)/installed
	@.ci/tell "checking the tracer" $(BIN)/flagfinder record --check

wheel: $(STAMPS)/requirements $(STAMPS)/wheel-tools
	.ci/tell "building the wheel" .ci/wheel dist

zipapp: wheel
	.ci/zipapp dist/flagfinder-*.whl dist/flagfinder.pyz

deb: wheel
	.ci/deb dist/flagfinder-*.whl dist/flagfinder.deb

# Installs them in bare systems, which are made first: needs root.
test-wheel: zipapp deb
	.ci/test-wheel dist

test-kernels: wheel
	.ci/test-wheel dist $(KERNELS)

sdist: $(STAMPS)/wheel-tools
	build/wheel-tools/bin/python setup.py --quiet sdist --dist-dir dist

clean:
	rm -rf build dist target $(VENV) flagfinder.egg-info

$(STAMPS)/packages: .ci/packages.txt .ci/setup | $(STAMPS)/.made
	@.ci/tell "looking for Debian packages" .ci/setup packages
	@touch $@

$(STAMPS)/packages-lint: .ci/packages-lint.txt $(STAMPS)/packages
	command -v rustfmt >/dev/null && command -v cargo-clippy >/dev/null || \
		.ci/setup packages .ci/packages-lint.txt
	@touch $@

# One installation of packages at a time.
$(STAMPS)/packages-live: tests/live/packages.txt $(STAMPS)/packages | $(STAMPS)/packages-lint
	.ci/setup packages tests/live/packages.txt
	@touch $@

$(STAMPS)/wheel-tools: .ci/wheel-tools.txt $(STAMPS)/packages
	.ci/setup venv build/wheel-tools
	build/wheel-tools/bin/pip install --quiet -r $<
	@touch $@

$(STAMPS)/venv: $(STAMPS)/packages
	.ci/setup venv $(VENV)
	@touch $@

$(STAMPS)/wheel: $(PACKAGE_SOURCES) $(STAMPS)/venv
	rm -rf build/wheel
	@.ci/tell "compiling the engine" \
		$(BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel .
	@touch $@

# The wheel of another source has the same version; then come the packages that it needs.
$(STAMPS)/installed: $(STAMPS)/wheel
	$(BIN)/pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@.ci/tell "installing what it needs" $(BIN)/pip install --quiet flagfinder
	@touch $@

# The engine as `make check` tests it, compiled for that and installed beside the environment.
$(STAMPS)/check: $(PACKAGE_SOURCES) $(STAMPS)/requirements
	rm -rf build/check
	SETUPTOOLS_RUST_CARGO_PROFILE=dev $(BIN)/pip install --quiet --no-deps --no-build-isolation \
		--target build/check .
	@touch $@

$(STAMPS)/requirements: .ci/requirements.txt $(STAMPS)/venv
	$(BIN)/pip install --quiet --no-compile -r .ci/requirements.txt
	@touch $@

# Spark is large.
$(STAMPS)/requirements-soak: .ci/requirements-soak.txt $(STAMPS)/requirements
	$(BIN)/pip install --quiet --no-compile -r .ci/requirements-soak.txt
	@touch $@

$(STAMPS)/dev: $(STAMPS)/requirements $(STAMPS)/installed
	@touch $@

$(STAMPS)/.made:
	@mkdir -p $(STAMPS)
	@touch $@
