#!/bin/sh
# Compares our screen with xterm.js. Passes its arguments to run.mjs.
set -eu
cd "$(dirname "$0")"
npm install --no-audit --no-fund --silent
exec node run.mjs "$@"
