#!/bin/sh
# Builds the screens and compares them with xterm.js; arguments go to run.mjs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
[ -d node_modules/@xterm/headless ] || npm install --no-audit --no-fund --silent
cargo build --quiet --release -p vt --example serve
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
program=$(ls -t "$target"/*/release/examples/serve "$target"/release/examples/serve 2>/dev/null | head -1)
exec node run.mjs "$program" "$@"
