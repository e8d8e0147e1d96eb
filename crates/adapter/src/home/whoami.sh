#!/bin/sh
# The account of a sandbox has two names; the one it is used by is in its environment.
[ $# -eq 0 ] || exec /usr/bin/whoami "$@"
printf '%s\n' "${USER:-root}"
