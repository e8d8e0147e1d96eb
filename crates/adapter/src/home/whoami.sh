#!/bin/sh
# The sandbox's account has two names; the environment says which one is in use.
[ $# -eq 0 ] || exec /usr/bin/whoami "$@"
printf '%s\n' "${USER:-root}"
