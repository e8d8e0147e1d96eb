# Two commands matter: `make run` and `make test`. The rest is listed by `make help`.

export CARGO ?= cargo
HOST := $(shell rustc --print host-tuple)
# What tests drive: built for the time between an edit and its result, with assertions on.
TEST_BIN := $(CURDIR)/target/$(HOST)/debug/stead
FUZZ_SECONDS ?= 60
FUZZ_FLAGS ?=
# Of `make chaos` and `make power-cut`; an empty seed is taken from the clock and printed.
SECONDS ?= 1800
SEED ?=
CUTS ?= 200
# Of `make flaky`.
TEST ?=
N ?= 50
CHAOS_FAULTS ?= kill,term,host-kill,shell-kill,vanish,stop,descriptors
CHAOS_BIN ?= target/release/stead
# Programs some tests drive; without them those tests say that they are skipped.
TOOLS := zsh busybox tmux strace
# The same for sandboxes: program and package.
SANDBOX_TOOLS := dockerd:docker.io podman:podman runc:runc nft:nftables ip:iproute2 mkfs.ext4:e2fsprogs perl:perl-base pasta:passt

.PHONY: help run build test-bin web test check rust nextest flaky sdk browser screenshots screen short-fuzz tools bench bench-terminals bench-containers bench-sdk bench-quick soak chaos short-chaos power-cut chaos-build fuzz fmt lint deny

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

run: web build ## build everything and run the server
	exec target/release/stead serve

build: ## build the release binary as target/release/stead
	$(CARGO) build --release
	@mkdir -p target/release
	@ln -sf ../$(HOST)/release/stead target/release/stead

web: web/dist/index.html ## build the web app into web/dist, which the binary embeds

# Only when a source changed: the crate that embeds it is compiled again after every build.
web/dist/index.html: web/node_modules/.package-lock.json $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -path web/tests -prune -o -type f -print)
	@if command -v npm >/dev/null; then npm --prefix web run --silent build && touch $@; \
	else echo "web: no npm here; the binary will say how to build the app"; fi

web/node_modules/.package-lock.json: web/package-lock.json
	@if command -v npm >/dev/null; then npm --prefix web ci --no-audit --no-fund --silent && touch $@; fi

test: tools web check rust sdk browser screen short-fuzz ## run all tests
	@echo "all tests passed"

tools:
	@missing=; for tool in $(TOOLS) $(SANDBOX_TOOLS); do \
	  command -v $${tool%%:*} >/dev/null || missing="$$missing $${tool##*:}"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
	      || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing >/dev/null; } \
	      || echo "tools: cannot install$$missing; tests that need them are skipped"; \
	  else echo "tools: without$$missing some tests are skipped"; fi; fi

check: ## formatting and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@if command -v npm >/dev/null; then cd web && npm run --silent lint && npm test --silent; else echo "check: no npm; web lints and tests skipped"; fi

rust: nextest
	$(CARGO) nextest run --workspace

nextest:
	@$(CARGO) nextest --version >/dev/null 2>&1 || (cd / && $(CARGO) install --locked cargo-nextest)

flaky: nextest ## run TEST N (50) times, to reproduce a test that failed once
	$(CARGO) nextest run --workspace --stress-count $(N) $(TEST)

test-bin:
	$(CARGO) build

sdk: test-bin ## other people's clients, from their registries, against the real binary
	@python3 -c 'import ensurepip, venv' 2>/dev/null \
	  || $(MAKE) --no-print-directory tools TOOLS=python3-with-venv:python3-venv SANDBOX_TOOLS=
	@if command -v python3 >/dev/null; then STEAD_BIN=$(TEST_BIN) tests/sdk/run; \
	else echo "sdk: no python3; skipped"; fi

browser: test-bin ## the web app in a real browser, against the real binary
	@if ! command -v npm >/dev/null; then echo "browser: no npm; skipped"; \
	else $(MAKE) --no-print-directory tools TOOLS=chromium; \
	  if command -v chromium >/dev/null; then STEAD_BIN=$(TEST_BIN) npm --prefix web run --silent e2e; \
	  else echo "browser: no chromium; skipped"; fi; fi

screenshots: web build ## pictures of the main views into docs/screenshots
	@$(MAKE) --no-print-directory tools TOOLS=chromium
	STEAD_BIN=$(CURDIR)/target/release/stead npm --prefix web run --silent screenshots

screen: ## the screen against xterm.js, if node is here
	@if command -v npm >/dev/null; then sh crates/vt/tests/xterm/run.sh; \
	else echo "screen: no npm; skipped"; fi

short-fuzz:
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=20 FUZZ_FLAGS=-seed=1

# The code behind the targets has no `unsafe` of its own, so no sanitizer is needed, and with that
# no nightly compiler.
fuzz: ## each fuzz target for FUZZ_SECONDS (60)
	@if ! command -v cargo-fuzz >/dev/null && ! (cd / && $(CARGO) install --quiet cargo-fuzz); then \
	  echo "fuzz: skipped, cargo-fuzz is not here and cannot be installed"; \
	else for target in $$($(CARGO) fuzz list); do \
	  echo "fuzz: $$target for $(FUZZ_SECONDS) s"; \
	  mkdir -p fuzz/corpus/$$target; seeds=; [ ! -d fuzz/seeds/$$target ] || seeds=fuzz/seeds/$$target; \
	  $(CARGO) fuzz run --sanitizer none --target $(HOST) $$target fuzz/corpus/$$target $$seeds -- \
	    -max_total_time=$(FUZZ_SECONDS) $(FUZZ_FLAGS) >fuzz/corpus/$$target.log 2>&1 \
	    || { cat fuzz/corpus/$$target.log; exit 1; }; \
	  tail -n 1 fuzz/corpus/$$target.log; done; fi

bench: bench-terminals bench-containers bench-sdk ## the numbers of the README, then each part alone
	$(CARGO) bench --workspace
	benches/vt/run.sh

bench-terminals: build ## terminals and commands beside tmux and node, as in the README
	benches/run

bench-containers: build tools ## a fresh thread in Docker and in Podman, beside the engines alone
	benches/containers

bench-sdk: build ## what E2B's own Python client costs against us
	STEAD_BIN=$(CURDIR)/target/release/stead tests/sdk/run --bench

bench-quick: build ## the same with small numbers, in two minutes
	benches/run --quick

soak: build ## the long forms of the tests: hours, not minutes
	STEAD_SOAK=1 $(CARGO) test --release --workspace -- --nocapture

chaos-build:
	$(CARGO) build --release -p chaos

chaos: build chaos-build ## random operations under faults for SECONDS (1800), with histories checked; SEED replays
	$(RELEASE)/chaos --bin $(CHAOS_BIN) --seconds $(SECONDS) --faults $(CHAOS_FAULTS) $(if $(SEED),--seed $(SEED))

power-cut: build chaos-build ## CUTS (200) power cuts at random block writes; needs root
	$(RELEASE)/chaos power-cut --bin $(CHAOS_BIN) --clients 4 --seconds 20 --cuts $(CUTS) $(if $(SEED),--seed $(SEED))

# The short forms, with seeds of their own so that they test the same plan every time.
short-chaos: build chaos-build
	$(RELEASE)/chaos --bin $(CHAOS_BIN) --seconds 25 --faults $(CHAOS_FAULTS) --seed 1
	@if [ "$$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ]; then \
	  $(RELEASE)/chaos power-cut --bin $(CHAOS_BIN) --clients 4 --seconds 5 --cuts 20 --seed 1; \
	else echo "power-cut: skipped, it needs root, /dev/fuse and loop devices"; fi

fmt: ## format everything
	$(CARGO) fmt --all

lint: check deny ## lints and licences

deny:
	@if command -v cargo-deny >/dev/null; then cargo deny check; \
	else echo "deny: skipped, cargo-deny is not installed"; fi
