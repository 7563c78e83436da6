# How tests are added. A test is of one of two kinds, and DTRUN_TESTS says which kinds a build has:
#
#   UNIT     links the code that it tests. `./dev test` builds these with sanitizers, in build/dev.
#   SYSTEM   runs the programs and libraries that users run. `./dev test` builds these in build/release.
#
# ON means both, OFF neither. Targets of the other kind exist and can be built by name, but no test runs
# them. Each test has one of the labels unit, fuzz, loopback, cluster, frameworks, portable and packages;
# tests/budgets.txt says what a label may cost.
set_property(CACHE DTRUN_TESTS PROPERTY STRINGS ON OFF UNIT SYSTEM)

# Everything that the tests of this build need; whatever else is below tests/ is not built.
add_custom_target(tests ALL)

# dtrun_runs(RESULT SYSTEM): whether this build runs tests of the kind.
function(dtrun_runs result system)
    set(kind UNIT)
    if(system)
        set(kind SYSTEM)
    endif()
    set(runs OFF)
    if(DTRUN_TESTS STREQUAL kind OR NOT DTRUN_TESTS MATCHES "^(UNIT|SYSTEM)$")
        set(runs ON)
    endif()
    set(${result} ${runs} PARENT_SCOPE)
endfunction()

# dtrun_command_test(name LABELS l COMMAND word ... [SYSTEM] [LONG] [WAITS] [DEPENDS target ...] [TIMEOUT s]
# [PROCESSORS n] [ENVIRONMENT NAME=value ...]): a command that succeeds, or ends with 77 for "skipped".
# Targets that it names are built. LONG ones run only under `./dev test --all`.
#
# A test takes one processor, or as many as it says. One that WAITS, for networks and timeouts, takes half a
# processor, so that it runs beside one that computes: CTest counts in halves, and `./dev test` gives it two
# for each processor.
function(dtrun_command_test name)
    cmake_parse_arguments(ARG "SYSTEM;LONG;WAITS" "TIMEOUT;PROCESSORS"
                          "LABELS;COMMAND;DEPENDS;ENVIRONMENT" ${ARGN})
    dtrun_runs(runs "${ARG_SYSTEM}")
    if(NOT runs)
        return()
    endif()
    set(configurations)
    if(ARG_LONG)
        set(configurations CONFIGURATIONS all)
    endif()
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 300)
    endif()
    if(NOT ARG_PROCESSORS)
        set(ARG_PROCESSORS 1)
    endif()
    math(EXPR halves "2 * ${ARG_PROCESSORS}")
    if(ARG_WAITS)
        set(halves 1)
    endif()
    # Jobs of tests are not to be found among those of who runs the tests.
    list(APPEND ARG_ENVIRONMENT "XDG_STATE_HOME=${CMAKE_BINARY_DIR}/state_of_tests")
    add_test(NAME ${name} COMMAND ${ARG_COMMAND} ${configurations})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                         PROCESSORS ${halves} SKIP_RETURN_CODE 77 ENVIRONMENT "${ARG_ENVIRONMENT}")
    foreach(word ${ARG_COMMAND} ${ARG_ENVIRONMENT} ${ARG_DEPENDS})
        string(REGEX REPLACE ".*TARGET_FILE:([^>]*)>.*" "\\1" word "${word}")
        if(TARGET ${word})
            add_dependencies(tests ${word})
        endif()
    endforeach()
endfunction()

# dtrun_test(name SOURCES ... DEPS ... [LABELS l] [SYSTEM] [LONG] [WAITS] [PROCESSORS n] [TIMEOUT s]):
# test_<name>, a Catch2 program, which CTest runs as one test.
function(dtrun_test name)
    cmake_parse_arguments(ARG "SYSTEM;LONG;WAITS" "TIMEOUT;PROCESSORS" "SOURCES;DEPS;LABELS" ${ARGN})
    add_executable(test_${name} ${ARG_SOURCES})
    target_link_libraries(test_${name} PRIVATE dtrun_test_main ${ARG_DEPS})
    target_precompile_headers(test_${name} REUSE_FROM dtrun_test_main)
    if(NOT ARG_LABELS)
        set(ARG_LABELS unit)
    endif()
    set(options)
    foreach(option SYSTEM LONG WAITS)
        if(ARG_${option})
            list(APPEND options ${option})
        endif()
    endforeach()
    dtrun_command_test(${name} ${options} LABELS ${ARG_LABELS} TIMEOUT "${ARG_TIMEOUT}"
                       PROCESSORS "${ARG_PROCESSORS}" COMMAND test_${name})
endfunction()
