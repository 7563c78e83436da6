#!/bin/sh
# check_install.sh BUILD SOURCE [SANITIZERS]: installs the client, and then the collectives, to a fresh prefix,
# and builds and runs the examples against them, by find_package and by pkg-config.
set -eu
build=$1 source=$2 flags=${3:+-fsanitize=$3}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
prefix=$directory/prefix
cmake --install "$build" --prefix "$prefix" --component client >/dev/null
library=$(find "$prefix" -name libdtrun.so.0)
libdir=$(dirname "$library")
strict="-Wall -Wextra -Wpedantic -Werror $flags"

check() { # check PROGRAM: runs it without a launcher
    said=$(env -u DTRUN_SOCKET -u DTRUN_SERVE -u RANK -u WORLD_SIZE -u PMI_RANK -u PMI_SIZE \
               -u OMPI_COMM_WORLD_RANK -u SLURM_STEP_ID LD_LIBRARY_PATH="$libdir" "$@")
    case $said in
        "rank 0 of 1"*) ;;
        *) echo "$*: $said"; exit 1 ;;
    esac
}

for language in c cpp; do
    cmake -S "$source/examples/$language" -B "$directory/$language" -DCMAKE_PREFIX_PATH="$prefix" \
          -DCMAKE_C_FLAGS="$strict" -DCMAKE_CXX_FLAGS="$strict" >/dev/null
    cmake --build "$directory/$language" >/dev/null
    check "$directory/$language/ranks"
done

export PKG_CONFIG_PATH="$libdir/pkgconfig"
pc_flags=$(pkg-config --cflags --libs dtrun)
# shellcheck disable=SC2086  # flags are words
c++ -std=c++17 $strict "$source/examples/cpp/ranks.cpp" -o "$directory/cpp_pc" $pc_flags
check "$directory/cpp_pc"
# shellcheck disable=SC2086
cc -std=c99 $strict "$source/examples/c/ranks.c" -o "$directory/c_pc" $pc_flags
check "$directory/c_pc"

# A host that nothing is installed on has the library of the agent's package, which builds with sanitizers lack.
alone() { # alone PROGRAM: runs it in two ranks that are told of no library
    said=$(env -u LD_LIBRARY_PATH "$build/bin/dtrun" -np 2 "$@" 2>&1) || true
    case $said in
        *"rank 1: the result is 42"*) ;;
        *) echo "$*: $said"; exit 1 ;;
    esac
}
if [ -z "$flags" ]; then
    alone "$directory/cpp_pc"
    alone "$directory/c_pc"
fi

# The static library: nothing is needed of dtrun, and nothing of it meets what the program has, another OpenSSL say.
if [ -e "$libdir/libdtrun.a" ]; then
    cmake -S "$source/examples/cpp" -B "$directory/static" -DSTATIC=ON -DCMAKE_PREFIX_PATH="$prefix" \
          -DCMAKE_CXX_FLAGS="$strict" >/dev/null
    cmake --build "$directory/static" >/dev/null
    static_flags=$(pkg-config --cflags --libs dtrun-static)
    # shellcheck disable=SC2086
    cc -std=c99 $strict "$source/examples/c/ranks.c" -o "$directory/c_static" $static_flags
    for program in "$directory/static/ranks" "$directory/c_static"; do
        alone "$program"
        if readelf -d "$program" | grep -q 'NEEDED.*libdtrun'; then
            echo "$program needs libdtrun.so"
            exit 1
        fi
    done
    exported=$(nm -g --defined-only "$libdir/libdtrun.a" | awk 'NF == 3 {print $3}' | sort)
    declared=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort)
    [ "$exported" = "$declared" ] || { echo "libdtrun.a shows: $exported"; exit 1; }
    # Without any library of the system either: not with sanitizers, which are libraries.
    if [ -z "$flags" ]; then
        # shellcheck disable=SC2086
        c++ -std=c++17 $strict "$source/examples/cpp/ranks.cpp" -static -o "$directory/whole" \
            $(pkg-config --static --cflags --libs dtrun) 2>"$directory/warnings"  # of glibc, which loads some of itself
        alone "$directory/whole"
    fi
fi

cmake --install "$build" --prefix "$prefix" --component collectives >/dev/null
cmake -S "$source/examples/collectives" -B "$directory/collectives" -DCMAKE_PREFIX_PATH="$prefix" \
      -DCMAKE_CXX_FLAGS="$strict" >/dev/null
cmake --build "$directory/collectives" >/dev/null
pc_flags=$(pkg-config --cflags --libs dtrun-collectives)
# shellcheck disable=SC2086
c++ -std=c++17 $strict "$source/examples/collectives/gradients.cpp" -o "$directory/gradients_pc" $pc_flags

together() { # together PROGRAM: runs it in two ranks, over a plug-in of the prefix
    said=$("$build/bin/dtrun" -np 2 LD_LIBRARY_PATH="$libdir" "$@" 2>&1) || true
    case $said in
        *"2 ranks over dtrun: "*) ;;
        *) echo "$*: $said"; exit 1 ;;
    esac
}

together "$directory/collectives/gradients"
together "$directory/gradients_pc"

# Python finds the library that was installed with its package.
if [ -z "$flags" ]; then
    check env PYTHONPATH="$libdir/dtrun/python" python3 "$source/examples/python/ranks.py"
    together PYTHONPATH="$libdir/dtrun/python" /usr/bin/python3 "$source/examples/collectives/gradients.py"
fi
