# A container engine of its own for tests and measurements: `sh engine.sh DIR docker|bridge|podman`, where
# `bridge` is Docker with a network and rules of its own in the network namespace it is started in. It listens
# on DIR/sock and runs until standard input ends, again and again if it is killed, but not while DIR/hold
# is there. Then nothing of it is left.
trap '' HUP INT TERM
dir=$1
# What an engine starts may write where it is.
cd "$dir" || exit 1
engine() {
  case $2 in
  docker | bridge)
    case $2 in
    docker) network="--bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false" ;;
    bridge) network="--bip 172.31.99.1/24" ;;
    esac
    exec dockerd --config-file "$dir/daemon.json" --data-root "$dir/data" --exec-root "$dir/exec" \
      --pidfile "$dir/pid" --host "unix://$dir/sock" $network --userland-proxy=false \
      --storage-driver overlay2 --cgroup-parent "/$(basename "$dir")" --shutdown-timeout 1 ;;
  podman)
    exec podman $podman system service --time 0 "unix://$dir/sock" ;;
  esac
}
podman="--root $dir/root --runroot $dir/run --tmpdir $dir/tmp --cgroup-manager cgroupfs"
podman="$podman --runtime runc --storage-driver overlay --events-backend none"
echo '{}' >"$dir/daemon.json"
printf '[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n' >"$dir/registries.conf"
export CONTAINERS_REGISTRIES_CONF="$dir/registries.conf"
(
  until [ -e "$dir/over" ]; do
    ( trap - HUP INT TERM; echo $(exec sh -c 'echo $PPID') >"$dir/engine"; engine "$@" </dev/null )
    sleep 0.2
    while [ -e "$dir/hold" ] && [ ! -e "$dir/over" ]; do sleep 0.1; done
  done
) >>"$dir/log" 2>&1 &
loop=$!
cat >/dev/null
touch "$dir/over"
[ "$2" != podman ] || podman $podman rm --all --force --time 0 >/dev/null 2>&1
kill "$(cat "$dir/engine")" 2>/dev/null
wait "$loop"
# What a killed engine left running is in its own cgroup or was started from its directory.
for pid in $(cat /sys/fs/cgroup/*/"$(basename "$dir")"/*/cgroup.procs 2>/dev/null) \
  $(pgrep -f "$dir/"); do [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null; done
awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
  while read -r mount; do umount -l "$mount"; done
# Only what is empty can be removed.
for parent in "$(basename "$dir")" libpod_parent; do
  find /sys/fs/cgroup/*/"$parent" -depth -type d -exec rmdir {} \; 2>/dev/null
done
cd / && rm -rf "$dir"
