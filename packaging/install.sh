#!/bin/sh
# Installs Stead from a release: verifies its checksum, and puts the binary into a directory.
#
#     install.sh [--from URL-OR-DIRECTORY] [--to DIRECTORY]
#
# The default directory is /usr/local/bin for root, and ~/.local/bin for other users.
set -eu
from=${STEAD_RELEASE:-}
to=
while [ $# -gt 0 ]; do
  case $1 in
    --from) from=$2; shift 2 ;;
    --to) to=$2; shift 2 ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done
fail() { echo "install: $*" >&2; exit 1; }
[ "$(uname -s)" = Linux ] || fail "Stead runs on Linux; on another system, run it in a virtual machine or a container"
[ -n "$from" ] || fail "say where the release is: --from URL-OR-DIRECTORY"
if [ -z "$to" ]; then
  if [ "$(id -u)" = 0 ]; then to=/usr/local/bin; else to=$HOME/.local/bin; fi
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get() {
  case $from in
    http://* | https://*)
      if command -v curl >/dev/null; then curl -fsSL "$from/$1" -o "$work/$1"
      else wget -q "$from/$1" -O "$work/$1"; fi ;;
    *) cp "$from/$1" "$work/$1" ;;
  esac || fail "cannot get $from/$1"
}
get SHA256SUMS
name=$(sed -n "s/^[0-9a-f]*  \(stead-[0-9A-Za-z.+~-]*-linux-$(uname -m)\.tar\.gz\)$/\1/p" "$work/SHA256SUMS" | tail -n 1)
[ -n "$name" ] || fail "this release has no binary for $(uname -m)"
get "$name"
(cd "$work" && grep "  $name\$" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) \
  || fail "$name does not have the checksum that the release names; nothing was installed"
tar -xzf "$work/$name" -C "$work"
mkdir -p "$to"
# Replaced in one step: a running server keeps its own file.
cp "$work/${name%.tar.gz}/usr/bin/stead" "$to/.stead.new"
chmod 755 "$to/.stead.new"
mv "$to/.stead.new" "$to/stead"
echo "installed $("$to/stead" --version) as $to/stead"
case ":$PATH:" in *":$to:"*) ;; *) echo "add $to to your PATH" ;; esac
echo "start it with: stead serve"
