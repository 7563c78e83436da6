if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
    message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} has no std::expected; 12 is the oldest that will do (CXX=g++-12)")
endif()
if(POLICY CMP0167)
    cmake_policy(SET CMP0167 NEW)  # Boost brings its own package file
endif()
include(CheckCXXSourceCompiles)
include(GNUInstallDirs)
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)  # for .pc.in files
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)     # headers only
if(NOT DTRUN_BACKENDS STREQUAL "ONLY")
    find_package(OpenSSL REQUIRED)
    find_package(Boost 1.81 REQUIRED)
    find_package(spdlog REQUIRED)  # headers only
    find_package(PkgConfig REQUIRED)
endif()
if(NOT DTRUN_AGENT STREQUAL "ONLY" AND NOT DTRUN_BACKENDS STREQUAL "ONLY")
    find_package(yaml-cpp REQUIRED)
    pkg_check_modules(libssh REQUIRED IMPORTED_TARGET libssh)
    pkg_check_modules(sqlite REQUIRED IMPORTED_TARGET sqlite3)
endif()

# Where plug-ins of collectives are built, which worker/ packs and collectives/ links.
set(DTRUN_BACKEND_DIR ${CMAKE_BINARY_DIR}/lib/dtrun/backends)

# dtrun_part(NAME yes|no WHY): a part that is built or not, and why, for the table that ends a build.
function(dtrun_part name built why)
    string(LENGTH "${name}" length)
    math(EXPR missing "18 - ${length}")
    string(REPEAT " " ${missing} blanks)
    string(LENGTH "${built}" length)
    math(EXPR missing "5 - ${length}")
    string(REPEAT " " ${missing} more_blanks)
    set_property(GLOBAL APPEND_STRING PROPERTY dtrun_parts "  ${name}${blanks}${built}${more_blanks}${why}\n")
endfunction()

# Prints the table, and writes it to parts.txt in the build's directory.
function(dtrun_print_parts)
    get_property(parts GLOBAL PROPERTY dtrun_parts)
    file(WRITE ${CMAKE_BINARY_DIR}/parts.txt "${parts}")
    message(STATUS "What is built:\n${parts}")
endfunction()

# What goes into other people's processes has libraries inside, and so has dtrun-agent, which is copied to hosts that
# may have none. A distribution without archives gets programs and libraries that need its shared ones.
find_library(DTRUN_CRYPTO_STATIC libcrypto.a)
find_library(DTRUN_HWLOC_STATIC libhwloc.a)
find_library(DTRUN_Z_STATIC libz.a)
set(CMAKE_REQUIRED_LINK_OPTIONS -static)
check_cxx_source_compiles("#include <string>\nint main(int n, char**) { return std::to_string(n).empty(); }"
                          DTRUN_RUNTIME_STATIC)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
set(missing)
foreach(archive CRYPTO:libcrypto.a HWLOC:libhwloc.a Z:libz.a RUNTIME:libc.a)
    string(REPLACE ":" ";" archive ${archive})
    list(GET archive 0 name)
    if(NOT DTRUN_${name}_STATIC)
        list(GET archive 1 archive)
        list(APPEND missing ${archive})
    endif()
endforeach()
if(DTRUN_AGENT AND DTRUN_STATIC_AGENT AND missing AND NOT DTRUN_BACKENDS STREQUAL "ONLY")
    list(JOIN missing ", " missing)
    set(DTRUN_STATIC_AGENT OFF)
    dtrun_part("static agent" no "no ${missing} here: dtrun-agent runs only on hosts that have this machine's libraries")
endif()

# dtrun_linked(NAME SHARED ARCHIVE...): dtrun::NAME is the archive, with what stands behind it, in targets with the
# property DTRUN_STATIC, and the shared library in all others.
function(dtrun_linked name shared)
    add_library(dtrun_linked_${name} INTERFACE)
    add_library(dtrun::${name} ALIAS dtrun_linked_${name})
    set(static $<BOOL:$<TARGET_PROPERTY:DTRUN_STATIC>>)
    target_link_libraries(dtrun_linked_${name} INTERFACE "$<${static}:${ARGN}>" $<$<NOT:${static}>:${shared}>)
endfunction()

if(NOT DTRUN_BACKENDS STREQUAL "ONLY")
    set(crypto OpenSSL::Crypto)
    if(DTRUN_CRYPTO_STATIC)
        # Since 3.2 it may have been built to compress, and needs zlib and zstd behind it: its pkg-config file knows.
        pkg_check_modules(crypto QUIET libcrypto)
        set(crypto ${crypto_STATIC_LIBRARIES})
        list(REMOVE_ITEM crypto crypto)
        list(PREPEND crypto ${DTRUN_CRYPTO_STATIC})
    endif()
    dtrun_linked(crypto OpenSSL::Crypto ${crypto})
endif()

# So has dtrun where all of its libraries are there as archives: to load eighteen shared ones was half of what it costs
# to run one rank. libssh brings the shared libcrypto where it is shared itself, and two copies in one process would not do.
if(NOT DTRUN_AGENT STREQUAL "ONLY" AND NOT DTRUN_BACKENDS STREQUAL "ONLY")
    find_library(DTRUN_SSH_STATIC libssh.a)
    find_library(DTRUN_SQLITE_STATIC libsqlite3.a)
    find_library(DTRUN_YAML_STATIC libyaml-cpp.a)
    if(DTRUN_SANITIZE)
        set(DTRUN_STATIC_LIBRARIES OFF)
    endif()
    set(archives ${DTRUN_SSH_STATIC} ${DTRUN_SQLITE_STATIC} ${DTRUN_YAML_STATIC} ${DTRUN_Z_STATIC} ${DTRUN_CRYPTO_STATIC})
    if(DTRUN_STATIC_LIBRARIES AND NOT archives MATCHES NOTFOUND)
        set(CMAKE_REQUIRED_LIBRARIES ${DTRUN_SSH_STATIC} ${DTRUN_SQLITE_STATIC} ${DTRUN_YAML_STATIC} ${crypto} ${DTRUN_Z_STATIC} m)
        set(CMAKE_REQUIRED_LINK_OPTIONS -static-libstdc++ -static-libgcc)
        check_cxx_source_compiles("
            #include \"${CMAKE_SOURCE_DIR}/launcher/transport/gssapi_absent.cpp\"
            #include <libssh/libssh.h>
            #include <sqlite3.h>
            #include <yaml-cpp/yaml.h>
            int main(int, char** argv) {
                sqlite3* db = nullptr;
                return ssh_new() == nullptr || sqlite3_open(argv[0], &db) || YAML::Load(argv[0]).IsNull();
            }" DTRUN_ARCHIVES_LINK)
        unset(CMAKE_REQUIRED_LIBRARIES)
        unset(CMAKE_REQUIRED_LINK_OPTIONS)
    endif()
    if(DTRUN_STATIC_LIBRARIES AND NOT DTRUN_ARCHIVES_LINK)
        set(DTRUN_STATIC_LIBRARIES OFF)
        dtrun_part("archives in dtrun" no "not all of its libraries link as archives here: it has those that pkg-config names")
    endif()
    add_library(dtrun_gssapi_absent STATIC EXCLUDE_FROM_ALL launcher/transport/gssapi_absent.cpp)
    dtrun_linked(ssh PkgConfig::libssh ${DTRUN_SSH_STATIC} dtrun_gssapi_absent ${crypto} ${DTRUN_Z_STATIC})
    dtrun_linked(sqlite PkgConfig::sqlite ${DTRUN_SQLITE_STATIC} m)
    dtrun_linked(yaml yaml-cpp ${DTRUN_YAML_STATIC})
    dtrun_linked(z z ${DTRUN_Z_STATIC})
endif()

find_program(CCACHE ccache)
if(CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

configure_file(${CMAKE_SOURCE_DIR}/cmake/dtrun_version.h.in ${CMAKE_BINARY_DIR}/generated/dtrun_version.h @ONLY)

# What every target of the project is compiled with.
add_library(dtrun_flags INTERFACE)
target_compile_features(dtrun_flags INTERFACE cxx_std_23)
target_compile_options(dtrun_flags INTERFACE -Wall -Wextra -Wpedantic -Wnon-virtual-dtor
                       -fno-omit-frame-pointer -ffunction-sections -fdata-sections
                       $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
# g++ 12 sees overlaps in "..." + std::string that are not there (GCC bug 105651), and takes Asio's
# coroutine frame allocator for a mismatch once it has inlined half of it.
target_compile_options(dtrun_flags INTERFACE
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-mismatched-new-delete>)
target_include_directories(dtrun_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# Asio is compiled once, in base/loop/asio.cpp; everybody else sees declarations.
target_compile_definitions(dtrun_flags INTERFACE BOOST_ASIO_SEPARATE_COMPILATION
                           BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_VISIBILITY)
target_link_libraries(dtrun_flags INTERFACE Threads::Threads)
target_link_options(dtrun_flags INTERFACE -Wl,--as-needed)
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")  # CMake's own; a packager's stay
    set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()
if(DTRUN_SANITIZE)
    target_compile_options(dtrun_flags INTERFACE -fsanitize=${DTRUN_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(dtrun_flags INTERFACE -fsanitize=${DTRUN_SANITIZE})
    # ASan sees what these would, and they are half of the time that compiling takes.
    if(DTRUN_SANITIZE MATCHES undefined)
        target_compile_options(dtrun_flags INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
    endif()
    find_program(MOLD mold)
    if(MOLD)
        target_link_options(dtrun_flags INTERFACE -fuse-ld=mold)
    endif()
endif()

# Presets compile six files as one, and CI 24 of the product: half of the time went into reading the same headers
# again. So names of anonymous namespaces differ within a target, and g++ takes the second file's types for a header's.
if(CMAKE_UNITY_BUILD)
    target_compile_options(dtrun_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()

# Everything is compiled once, for programs and shared libraries alike; a shared library exports what its
# version script names.
if(NOT DTRUN_AGENT STREQUAL "ONLY")
    target_compile_options(dtrun_flags INTERFACE -fPIC)
endif()
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# dtrun_precompiled(TARGET): reads what is precompiled already. Whether code has an event loop follows
# from what it links: dtrun::loop brings Asio.
function(dtrun_precompiled target from)
    if(from STREQUAL dtrun_loop)
        dtrun_waits(${target})
    endif()
    if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
        target_precompile_headers(${target} REUSE_FROM ${from})
    endif()
endfunction()

# dtrun_waits(TARGET): code with an event loop, which waits more than it computes. With sanitizers a third of the
# time that it takes to compile goes into optimization, so it has none then.
function(dtrun_waits target)
    if(DTRUN_SANITIZE)
        target_compile_options(${target} PRIVATE -O0)
    endif()
endfunction()

# dtrun_library(name SOURCES a.cpp ... DEPS dtrun::base ...): a static library, dtrun::name, built if anything
# needs it. With PLAIN its code has no event loop, and may go into other people's processes.
function(dtrun_library name)
    cmake_parse_arguments(ARG "PLAIN" "" "SOURCES;DEPS" ${ARGN})
    add_library(dtrun_${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
    add_library(dtrun::${name} ALIAS dtrun_${name})
    target_link_libraries(dtrun_${name} PUBLIC dtrun_flags ${ARG_DEPS})
    if(name STREQUAL base)
        target_precompile_headers(dtrun_base PRIVATE ${CMAKE_SOURCE_DIR}/base/precompiled.h)
    elseif(name STREQUAL loop)
        dtrun_waits(dtrun_loop)
        target_precompile_headers(dtrun_loop PRIVATE ${CMAKE_SOURCE_DIR}/base/loop/precompiled.h)
    elseif(ARG_PLAIN)
        dtrun_precompiled(dtrun_${name} dtrun_base)
    else()
        dtrun_precompiled(dtrun_${name} dtrun_loop)
    endif()
endfunction()
