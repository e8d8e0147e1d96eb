# Runs one command once and records its exit code.
ln -s $$ "$d/pid" 2>/dev/null || exit 0
[ "$(last)" -lt "$n" ] || exit 0
# Signals are meant for the command, not for this runner. A handler is not inherited, unlike SIG_IGN.
trap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE
# Removes the middle of a stream that exceeds its limit; copying is stopped meanwhile.
shorten() {
  : >"$d/cut"; l=$(cat "$d/cats"); kill -STOP $l 2>/dev/null
  b=$(base "$1"); s=$(size "$d/$1")
  [ -e "$d/$1.head" ] || head -c "$head" "$d/$1" >"$d/$1.head"
  tail -c "$tail" "$d/$1" >"$d/$1.tail.new"; mv "$d/$1.tail.new" "$d/$1.tail"
  echo $((b + s)) >"$d/$1.base.new"; mv "$d/$1.base.new" "$d/$1.base"
  : >"$d/$1"
  kill -CONT $l 2>/dev/null; rm -f "$d/cut"
}
watch() {
  while [ -d "$d" ]; do
    if kill -0 "$1" 2>/dev/null; then nap 0.1; else [ -n "$(born)" ] || return; nap 1; fi
    set -- "$1" $(cd "$d" && wc -c out err 2>/dev/null)
    [ "${2:-0}" -le "$most" ] || shorten out
    [ "${4:-0}" -le "$most" ] || shorten err
  done
}
# Writes the queued files, in order, to the command's standard input.
feed() {
  exec 3>"$d/in" || return
  q=0
  while [ -d "$d" ] && kill -0 "$1" 2>/dev/null; do
    f=$(ls -d "$d/in.$q".* 2>/dev/null) || { nap 0.05; continue; }
    cat "$f" >&3 2>/dev/null || return
    : >"$f"; q=$((q + 1)); case $f in *.end) return ;; esac
  done
}
# Adds the CPU time of the command to the total of the terminal.
spent() {
  read -r g <"/proc/$$/stat" || return
  k=0; [ ! -e "$t/ticks" ] || read -r k <"$t/ticks"
  set -- ${g##*)}
  echo $((k + ${12} + ${13} + ${14} + ${15})) >"$t/ticks.new" && mv "$t/ticks.new" "$t/ticks"
}
# The command writes to FIFOs, because it could truncate a file by opening it again (`>/dev/stderr`).
rm -f "$d/o" "$d/e"; mkfifo "$d/o" "$d/e"
cat <"$d/o" >>"$d/out" 2>/dev/null & l=$!
cat <"$d/e" >>"$d/err" 2>/dev/null & echo $l $! >"$d/cats"
watch $$ >/dev/null 2>&1 &
[ ! -p "$d/in" ] || feed $$ >/dev/null 2>&1 &
s=$(command -v setsid)
