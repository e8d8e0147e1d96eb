# $r: the directory of the instance, $v: the environment variable that marks the processes of a terminal.
c=0 m=0 q=0 l=
for f in "$r/ticks" "$r"/t/*/ticks; do
  [ ! -e "$f" ] || while read -r k; do c=$((c + k)); done <"$f"
done
set --
for f in "$r"/t/*; do [ ! -d "$f" ] || set -- "$@" -e "$v=${f##*/}"; done
[ $# = 0 ] || l=$(grep -lsF "$@" /proc/[0-9]*/environ 2>/dev/null)
for p in $l; do
  p=${p%/environ}; g=; w=
  { read -r g <"$p/stat"; } 2>/dev/null
  set -- ${g##*)}
  # The process has ended meanwhile.
  [ $# -gt 15 ] || continue
  q=$((q + 1)); c=$((c + ${12} + ${13} + ${14} + ${15}))
  { while read -r k z y; do [ "$k" != Pss: ] || { w=$z; break; }; done <"$p/smaps_rollup"; } 2>/dev/null
  [ -n "$w" ] || { { read -r k z y <"$p/statm"; } 2>/dev/null && w=$((z * 4)); }
  m=$((m + ${w:-0}))
done
h=$(getconf CLK_TCK 2>/dev/null)
set -- $(du -sk "$r" 2>/dev/null)
echo "stead: used $q $c ${h:-100} $m ${1:-0}"
