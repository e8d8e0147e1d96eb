# Two commands matter: `make run` and `make test`. The rest is listed by `make help`.

export CARGO ?= cargo
# Panics keep their backtraces. One for each error costs a static executable 0.1 s: it sorts its unwind tables first.
export RUST_LIB_BACKTRACE ?= 0
# Where everything is built once, what the next build could reuse only takes time.
ifdef CI
export CARGO_INCREMENTAL ?= 0
endif
HOST := $(shell MAKEFLAGS= rustc --print host-tuple)
# The binary that tests run: an unoptimized build with assertions, for a short time between edit and result.
TEST_BIN := $(CURDIR)/target/$(HOST)/debug/stead
RELEASE := target/$(HOST)/release
CARGO_HOME ?= $(HOME)/.cargo
# A release has the same bytes wherever it is built.
SAME_PATHS := RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static --remap-path-prefix=$(CURDIR)=stead --remap-path-prefix=$(CARGO_HOME)=cargo" \
  CFLAGS="-ffile-prefix-map=$(CURDIR)=stead -ffile-prefix-map=$(CARGO_HOME)=cargo"
FUZZ_SECONDS ?= 60
# Options of `make chaos` and `make power-cut`; an empty seed is taken from the clock and printed.
SECONDS ?= 1800
SEED ?=
CUTS ?= 200
# Options of `make flaky`.
TEST ?=
N ?= 50
CHAOS_PROVIDER ?= local
# A full disk and a failing fsync need root.
CHAOS_FAULTS ?= kill,term,host-kill,shell-kill,vanish,stop,descriptors,clock$(shell [ "$$(id -u)" != 0 ] || echo ,disk,fsync)
CHAOS_BIN ?= target/release/stead
# Programs that some tests need; a test without its program is skipped with a message.
TOOLS := zsh busybox tmux strace
# Programs that sandbox tests need, each with its package.
SANDBOX_TOOLS := dockerd:docker.io podman:podman runc:runc nft:nftables ip:iproute2 mkfs.ext4:e2fsprogs perl:perl-base pasta:passt docker-registry:docker-registry psql:postgresql

.PHONY: help run build dist packages-test manifests deploy-test test-kubernetes upgrade-test test-bin web test installs python chromium firefox check check-web rust nextest flaky book docs embed sdk mcp typescript browser screenshots screen tools bench bench-terminals bench-containers bench-door bench-sdk bench-web bench-quick soak chaos power-cut chaos-build fuzz fmt lint deny

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

run: web build ## build everything and run the server
	exec target/release/stead serve

build: ## build the release binary as target/release/stead
	$(CARGO) build --release
	@mkdir -p target/release
	@ln -sf ../$(HOST)/release/stead target/release/stead

web: web/dist/index.html.gz ## build the web app into web/dist, which the binary embeds

# Only when a source changed: the crate that embeds it is compiled again after every build.
web/dist/index.html.gz: web/node_modules/.package-lock.json $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -path web/tests -prune -o -type f -print)
	@if command -v npm >/dev/null; then npm --prefix web run --silent build && touch $@; \
	else echo "web: no npm here; the binary will say how to build the app"; fi

web/node_modules/.package-lock.json: web/package-lock.json
	@if command -v npm >/dev/null; then npm --prefix web ci --no-audit --no-fund --silent && touch $@; fi

# What the suites need is downloaded while the Rust tests compile.
test: tools web nextest ## run all tests
	$(CARGO) fmt --all --check
	@$(MAKE) --no-print-directory --jobs=2 test-bin installs
	@$(MAKE) --no-print-directory rust check-web book sdk mcp browser screen deploy-test
	@echo "all tests passed"

installs: docs/node_modules/.package-lock.json sdk/typescript/node_modules/.package-lock.json python chromium firefox
	@if command -v python3 >/dev/null; then tests/sdk/run --install; fi

python:
	@python3 -c 'import ensurepip, venv' 2>/dev/null \
	  || $(MAKE) --no-print-directory tools TOOLS=python3-with-venv:python3-venv SANDBOX_TOOLS=

# One after another, because each may install packages.
chromium: | python
	@$(MAKE) --no-print-directory tools TOOLS=chromium SANDBOX_TOOLS=

# By itself: where there is no such package, Chromium is installed all the same.
firefox: | chromium
	@$(MAKE) --no-print-directory tools TOOLS=firefox-esr SANDBOX_TOOLS=

# An old list of packages may name versions that are too old for the tests.
tools:
	@missing=; for tool in $(TOOLS) $(SANDBOX_TOOLS); do \
	  command -v $${tool%%:*} >/dev/null || missing="$$missing $${tool##*:}"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq; \
	    apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $$missing >/dev/null \
	      || echo "tools: cannot install$$missing; tests that need them are skipped"; \
	  else echo "tools: some tests are skipped without$$missing"; fi; fi

check: ## check formatting and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@$(MAKE) --no-print-directory check-web

check-web: web/node_modules/.package-lock.json
	@if command -v npm >/dev/null; then cd web && npm run --silent lint && npm test --silent; else echo "check: no npm; web lints and tests skipped"; fi

# Clippy compiles our crates for the tests, so that they are read once; `make check` lints without compiling.
# Without the flags of make, whose job server would leave it one job.
LINTED := MAKEFLAGS= RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings

rust: test-bin
	$(LINTED) $(CARGO) nextest run --workspace
	@$(LINTED) $(CARGO) build --workspace --benches

nextest:
	@$(CARGO) nextest --version >/dev/null 2>&1 || (cd / && $(CARGO) install --locked cargo-nextest)

flaky: nextest ## run TEST N (50) times, to reproduce a test that failed once
	$(LINTED) $(CARGO) nextest run --workspace --stress-count $(N) $(TEST)

# By the same command as the tests: another would compile everything again for other features.
test-bin: nextest
	@$(LINTED) $(CARGO) nextest run --workspace --no-run

sdk: test-bin typescript python ## run our SDKs, and those of E2B and Daytona from their registries, against the real binary
	@if command -v python3 >/dev/null; then STEAD_BIN=$(TEST_BIN) tests/sdk/run; \
	else echo "sdk: no python3; skipped"; fi

typescript: test-bin sdk/typescript/node_modules/.package-lock.json
	@if command -v npm >/dev/null; then STEAD_BIN=$(TEST_BIN) npm --prefix sdk/typescript test --silent; \
	else echo "typescript: no npm; skipped"; fi

sdk/typescript/node_modules/.package-lock.json: sdk/typescript/package-lock.json
	@if command -v npm >/dev/null; then npm --prefix sdk/typescript ci --ignore-scripts --no-audit --no-fund --silent && touch $@; fi

# STEAD_BIN names another binary than the one of the tests.
BOOK_BIN = $(or $(STEAD_BIN),$(TEST_BIN))

docs: $(if $(STEAD_BIN),,test-bin) docs/node_modules/.package-lock.json ## build the book, with its reference, into docs/.vitepress/dist
	@if command -v npm >/dev/null; then STEAD_BIN=$(BOOK_BIN) docs/scripts/reference.py && npm --prefix docs run --silent build; \
	else echo "docs: no npm; skipped"; fi

docs/node_modules/.package-lock.json: docs/package-lock.json
	@if command -v npm >/dev/null; then npm --prefix docs ci --ignore-scripts --no-audit --no-fund --silent && touch $@; fi

book: docs python ## build the book, run the code blocks of all pages against the real binary, and check their links
	STEAD_BIN=$(BOOK_BIN) tests/book/run

mcp: test-bin ## run the official MCP conformance suite, for both versions of the protocol, against the real binary
	@if command -v npm >/dev/null; then STEAD_BIN=$(TEST_BIN) tests/mcp/run; else echo "mcp: no npm; skipped"; fi

browser: test-bin chromium firefox ## test the web app in Chromium, and its main journeys in Firefox, against the real binary
	@if ! command -v npm >/dev/null; then echo "browser: no npm; skipped"; \
	elif command -v chromium >/dev/null; then STEAD_BIN=$(TEST_BIN) npm --prefix web run --silent e2e; \
	else echo "browser: no chromium; skipped"; fi

screenshots: web build ## write screenshots of the main views and a recording to docs/screenshots
	@$(MAKE) --no-print-directory tools TOOLS="chromium img2webp:webp" SANDBOX_TOOLS=
	STEAD_BIN=$(CURDIR)/target/release/stead npm --prefix web run --silent screenshots

screen: ## compare the screen with xterm.js; needs node
	@if command -v npm >/dev/null; then sh crates/vt/tests/xterm/run.sh; \
	else echo "screen: no npm; skipped"; fi

# The fuzzed code contains no `unsafe`, so it needs no sanitizer and no nightly compiler.
fuzz: ## run each fuzz target for FUZZ_SECONDS (60)
	@if ! command -v cargo-fuzz >/dev/null && ! (cd / && $(CARGO) install --quiet cargo-fuzz); then \
	  echo "fuzz: skipped, cargo-fuzz cannot be installed"; \
	else for target in $$($(CARGO) fuzz list); do \
	  echo "fuzz: $$target for $(FUZZ_SECONDS) s"; \
	  mkdir -p fuzz/corpus/$$target; seeds=; [ ! -d fuzz/seeds/$$target ] || seeds=fuzz/seeds/$$target; \
	  $(CARGO) fuzz run --sanitizer none --target $(HOST) $$target fuzz/corpus/$$target $$seeds -- \
	    -max_total_time=$(FUZZ_SECONDS) >fuzz/corpus/$$target.log 2>&1 \
	    || { cat fuzz/corpus/$$target.log; exit 1; }; \
	  tail -n 1 fuzz/corpus/$$target.log; done; fi

# In this order: the reference of the book is generated from the binary.
embed: docs ## build the book and pack it; the next build embeds it, for /docs
	docs/scripts/embed.py

dist: web build ## build the packages of a release into dist/
	@$(MAKE) --no-print-directory embed STEAD_BIN=$(CURDIR)/target/release/stead
	$(SAME_PATHS) $(CARGO) build --profile dist
	@$(MAKE) --no-print-directory tools TOOLS="rpmbuild:rpm dpkg-deb:dpkg mmdebstrap" SANDBOX_TOOLS=
	packaging/dist target/$(HOST)/dist/stead

packages-test: web/node_modules/.package-lock.json docs/node_modules/.package-lock.json $(if $(STEAD_BIN),,web build) ## install the packages of a release in clean roots and use them; needs root
	@$(MAKE) --no-print-directory tools TOOLS="rpmbuild:rpm dpkg-deb:dpkg mmdebstrap debootstrap ip:iproute2" SANDBOX_TOOLS=
	STEAD_BIN=$(or $(STEAD_BIN),target/release/stead) tests/packages/run

manifests: python ## render deploy/kubernetes from the Helm chart
	tests/deploy/run --write

deploy-test: test-bin python ## check the Helm chart, the manifests and the Compose file
	@if command -v python3 >/dev/null; then STEAD_BIN=$(TEST_BIN) tests/deploy/run; else echo "deploy: no python3; skipped"; fi

# Not part of `make test`: the first run compiles Kubernetes for some minutes.
test-kubernetes: test-bin ## run the tests of the provider kubernetes in a real cluster on this machine; needs root
	@if command -v python3 >/dev/null; then $(LINTED) STEAD_BIN=$(TEST_BIN) tests/kubernetes/run; else echo "kubernetes: no python3; skipped"; fi

upgrade-test: $(if $(STEAD_BIN),,test-bin) ## take over homes and running shells of earlier VERSIONS, which are built once
	STEAD_BIN=$(or $(STEAD_BIN),$(TEST_BIN)) tests/upgrade/run $(VERSIONS)

bench: bench-terminals bench-containers bench-sdk bench-web ## run all benchmarks, including those of docs/benchmarks.md
	$(CARGO) bench --workspace
	benches/vt/run.sh

bench-terminals: build ## benchmark terminals and commands against tmux and node, as in docs/benchmarks.md
	benches/run

bench-containers: build tools ## benchmark a new thread in Docker and Podman against the engines alone
	benches/containers

bench-door: build ## measure how fast the owner is served while 3,300 requests of strangers are open
	benches/door

bench-sdk: build ## benchmark the server with E2B's Python SDK, and our SDKs against plain requests
	STEAD_BIN=$(CURDIR)/target/release/stead tests/sdk/run --bench
	STEAD_BIN=$(CURDIR)/target/release/stead npm --prefix sdk/typescript run --silent bench

bench-web: web build chromium ## benchmark the web app in a browser, as in docs/benchmarks.md
	STEAD_BIN=$(CURDIR)/target/release/stead npm --prefix web run --silent bench

bench-quick: build ## run short benchmarks of terminals, in two minutes
	benches/run --quick

soak: build ## run the long forms of the tests, for hours
	STEAD_SOAK=1 $(CARGO) test --release --workspace -- --nocapture

chaos-build:
	$(CARGO) build --release -p chaos

chaos: build chaos-build ## run random operations under faults for SECONDS (1800) and check the histories; SEED replays a run
	$(RELEASE)/chaos --bin $(CHAOS_BIN) --seconds $(SECONDS) --provider $(CHAOS_PROVIDER) --faults $(CHAOS_FAULTS) $(if $(SEED),--seed $(SEED))

power-cut: build chaos-build ## simulate CUTS (200) power cuts at random block writes; needs root
	$(RELEASE)/chaos power-cut --bin $(CHAOS_BIN) --clients 4 --seconds 20 --cuts $(CUTS) $(if $(SEED),--seed $(SEED))

fmt: ## format everything
	$(CARGO) fmt --all

lint: check deny ## check lints and licences

deny:
	@if command -v cargo-deny >/dev/null; then cargo deny check; \
	else echo "deny: skipped, cargo-deny is not installed"; fi
