#!/bin/sh
# check_abi.sh LIBRARY HEADER [SANITIZERS]: fails if the client library exports anything but the functions
# of <dtrun.h>, or needs anything but libc.
set -eu
library=$1 header=$2 sanitizers=${3:-}
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort)
declared=$(grep -E '^DTRUN_API' "$header" | grep -oE 'dtrun_[a-z_]+\(' | tr -d '(' | sort)
if [ "$exported" != "$declared" ]; then
    echo "exported:"; echo "$exported"
    echo "declared:"; echo "$declared"
    exit 1
fi
# What programs of an earlier .so.0 call is still there (docs/VERSIONS.md).
gone=$(echo "$exported" | comm -13 - "$(dirname "$0")/exports_0.txt")
[ -z "$gone" ] || { echo "gone: $gone"; exit 1; }
# Every operation has its number in the header.
for row in $(sed -nE 's/^DTRUN_[A-Z_]*OPERATION\(\w+, ([0-9]+), "(\w+)".*/\2=\1/p' \
                 "$(dirname "$header")/../../rendezvous/wire/operations.def" | grep -v '^store='); do
    name=DTRUN_OP_$(echo "${row%=*}" | tr '[:lower:]' '[:upper:]')
    grep -qE "^ +$name = ${row#*=},?( |\$)" "$header" || { echo "$header: no $name = ${row#*=}"; exit 1; }
done
readelf -d "$library" | grep -q 'SONAME.*\[libdtrun\.so\.0\]'
[ -n "$sanitizers" ] && { echo "dependencies not looked at: they are the sanitizers', too"; exit 0; }
needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
         grep -vE '^(libc|libm|libpthread)\.so\.|^ld-linux' || true)
[ -z "$needed" ] || { echo "needs $needed"; exit 1; }
