#!/bin/sh
# check_serve.sh DTRUN PROGRAM...: runs an example as three members of a job of the real daemon, and as
# ranks of "another launcher" that have only its store.
set -eu
dtrun=$1
shift
directory=$(mktemp -d)
trap 'kill "$daemon" 2>/dev/null || true; wait; rm -rf "$directory"' EXIT
(umask 077; echo "a secret of this test, and no other" >"$directory/secret")
: >"$directory/log"
"$dtrun" serve --listen 127.0.0.1:0 --secret-file "$directory/secret" >"$directory/log" 2>&1 &
daemon=$!
port=
for _ in $(seq 1000); do
    port=$(sed -n 's/.*serving on port //p' "$directory/log")
    [ -n "$port" ] && break
    sleep 0.05
done
export DTRUN_SERVE="127.0.0.1:$port" DTRUN_SECRET_FILE="$directory/secret"

check() { # check COUNT PATTERN
    [ "$(cat "$directory"/out.* | grep -cE "$2")" = "$1" ] && return
    echo "not $1 lines with '$2' in:"
    cat "$directory"/out.* "$directory/log"
    exit 1
}

members=
for i in 0 1 2; do
    DTRUN_JOB_NAME=members DTRUN_MIN_NP=3 "$@" >"$directory/out.$i" 2>&1 &
    members="$members $!"
done
for member in $members; do wait "$member" || true; done
check 3 'rank [0-2] of 3 \(dtrun serve\):( [^ /:]+[/:][0-9]+){3}$'
check 3 'rank [0-2]: the result is 42$'

members=
for i in 0 1 2; do
    DTRUN_JOB_NAME=store RANK=$i WORLD_SIZE=3 "$@" >"$directory/out.$i" 2>&1 &
    members="$members $!"
done
for member in $members; do wait "$member" || true; done
check 3 'rank [0-2] of 3 \(torchrun\):( [^ /:]+[/:][0-9]+){3}$'
check 3 'rank [0-2]: the result is 42$'

# A job that nobody is in is not there, and nobody joins a daemon that has ended.
fails() { # fails STATUS ARGUMENT...
    wanted=$1
    shift
    status=0
    "$dtrun" "$@" >"$directory/out.0" 2>&1 || status=$?
    [ "$status" = "$wanted" ] && return
    echo "$*: $status, not $wanted"
    exit 1
}
fails 1 status --job nobody
check 1 '^dtrun: no job "nobody"$'
kill "$daemon"
wait "$daemon" || true
fails 201 join --job members --connect-timeout 1 true
check 1 '^dtrun: cannot join: .*Connection refused.*; is `dtrun serve` running there\?$'
