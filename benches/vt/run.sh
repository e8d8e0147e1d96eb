#!/bin/sh
# The screen beside other emulators, in one run: throughput, memory, snapshots.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
inputs=$(mktemp -d)
trap 'rm -rf "$inputs"' EXIT
cargo run --quiet --release --manifest-path "$here/../vt-peers/Cargo.toml" -- "$inputs"
if command -v npm >/dev/null; then
  (cd "$here/../../crates/vt/tests/xterm" && npm install --no-audit --no-fund --silent)
  node "$here/xterm.mjs" "$inputs"
else
  echo "no npm: @xterm/headless is left out"
fi
