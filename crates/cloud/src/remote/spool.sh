# The start of every script. $t: the directory of a terminal, $n: the number of a command in it, $i: its id,
# $m: the environment variable that marks the processes of a command.
d=$t/$n
say() { echo "stead: $*"; }
nap() { sleep "$1" 2>/dev/null || sleep 1; }
size() { wc -c 2>/dev/null <"$1" || echo 0; }
base() { if [ -e "$d/$1.base" ]; then cat "$d/$1.base"; else echo 0; fi; }
last() { if [ -e "$t/done" ]; then cat "$t/done"; else echo 0; fi; }
born() { for e in $(grep -lsF -- "$m=$i" /proc/[0-9]*/environ 2>/dev/null); do e=${e%/environ}; echo "${e#/proc/}"; done; }
# Adds the descendants of the processes in $l: a process may have removed its mark.
kin() {
  l=$(echo $l); v=; u=$(sed -n 's/^\([0-9]*\) (.*) [A-Za-z] \([0-9]*\) .*/\1 \2/p' /proc/[0-9]*/stat 2>/dev/null)
  while [ "$v" != "$l" ]; do
    v=$l; set -- $u
    while [ $# -gt 1 ]; do case " $l " in *" $1 "*) ;; *" $2 "*) l="$l $1" ;; esac; shift 2; done
  done
}
# A pid may have been reused: the id of the command is among the arguments of its runner.
runs() {
  r=$(readlink "$d/pid" 2>/dev/null) && kill -0 "$r" 2>/dev/null || return 1
  [ ! -e /proc/self/cmdline ] || grep -qF -- "$i" "/proc/$r/cmdline" 2>/dev/null
}
# Waits while a stream is being shortened, because its files do not belong together then.
uncut() { k=0; while [ -e "$d/cut" ] && [ $k -lt 100 ]; do k=$((k + 1)); nap 0.05; done; }
# Sets $x and $y to the lengths of both streams.
lengths() {
  uncut
  set -- $(cd "$d" && wc -c out err 2>/dev/null)
  x=$((${1:-0} + $(base out))); y=$((${3:-0} + $(base err)))
}
# Prints at most $3 bytes of stream $1 from offset $2, or from the next offset that was kept. Reads again if the stream
# was shortened meanwhile.
piece() {
  while :; do
    uncut; b=$(base "$1"); s=$(size "$d/$1"); o=$2; f=$d/$1; z=$b
    if [ "$o" -lt "$b" ]; then
      h=$(size "$d/$1.head"); c=$((b - $(size "$d/$1.tail")))
      if [ "$o" -lt "$h" ]; then f=$d/$1.head; z=0; else f=$d/$1.tail; z=$c; [ "$o" -ge "$c" ] || o=$c; fi
    fi
    [ "$o" -lt $((b + s)) ] || return 0
    e=$(tail -c "+$((o - z + 1))" "$f" | head -c "$3" | base64 | tr -d '\n')
    [ -e "$d/cut" ] && [ $k -lt 100 ] || [ "$b" != "$(base "$1")" ] || break
  done
  say "data $1 $o $e"
}
# Prints the status of the command. Polls at most $4 times until its streams are longer than $1 and $2, or until it
# ends, or with `late` until none of its processes is left. Then prints at most $6 bytes of each stream from these
# offsets, and of the saved state from $3.
look() {
  j=0; g=; l=
  while :; do
    [ -L "$d/pid" ] || { say none; return; }
    if [ -e "$d/ended" ]; then g=ended
    elif [ -e "$d/code" ]; then g="code $(cat "$d/code")"
    elif [ $((j % 8)) = 0 ] && ! runs; then
      if [ -e "$d/code" ]; then g="code $(cat "$d/code")"; else g=gone; fi
    fi
    lengths
    if [ -n "$g" ] && [ $((j % 8)) = 0 ]; then l=$(born); fi
    # A command that writes little usually ends soon: wait, so that one answer is enough.
    if [ "$x" -gt "$1" ] || [ "$y" -gt "$2" ]; then
      [ $j -lt 6 ] && [ $((x - $1 + y - $2)) -lt "$6" ] && [ -z "$g" ] && [ "$4" -gt 1 ] || break
    fi
    if [ -n "$g" ]; then [ "$5" = late ] && [ -n "$l" ] || break; fi
    j=$((j + 1)); [ $j -lt "$4" ] || break
    if [ $j -lt 10 ]; then nap 0.02; elif [ $j -lt 30 ]; then nap 0.05; else nap 0.2; fi
  done
  # Measured after the processes were counted: what the last of them wrote must not be missed.
  if [ -n "$g" ]; then l=$(born); [ -n "$l" ] || settled; lengths; fi
  say "out $x"; say "err $y"
  [ "$x" -le "$1" ] || piece out "$1" "$6"
  [ "$y" -le "$2" ] || piece err "$2" "$6"
  [ -n "$g" ] || { say running; return; }
  say "left $(($(echo $l | wc -w)))"
  if [ "$3" -ge 0 ] && [ -e "$d/state.whole" ]; then
    s=$(size "$d/state"); say "state $((s))"; [ "$s" -le "$3" ] || piece state "$3" "$6"
  fi
  say "$g"
}
# Waits until all output is in the files: the copying processes are idle or have ended. A copying process is not
# asleep while there is something to read.
settled() {
  k=0
  while [ $k -lt 500 ]; do
    c=1
    for p in $(cat "$d/cats" 2>/dev/null); do
      w=; read -r w <"/proc/$p/stat"; case ${w##*) } in '' | S* | Z*) ;; *) c=0 ;; esac
    done 2>/dev/null
    [ $c = 0 ] || return 0
    k=$((k + 1)); nap 0.01
  done
}
# Waits briefly for the command to start.
begun() {
  k=0; while [ ! -L "$d/pid" ] && [ "$(last)" -lt "$n" ] && [ $k -lt 50 ]; do k=$((k + 1)); nap 0.05; done
  [ -L "$d/pid" ] || [ "$(last)" -ge "$n" ]
}
# Writes standard input to a file, atomically.
put() { base64 -d >"${1%/*}/new.$$" && mv "${1%/*}/new.$$" "$1"; }
# Starts the file `run`, unless the command was ever started.
start() {
  [ "$(last)" -lt "$n" ] || { say forgotten; return 1; }
  [ ! -L "$d/pid" ] || return 0
  # A shell's background job ignores SIGINT, and the command would inherit that.
  if setsid -f true 2>/dev/null; then setsid -f sh "$d/run" "$i" </dev/null >/dev/null 2>&1
  else s=$(command -v setsid); ($s sh "$d/run" "$i" </dev/null >/dev/null 2>&1 &); fi
  k=0; while [ ! -L "$d/pid" ] && [ $k -lt 100 ]; do k=$((k + 1)); nap 0.02; done
}
# Kills all processes of the command. A command that has not started never will.
end() {
  mkdir -p "$d"
  ln -s never "$d/pid" 2>/dev/null && { say none; return 1; }
  [ -e "$d/code" ] || { : >"$d/ended"; runs && kill -9 "$r" 2>/dev/null; }
  k=0
  while [ $k -lt 200 ]; do
    l=$(born); [ -n "$l" ] || break
    kin; kill -9 $l 2>/dev/null; k=$((k + 1)); nap 0.02
  done
  settled
}
group() { read -r g <"/proc/$1/stat" || return; set -- ${g##*) }; echo "$3"; }
# Signals the processes in $l: each process group as a whole, so that a process that is being created is not missed,
# but not the group of the runner.
signal() {
  o=; v=; ! runs || o=$(group "$r")
  for p in $l; do
    g=$(group "$p"); [ -n "$g" ] || continue
    case " $v " in *" $g "*) continue ;; esac
    if [ "$g" = "$o" ]; then kill "-$1" "$p"; else v="$v $g"; kill "-$1" "-$g"; fi
  done 2>/dev/null
}
# Removes the files of forgotten commands; none of them can start again.
forget() {
  for q in "$@"; do
    [ "$(last)" -ge "$q" ] || { echo "$q" >"$t/done.$$" && mv "$t/done.$$" "$t/done"; }
    rm -rf "${t:?}/$q"
  done
}
