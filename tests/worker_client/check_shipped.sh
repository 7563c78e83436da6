#!/bin/sh
# check_shipped.sh BUILD: what is installed, and what is carried to hosts, finds its libraries beside itself or where the
# loader looks for everybody's. An empty element of a search path is the current directory, and a build's folder is one
# that anybody may make on another host: code that lies there would run in ranks.
set -eu
build=$1
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cmake --install "$build" --prefix "$directory/installed" >/dev/null
archive=$directory/installed/libexec/dtrun/dtrun-package.tar.gz
if [ -e "$archive" ]; then
    mkdir "$directory/carried"
    tar xzf "$archive" -C "$directory/carried"
fi

magic=$(printf '\177ELF')
find "$directory" -type f | sort >"$directory/files"
status=0
complain() { # complain FILE WHAT
    echo "${1#"$directory"/}: $2"
    status=1
}
count=0
while read -r file; do
    [ "$(head -c 4 "$file" | tr -d '\0')" = "$magic" ] || continue
    count=$((count + 1))
    dynamic=$(readelf -d "$file")
    path=$(printf '%s\n' "$dynamic" | sed -n 's/.*(R\(UN\)*PATH).*\[\(.*\)\]$/\2/p')
    if printf '%s\n' "$dynamic" | grep -qE '\((RUNPATH|RPATH)\)'; then
        # Each element is a line, the empty ones, too.
        printf '%s\n' "$path" | tr : '\n' >"$directory/elements"
        while read -r element; do
            # shellcheck disable=SC2016  # these are the loader's dollars
            case $element in
                '$ORIGIN' | '$ORIGIN/'*) ;;
                *) complain "$file" "looks for libraries in \"$element\" of [$path]" ;;
            esac
        done <"$directory/elements"
    fi
    needed=$(printf '%s\n' "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\/.*\)\]$/\1/p')
    [ -z "$needed" ] || complain "$file" "needs $needed, which is a place and no name"
done <"$directory/files"
[ "$count" -ge 5 ] || complain "$directory/installed" "has $count programs and libraries only"
exit $status
