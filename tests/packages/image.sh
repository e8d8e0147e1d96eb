# Runs inside the unpacked image, as its user and with its environment: starts its command and uses it.
set -eu
log=/tmp/server.log
. /packages/lib.sh
export STEAD_PROVIDER=local
"$@" >"$log" 2>&1 &
wait_for "running server" stead status
same "a command" "$(id -u)" "$(stead exec -- 'id -u')"
same "the shell" bash "$(stead exec -- 'echo ${BASH_VERSION:+bash}')"
same "a checksum" 1 "$(stead exec -- 'echo | sha256sum | grep -c 01ba4719c80b6fe9')"
