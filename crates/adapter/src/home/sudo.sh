#!/bin/sh
# The sandbox's account already has all privileges inside it: only the name and the home directory change.
user=root
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; break ;;
        -u|--user) user=$2; shift 2 ;;
        --user=*) user=${1#*=}; shift ;;
        -g|-p|-C|-T|-D|--group|--prompt|--chdir) shift 2 ;;
        -*) shift ;;
        *=*) export "$1"; shift ;;
        *) break ;;
    esac
done
if [ "$user" = root ]; then
    export HOME=/root USER=root LOGNAME=root PATH="/root/.local/bin:$PATH"
fi
[ $# -gt 0 ] || set -- "${SHELL:-/bin/sh}"
exec "$@"
