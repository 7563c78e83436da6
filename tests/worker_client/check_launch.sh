#!/bin/sh
# check_launch.sh DTRUN PROGRAM...: runs an example as four ranks of the real launcher.
set -eu
dtrun=$1
shift
said=$("$dtrun" -np 4 "$@")
check() { # check COUNT PATTERN
    [ "$(echo "$said" | grep -cE "$2")" = "$1" ] && return
    echo "not $1 lines with '$2' in:"
    echo "$said"
    exit 1
}
check 4 'rank [0-3] of 4 \(dtrun\):( [^ /:]+[/:][0-9]+){4}$'
check 4 'rank [0-3]: the result is 42$'
