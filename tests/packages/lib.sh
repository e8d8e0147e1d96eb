# Helpers of the scripts that run inside the roots.
export STEAD_HOME=/var/lib/stead
log=/tmp/server.log

fail() {
  echo "FAILED: $*"
  if [ -e "$log" ]; then echo "--- log of the server ---"; tail -n 40 "$log"; fi
  exit 1
}

# Waits until a command succeeds; says what it waited for if it does not within 30 seconds.
wait_for() {
  what=$1
  shift
  tries=0
  until "$@" >/tmp/seen 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail "no $what after 30 s; last seen: $(cat /tmp/seen)"
    sleep 0.1
  done
}

same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }

start() {
  stead serve >>"$log" 2>&1 &
  wait_for "running server" stead status
}

stop() {
  server=$(cat "$STEAD_HOME/lock")
  kill "$server"
  wait_for "end of the server" sh -c "! kill -0 $server"
}

# A tour of two minutes by the command line; leaves a shell with a function and a background job.
tour() {
  start
  stead thread create tour >/dev/null
  stead exec --thread tour -- 'cd /tmp; export STAGE=test; greet() { echo "hello from $STAGE in $PWD"; }'
  same "a function of the shell" "hello from test in /tmp" "$(stead exec --thread tour -- greet)"
  status=0
  stead exec --thread tour -- 'exit 3' || status=$?
  same "the status of a command" 3 "$status"
  stead exec --thread tour -- 'sleep 1000 & echo $!' >/tmp/job
  stead ls >/tmp/ls
  grep -q tour /tmp/ls || fail "no thread in: $(cat /tmp/ls)"
  stead thread ls --json | grep -q '"tour"' || fail "no thread in the list"
}

tour_continues() {
  same "the same shell" "hello from test in /tmp" "$(stead exec --thread tour -- greet)"
  kill -0 "$(cat /tmp/job)" || fail "the background job of the shell ended"
}

# What a package installs beside the binary; $1 is the directory of zsh.
documents() {
  for file in share/bash-completion/completions/stead "$1/_stead" share/fish/vendor_completions.d/stead.fish \
    share/doc/stead/copyright share/doc/stead/NOTICES.gz lib/systemd/system/stead.service \
    lib/systemd/system/stead-nonroot.service lib/sysusers.d/stead.conf lib/tmpfiles.d/stead.conf; do
    [ -s "/usr/$file" ] || fail "/usr/$file is missing"
  done
  if [ -e /packages/manual ]; then
    for page in stead stead-exec stead-serve; do
      gzip -dc "/usr/share/man/man1/$page.1.gz" | grep -q '^\.SH' || fail "no manual page $page"
    done
  else echo "no manual pages: the binary does not write them"; fi
  sh -n /usr/share/bash-completion/completions/stead 2>/dev/null || bash -n /usr/share/bash-completion/completions/stead
}

processes() {
  for link in /proc/[0-9]*/exe; do
    case $(readlink "$link") in */stead*) echo "$link" ;; esac
  done
}
