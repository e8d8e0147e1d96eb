# Installs, uses, upgrades and removes the package by rpm from outside of a root. Its user tools come from the root.
set -eu
root=$1
package=$2
next=$3
inside() { chroot "$root" sh -eu -c ". /packages/lib.sh; $1"; }
# Dependencies are names of packages, of which a Debian root has none in rpm's database.
rpm --force-debian --root "$root" --nodeps -i "$package"
inside 'documents share/zsh/site-functions
  same "the user" /var/lib/stead-nonroot "$(getent passwd stead | cut -d : -f 6)"
  same "the data directory" "700 root" "$(stat -c "%a %U" /var/lib/stead)"
  tour'
# The scripts of both versions run. The server whose file was replaced still works, and the next one finds its shells.
rpm --force-debian --root "$root" --nodeps -U "$next"
[ "$(rpm --force-debian --root "$root" -qa 'stead' | grep -c '+next')" = 1 ] || { echo "FAILED: rpm -U"; exit 1; }
inside 'tour_continues
  same "a thread of the old server" ok "$(stead exec --thread second -- "echo ok")"
  stop
  kill -0 "$(cat /tmp/job)" || fail "the shell ended with the server"
  start
  tour_continues'
rpm --force-debian --root "$root" -e stead
inside 'wait_for "end of all processes" sh -c ". /packages/lib.sh; [ -z \"\$(processes)\" ]"
  [ ! -e /usr/bin/stead ] || fail "rpm -e left the binary"
  [ ! -e /usr/lib/stead ] || fail "rpm -e left /usr/lib/stead"
  [ -e /var/lib/stead/stead.db ] || fail "rpm -e removed the data"'
