# Installs, uses and removes the package by rpm from outside of a root. Its user tools come from the root.
set -eu
root=$1
package=$2
inside() { chroot "$root" sh -eu -c ". /packages/lib.sh; $1"; }
# Dependencies are names of packages, of which a Debian root has none in rpm's database.
rpm --force-debian --root "$root" --nodeps -i "$package"
inside 'documents share/zsh/site-functions
  same "the user" /var/lib/stead-nonroot "$(getent passwd stead | cut -d : -f 6)"
  same "the data directory" "700 root" "$(stat -c "%a %U" /var/lib/stead)"
  tour'
rpm --force-debian --root "$root" --nodeps -i --replacepkgs "$package"
inside tour_continues
rpm --force-debian --root "$root" -e stead
inside 'wait_for "end of all processes" sh -c ". /packages/lib.sh; [ -z \"\$(processes)\" ]"
  [ ! -e /usr/bin/stead ] || fail "rpm -e left the binary"
  [ ! -e /usr/lib/stead ] || fail "rpm -e left /usr/lib/stead"
  [ -e /var/lib/stead/stead.db ] || fail "rpm -e removed the data"'
