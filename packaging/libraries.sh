# How each library is built, for one CPU and one C library: functions that are read by `portable`. Each is called in
# a build folder of its own with `source` (patched sources), `prefix` (where it is to be installed), `cpu`, and CC,
# CXX, AR and RANLIB in the environment. Its digest is part of what says whether the library has to be built again.
flags="-ffunction-sections -fdata-sections"

# Only what ssh, as libssh speaks it, and our own encryption need. No file of the machine is read: its settings are
# for its own OpenSSL, and name modules that this one cannot load.
build_openssl() {
    local without="afalgeng apps argon2 aria async autoload-config bf blake2 camellia capieng cast cmp cms comp
        ct dso dtls ec2m engine filenames gost http idea legacy makedepend md4 mdc2 ml-dsa ml-kem module multiblock
        nextprotoneg ocb ocsp psk quic rc2 rc4 rfc3779 rmd160 scrypt secure-memory seed shared siphash siv slh-dsa
        sm2 sm3 sm4 srp srtp ssl-trace sslkeylog tests tls ts ui-console uplink whirlpool docs"
    # The agent has no SSH, and nobody reads what OpenSSL says of errors.
    [ "$libc" = gnu ] || without+=" pic err chacha cmac des dh dsa poly1305"
    local options=() word
    for word in $without; do options+=("no-$word"); done
    perl "$source/Configure" "linux-$cpu" --prefix=/usr --openssldir=/usr/lib/ssl --libdir=lib \
        "${options[@]}" CFLAGS="$flags $c_flags" >log 2>&1
    make -j"$jobs" build_generated >>log 2>&1
    if [ "$cpu" = x86_64 ]; then
        # 700 kB of one cipher for processors of some years, in each file that encrypts. An assembler that does not
        # answer is taken for an old one, and gets none of it.
        CC=false perl "$source/crypto/modes/asm/aes-gcm-avx512.pl" elf |
            sed 's/#alloc/"a", @note/' >crypto/modes/aes-gcm-avx512.s
    fi
    make -j"$jobs" libcrypto.a >>log 2>&1
    mkdir -p "$prefix/include" "$prefix/lib"
    cp -r "$source/include/openssl" include/openssl "$prefix/include/"
    cp libcrypto.a "$prefix/lib/"
}

build_zlib() {
    local file
    for file in "$source"/*.c; do
        $CC $flags $c_flags -DHAVE_UNISTD_H -DHAVE_STDARG_H -D_LARGEFILE64_SOURCE -c "$file"
    done
    install_archive libz.a zlib zlib -lz "$source/zlib.h" "$source/zconf.h"
}

build_hwloc() {
    "$source/configure" --host="$cpu-linux-gnu" --prefix=/usr --disable-shared --enable-static --disable-plugins \
        --disable-libxml2 --disable-cairo --disable-libudev --disable-pci --disable-opencl --disable-cuda \
        --disable-nvml --disable-rsmi --disable-levelzero --disable-gl --disable-doxygen --disable-readme \
        CFLAGS="$flags $c_flags" CXXFLAGS="$flags" >log 2>&1
    make -j"$jobs" -C hwloc >>log 2>&1
    make -C hwloc install DESTDIR="$PWD/installed" >>log 2>&1
    make -C include install DESTDIR="$PWD/installed" >>log 2>&1
    cp -r installed/usr/include "$prefix/"
    cp installed/usr/lib/libhwloc.a "$prefix/lib/"
}

# Without GSSAPI, whose library is the machine's: `ssh` logs in where Kerberos is asked for.
build_libssh() {
    with_cmake -DWITH_GSSAPI=OFF -DWITH_SERVER=OFF -DWITH_SFTP=OFF -DWITH_PCAP=OFF -DWITH_EXAMPLES=OFF \
        -DWITH_FIDO2=OFF -DWITH_PKCS11_URI=OFF -DWITH_NACL=OFF -DGLOBAL_CLIENT_CONFIG=/etc/ssh/ssh_config \
        -DGLOBAL_BIND_CONFIG=/etc/ssh/libssh_server_config
    sed -i 's/-lssh$/-lssh -lz/; s|/usr|${pcfiledir}/../..|' "$prefix/lib/pkgconfig/libssh.pc"
}

build_yaml_cpp() {
    with_cmake -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DYAML_CPP_BUILD_TESTS=OFF -DYAML_CPP_BUILD_TOOLS=OFF \
        -DYAML_CPP_BUILD_CONTRIB=OFF
}

build_sqlite3() {
    mkdir -p tree
    cp -r "$source/." tree/
    # One file of all, which programs of this machine put together.
    (cd tree && CC=$out/tools/$host-gnu/cc ./configure --disable-tcl --disable-readline --disable-shared &&
        make sqlite3.c) >log 2>&1
    $CC $flags -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -c tree/sqlite3.c
    install_archive libsqlite3.a sqlite3 sqlite3 -lsqlite3 tree/sqlite3.h
}

# Headers alone, for each CPU the same.
build_boost() {
    cp -r "$source/usr/include" "$prefix/"
    cmake_package Boost 'add_library(Boost::headers INTERFACE IMPORTED)
set_target_properties(Boost::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../../../include)'
}

build_fmt() {
    cp -r "$source/include" "$prefix/"
    cmake_package fmt
}

build_spdlog() {
    cp -r "$source/include" "$prefix/"
    cmake_package spdlog
}

# What they share.

with_cmake() { # with_cmake OPTION...: a library that is built by CMake
    {
        cmake -G Ninja -S "$source" -B . -DCMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF \
            -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" "$@"
        ninja -j"$jobs"
        DESTDIR="$PWD/installed" cmake --install .
    } >log 2>&1
    cp -r installed/usr/. "$prefix/"
}

install_archive() { # install_archive ARCHIVE PC-FILE NAME -lNAME HEADER...: of all objects of this folder
    local archive=$1 pc=$2 name=$3 link=$4
    shift 4
    mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
    rm -f "$prefix/lib/$archive"
    $AR rcs "$prefix/lib/$archive" ./*.o
    cp "$@" "$prefix/include/"
    printf 'prefix=${pcfiledir}/../..\nName: %s\nDescription: %s\nVersion: %s\nCflags: -I${prefix}/include\nLibs: -L${prefix}/lib %s\n' \
        "$name" "$name" "$(version_of "$library")" "$link" >"$prefix/lib/pkgconfig/$pc.pc"
}

cmake_package() { # cmake_package NAME [TEXT]: what find_package(NAME) reads
    local folder=$prefix/lib/cmake/$1
    mkdir -p "$folder"
    echo "${2:-}" >"$folder/$1Config.cmake"
    cat >"$folder/$1ConfigVersion.cmake" <<TEXT
set(PACKAGE_VERSION $(version_of "$library"))
set(PACKAGE_VERSION_COMPATIBLE TRUE)
TEXT
}
