# Runs inside a clean Debian: installs, uses, upgrades, removes and purges the package.
set -eu
. /packages/lib.sh
# dpkg's own records change, and time stamps of its log.
files() {
  find / -xdev \( -path /proc -o -path /dev -o -path /packages -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log \
    -o -path /var/cache \) -prune -o ! -name 'passwd-' ! -name 'group-' ! -name 'shadow-' ! -name 'gshadow-' \
    ! -name 'subuid-' ! -name 'subgid-' ! -name '.pwd.lock' -print | sort
  cat /etc/passwd /etc/group
}
files >/tmp/before
dpkg -i /packages/stead.deb >/tmp/dpkg 2>&1 || fail "dpkg -i: $(cat /tmp/dpkg)"
stead --version | grep -q "^stead $(dpkg-query -W -f '${Version}' stead)$" || fail "the version is $(stead --version)"
documents share/zsh/vendor-completions
same "the user" /var/lib/stead-nonroot "$(getent passwd stead | cut -d : -f 6)"
same "the data directory" "700 root" "$(stat -c '%a %U' /var/lib/stead)"
same "the other data directory" "700 stead" "$(stat -c '%a %U' /var/lib/stead-nonroot)"
tour

# A stand-in for systemctl records what the package asks for; the server is restarted by hand below.
mkdir -p /tmp/stand-in /run/systemd/system
printf '#!/bin/sh\necho "$*" >>/tmp/systemctl\n' >/tmp/stand-in/systemctl
chmod 755 /tmp/stand-in/systemctl
PATH=/tmp/stand-in:$PATH dpkg -i /packages/next.deb >/tmp/dpkg 2>&1 || fail "upgrade: $(cat /tmp/dpkg)"
rm -r /run/systemd
same "the last call of systemctl" "try-restart stead.service stead-nonroot.service" "$(tail -n 1 /tmp/systemctl)"
# The server whose file was replaced still works, also for what it starts.
tour_continues
same "a thread of the old server" ok "$(stead exec --thread second -- 'echo ok')"
stop
kill -0 "$(cat /tmp/job)" || fail "the shell ended with the server"
start
tour_continues

dpkg -r stead >/tmp/dpkg 2>&1 || fail "remove: $(cat /tmp/dpkg)"
wait_for "end of all processes" sh -c '. /packages/lib.sh; [ -z "$(processes)" ]'
[ -e /var/lib/stead/stead.db ] || fail "removing the package removed its data"
[ -z "$(ls -A /dev/shm)" ] || fail "removing the package left $(find /dev/shm)"
dpkg -i /packages/stead.deb >/tmp/dpkg 2>&1 || fail "installing again: $(cat /tmp/dpkg)"
start
same "a shell after removal and installation" "hello from test in /tmp" "$(stead exec --thread tour -- greet)"
# The user of the other service has a shell, too, whose files are in memory.
as_user() {
  setpriv --reuid stead --regid stead --clear-groups \
    env STEAD_HOME=/var/lib/stead-nonroot STEAD_PROVIDER=local STEAD_LISTEN=127.0.0.1:7833 "$@"
}
as_user stead serve >>"$log" 2>&1 &
wait_for "server of the user stead" as_user stead status
same "a command of the user stead" stead "$(as_user stead exec -- 'id -un')"
memory=/dev/shm/.stead-$(id -u stead)
[ -n "$(ls "$memory")" ] || fail "the shell of the user stead has no files in $memory"
dpkg -P stead >/tmp/dpkg 2>&1 || fail "purge: $(cat /tmp/dpkg)"
wait_for "end of all processes" sh -c '. /packages/lib.sh; [ -z "$(processes)" ]'
[ -z "$(ls -A /dev/shm)" ] || fail "purging left $(find /dev/shm)"
files >/tmp/after
diff /tmp/before /tmp/after || fail "purging left files or users"
