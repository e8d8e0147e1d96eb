#!/bin/sh
# Compares the screen with xterm.js; arguments go to run.mjs.
set -eu
cd "$(dirname "$0")"
npm install --no-audit --no-fund --silent
exec node run.mjs "$@"
