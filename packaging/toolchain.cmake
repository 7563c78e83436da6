# For CMake: the compiler of packaging/portable, and only the libraries that it has built. Of the environment:
# DTRUN_PORTABLE (build/portable) and DTRUN_TARGET, as in x86_64-gnu.
string(REGEX REPLACE "-.*" "" cpu "$ENV{DTRUN_TARGET}")
cmake_host_system_information(RESULT host QUERY OS_PLATFORM)
if(NOT cpu STREQUAL host)
    set(CMAKE_SYSTEM_NAME Linux)
    set(CMAKE_SYSTEM_PROCESSOR ${cpu})
endif()
set(bin $ENV{DTRUN_PORTABLE}/tools/$ENV{DTRUN_TARGET})
set(CMAKE_C_COMPILER ${bin}/cc)
set(CMAKE_CXX_COMPILER ${bin}/c++)
set(CMAKE_ASM_COMPILER ${bin}/cc)
# clang 20 and newer take two evaluations of one literal for two objects, which fmt before 11 subtracts in functions
# that are consteval. Formats are checked by g++.
set(CMAKE_CXX_FLAGS_INIT -DFMT_CONSTEVAL=)
set(CMAKE_AR ${bin}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${bin}/ranlib CACHE FILEPATH "")
# Everything is stripped as it is linked.
set(CMAKE_STRIP "" CACHE FILEPATH "")
set(libraries $ENV{DTRUN_PORTABLE}/libraries/$ENV{DTRUN_TARGET})
foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "-s -L${libraries}/lib -Wl,--gc-sections")
endforeach()
if($ENV{DTRUN_TARGET} MATCHES gnu)
    string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT " -pie")
endif()

find_program(CMAKE_MAKE_PROGRAM ninja)
find_program(PKG_CONFIG_EXECUTABLE pkg-config)
set(CMAKE_FIND_ROOT_PATH ${libraries} $ENV{DTRUN_PORTABLE}/libraries/headers)
foreach(kind PROGRAM LIBRARY INCLUDE PACKAGE)
    set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/lib/pkgconfig)
