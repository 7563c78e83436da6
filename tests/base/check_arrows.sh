#!/bin/sh
# Fails if a folder includes from one that the arrows of docs/ARCHITECTURE.md do not lead to, or if
# the sources break a rule of the house that the compiler cannot check.
cd "$1" || exit 2
complaints=$(mktemp) || exit 2 # in a file: the end of a pipe is a shell of its own, whose variables are lost
trap 'rm -f "$complaints"' EXIT
complain() { # complain WHAT, and standard input
    found=$(cat)
    [ -z "$found" ] && return
    printf '%s:\n%s\n' "$1" "$found" >>"$complaints"
}
sources() { # sources GREP-ARGUMENTS... FOLDER
    grep -rn --include='*.h' --include='*.cpp' "$@"
}
# A name allows a folder with all below it, but NAME/* only the files in it.
check() { # check FOLDER ALLOWED...
    folder=$1
    allowed=$(printf '%s|' "$@" | sed 's,/\*|,/[^/]*"|,g')
    sources -E '^#include "' "$folder" | grep -vE "#include \"(${allowed%|})(/|\"|$)" |
        complain "$folder may include $*, but"
}
check base
sources '^#include "base/loop/' base --exclude-dir=loop | complain "base may not include base/loop, but"
check hostfiles 'base/*'
check rendezvous base
check rendezvous/wire 'base/*'
check rendezvous/exchange rendezvous/wire base
check rendezvous/job rendezvous/wire 'base/*'
check rendezvous/links rendezvous/wire base
check rendezvous/doctor rendezvous/wire base
check rendezvous/asking rendezvous/exchange rendezvous/links rendezvous/wire base
check contracts 'base/*' rendezvous
check worker contracts hostfiles rendezvous base
check worker/client worker/include 'base/*' rendezvous/wire rendezvous/exchange hostfiles
check worker/client/connect worker/include 'base/*' rendezvous/wire
check worker/client/step worker/client/connect worker/include 'base/*' rendezvous/wire rendezvous/exchange hostfiles
check worker/binding 'base/*' rendezvous/wire/binding_request.h
check worker/ranks contracts rendezvous base
check worker/stores rendezvous base
check worker/mpi worker/ranks worker/stores contracts rendezvous base
check worker/doctor worker/ranks rendezvous base
check worker/stored contracts 'base/*' base/process
check worker/agent worker/stored worker/binding worker/doctor worker/mpi worker/ranks worker/stores contracts hostfiles/nodelist.h rendezvous base
check collectives worker/include rendezvous/wire/handshake.h rendezvous/wire/handshake_records.h rendezvous/wire/sealing.h 'base/*'
check collectives/codec 'collectives/*' 'base/*'
check collectives/host collectives/codec 'collectives/*' 'base/*'
check collectives/algorithms collectives/codec collectives/host 'collectives/*' 'base/*'
check collectives/backends collectives/algorithms collectives/codec collectives/host 'collectives/*' rendezvous/wire 'base/*'
check collectives/communicator collectives/backends collectives/algorithms collectives/codec collectives/host 'collectives/*' worker/include 'base/*'
check collectives/api collectives/communicator collectives/codec collectives/include 'collectives/*' worker/include 'base/*'
check collectives/coordinator collectives/api collectives/codec collectives/include 'collectives/*' worker/include 'base/*'
check launcher contracts hostfiles rendezvous base lab worker/binding
check launcher/transport hostfiles rendezvous base
check launcher/plan launcher/transport contracts hostfiles rendezvous base
check launcher/output launcher/plan hostfiles rendezvous base
check launcher/mpirun launcher/plan launcher/output base
check launcher/discovery launcher/transport hostfiles 'base/*' base/loop
check launcher/control rendezvous base
check launcher/watch launcher/plan launcher/transport launcher/output hostfiles/nodelist.h hostfiles/hosts_alike.h base
check launcher/history launcher/watch launcher/output launcher/control launcher/plan hostfiles rendezvous/wire base
check launcher/report launcher/output launcher/plan contracts hostfiles rendezvous/wire base
check launcher/inspect launcher/plan hostfiles/nodelist.h rendezvous/wire base
check launcher/head launcher/warm launcher/report launcher/inspect launcher/history launcher/watch launcher/control launcher/plan launcher/transport launcher/output launcher/discovery contracts hostfiles rendezvous base
check launcher/warm launcher/control launcher/transport hostfiles rendezvous base
check launcher/holder launcher/head launcher/warm launcher/control launcher/plan launcher/transport hostfiles/nodelist.h hostfiles/hosts_alike.h rendezvous base
check launcher/doctor launcher/head launcher/plan launcher/transport hostfiles rendezvous base
check launcher/cli launcher/plan launcher/output launcher/watch contracts hostfiles worker/binding/cpu_list.h base
check launcher/frontends launcher/cli launcher/plan launcher/output worker/binding/cpu_list.h base
check launcher/commands launcher/holder launcher/warm launcher/cli launcher/plan launcher/transport launcher/output launcher/control launcher/history launcher/watch launcher/head launcher/doctor \
    launcher/mpirun worker/binding contracts hostfiles rendezvous base
check lab launcher/cli launcher/plan collectives hostfiles base
[ -n "$(ls base/*.h)" ] || { echo "no sources found below $1"; status=1; }

# g++ 12 miscompiles some temporaries in a co_await expression: a conditional, a lambda or a value made by braces
# gets a name before it. A statement may go over lines, so each file is read as one.
find base rendezvous contracts launcher worker lab collectives -name '*.h' -o -name '*.cpp' |
    xargs perl -0777 -ne '
        s,//[^\n]*,,g;
        while (/\bco_await\b([^;{}]*)/g) {
            my ($rest, $line) = ($1, 1 + (substr($_, 0, $-[0]) =~ tr/\n//));
            print "$ARGV:$line: co_await$rest\n" if $rest =~ /\?|[(,=]\s*\[[^\]]*\]\s*(\(|$)/;
        }
        while (/\bco_await\b([^;{}]*[\w>]\{)/g) {
            print "$ARGV:", 1 + (substr($_, 0, $-[0]) =~ tr/\n//), ": co_await$1\n";
        }' | complain "co_await statements hold a conditional, a lambda or a value made by braces"
# Each room says what belongs there and where to start. What is installed as it is has no page.
find base hostfiles rendezvous contracts launcher worker lab collectives -name '*.cpp' -printf '%h\n' | sort -u |
    while read -r room; do
        [ -e "$room/README.md" ] || echo "$room"
    done | complain "rooms have no README.md"
# docs/SECURITY.md says in italics which tests would see a promise broken.
grep -oE '(^|[ (])\*[^* ][^*]*\*([ .;,:)]|$)' docs/SECURITY.md | sed -E 's/^[ (]*\*//; s/\*[ .;,:)]?$//' |
    while read -r name; do
        grep -rqF --include='*.cpp' "\"$name\"" tests || echo "$name"
    done | complain "docs/SECURITY.md names tests that are not there"
cat "$complaints"
[ ! -s "$complaints" ]
