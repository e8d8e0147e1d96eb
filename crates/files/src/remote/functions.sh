# Functions of the scripts that use files in a sandbox, for any POSIX shell with coreutils or busybox.
# A script sets m, which begins each record of its output, and o, a directory for temporary files.
export LC_ALL=C TZ=UTC0
umask 022

# Fails with a message in the words of the kernel, as other programs do.
no() {
    echo "stead: $1" >&2
    exit 1
}

# Prints the metadata of files. With -L first, links are followed.
status() {
    stat -c "$m%f %s %u %g %d %i|%y|%z|%n" "$@"
}

# Prints the target of a symbolic link.
link() {
    printf '%sL%s\n%sT' "$m" "$1" "$m"
    readlink "$1" || echo
}

# Fails unless a file is a regular file.
regular() {
    [ ! -d "$1" ] || no 'Is a directory'
    [ ! -f "$1" ] || return 0
    [ ! -p "$1" ] || no 'kind a FIFO'
    [ ! -S "$1" ] || no 'kind a socket'
    [ ! -e "$1" ] || no 'kind a device'
}

# Sets t to the file that a path stands for, after all links.
target() {
    t=$1
    [ -L "$t" ] || return 0
    t=$(readlink -f "$1" && echo .) || { stat -L "$1" >/dev/null; no 'No such file or directory'; }
    t=${t%??}
}

# Prints standard input, compressed, or its size if it has to be fetched in parts: fetch LIMIT PART NAME.
fetch() {
    mkdir -p "$o" || exit 1
    gzip -1 | head -c "$1" >"$o/$3" || exit 1
    n=$(wc -c <"$o/$3")
    echo "$((n))"
    [ "$n" -le "$2" ] || return 0
    cat "$o/$3"
    rm -f "$o/$3"
}

# Fails unless the entries of a directory can be listed.
listable() {
    [ -d "$1" ] || { stat -L "$1" >/dev/null || exit 1; no 'Not a directory'; }
    [ -r "$1" ] && [ -x "$1" ] || no 'Permission denied'
}

# Prints the metadata of everything below a directory: list DIRECTORY DEPTH.
list() {
    find "${1%/}/" -mindepth 1 -maxdepth "$2" ! -name '.stead-part-*' \
        -exec stat -c "$m%f %s %u %g %d %i|%y|%z|%n" {} + 2>/dev/null
    find "${1%/}/" -mindepth 1 -maxdepth "$2" -type l ! -name '.stead-part-*' \
        -exec sh -c 'm=$0; for l; do printf "%sL%s\n%sT" "$m" "$l" "$m"; readlink "$l" || echo; done' "$m" {} + 2>/dev/null
}

# Prints an archive of the text files at or below a path, up to a number of bytes: archive PATH LIMIT.
archive() {
    if [ ! -d "$1" ]; then
        cd "${1%/*}/" && tar -chf - "./${1##*/}" 2>/dev/null
    elif cd "$1" && tar --version 2>/dev/null | grep -q GNU; then
        find . -xdev -type f ! -name '.stead-part-*' -exec grep -IlZ '' {} + 2>/dev/null |
            tar -cf - --null --no-recursion -T - 2>/dev/null
    else
        # With many files these are several archives, one after the other.
        find . -xdev -type f ! -name '.stead-part-*' -exec tar -cf - {} + 2>/dev/null
    fi | head -c "$2"
}

# Fails unless a path can be searched. Prints whether it is a directory.
searchable() {
    if [ -d "$1" ]; then
        listable "$1"
        echo directory
    else
        stat -L "$1" >/dev/null || exit 1
        regular "$1"
        [ -r "$1" ] || no 'Permission denied'
        echo file
    fi
}

# Prints the metadata of a file after links, and the start of its content.
open() {
    stat -L "$1" >/dev/null || exit 1
    regular "$1"
    [ -r "$1" ] || no 'Permission denied'
    status -L "$1" || exit 1
    printf '%sD' "$m"
    head -c "$2" "$1"
}

# Prints a block of a file, and afterwards its metadata: block FILE SIZE INDEX.
block() {
    dd if="$1" bs="$2" skip="$3" count=1 2>/dev/null
    printf '\n'
    status -L "$1"
}

# Creates the unfinished file p beside the target t of a path: part FILE NAME make|exists any|absent|METADATA.
part() {
    target "$1"
    p=${t%/*}
    [ "$3" != make ] || [ -d "$p/" ] || mkdir -p "$p" || exit 1
    p=$p/$2
    [ ! -e "$t" ] || regular "$t"
    [ "$4" != absent ] || [ ! -e "$t" ] || no 'File exists'
    [ ! -e "$p" ] || return 0
    cp /dev/null "$p" || exit 1
    if [ -e "$t" ]; then
        chown "$(stat -c %u:%g "$t")" "$p" 2>/dev/null
        chmod "$(stat -c %a "$t")" "$p"
    fi
    return 0
}

# Writes an uploaded piece at an offset in blocks of 64 KiB, and removes it.
piece() {
    dd if="$1" of="$p" bs=65536 seek="$2" conv=notrunc 2>"$1.error" ||
        { cat "$1.error" >&2; rm -f "$1" "$1.error" "$p"; exit 1; }
    rm -f "$1" "$1.error"
}

# Gives the unfinished file its name: finish any|absent|METADATA.
finish() {
    case $1 in
    any) ;;
    absent)
        ln "$p" "$t" || { rm -f "$p"; exit 1; }
        rm -f "$p"
        status "$t"
        return
        ;;
    *) [ "$(status "$t" 2>/dev/null)" = "$m$1|$t" ] || { rm -f "$p"; no changed; } ;;
    esac
    mv -fT "$p" "$t" || { rm -f "$p"; exit 1; }
    status "$t"
}

# Renames a file or directory; exit code 3 is an error of the source: move FROM TO any|absent.
move() {
    stat "$1" >/dev/null || exit 3
    [ ! -d "$2" ] || [ -L "$2" ] || no 'Is a directory'
    if [ -e "$2" ] || [ -L "$2" ]; then
        [ "$3" = any ] || no 'File exists'
        [ ! -d "$1" ] || [ -L "$1" ] || no 'File exists'
    fi
    case $3 in
    any) mv -fT "$1" "$2" || exit 1 ;;
    *)
        mv -nT "$1" "$2" || { [ ! -e "$2" ] || no 'File exists'; exit 1; }
        [ ! -e "$1" ] || no 'File exists'
        ;;
    esac
}

# Removes a file or directory: delete FILE one|all.
delete() {
    stat "$1" >/dev/null || exit 1
    if [ ! -d "$1" ] || [ -L "$1" ]; then
        rm -f "$1"
    elif [ "$2" = all ]; then
        rm -rf "$1"
    else
        rmdir "$1"
    fi
}
