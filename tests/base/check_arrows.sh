#!/bin/sh
# Fails if a folder includes from one that DESIGN's arrows do not lead to.
cd "$1" || exit 2
status=0
check() { # check FOLDER ALLOWED...
    folder=$1
    allowed=$(printf '%s|' "$@")
    found=$(grep -rnE '^#include "' "$folder" --include='*.h' --include='*.cpp' |
            grep -vE "#include \"(${allowed%|})/")
    [ -z "$found" ] && return
    echo "$folder may include $*, but:"
    echo "$found"
    status=1
}
check base
check hostfiles base
check rendezvous base
check worker rendezvous base
check collectives worker rendezvous base
check launcher hostfiles rendezvous base
[ -n "$(ls base/*.h)" ] || { echo "no sources found below $1"; status=1; }
exit $status
