# cmake -P static_library.cmake, with the definitions of CMakeLists.txt: makes OBJECT of ARCHIVES, in which every name is
# local but dtrun_*. Lists have '|' between their items.
string(REPLACE "|" ";" archives "${ARCHIVES}")
file(STRINGS ${HEADER} declared REGEX "^DTRUN_API")
string(REGEX MATCHALL "dtrun_[a-z_]+\\(" roots "${declared}")
list(TRANSFORM roots REPLACE "(.*)\\(" "-Wl,-u,\\1")
# Groups of inline functions are dissolved (a name that is local could not be shared any more), and common symbols get
# their place.
set(whole ${OBJECT}.whole)
execute_process(
    COMMAND ${COMPILER} -r -nostdlib -Wl,-d -Wl,--gc-sections -Wl,--force-group-allocation ${roots}
            -Wl,--start-group ${archives} -Wl,--end-group -o ${whole}
    COMMAND_ERROR_IS_FATAL ANY)
# Names that are unique in a process, as static variables of inline functions are, become weak: objcopy does not make
# them local otherwise.
execute_process(COMMAND ${NM} --defined-only ${whole} OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " u [^\n]+" unique "${names}")
list(TRANSFORM unique REPLACE " u " "")
list(JOIN unique "\n" unique)
file(WRITE ${OBJECT}.unique "${unique}\n")
execute_process(COMMAND ${OBJCOPY} --weaken-symbols=${OBJECT}.unique ${whole} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${OBJCOPY} --wildcard --keep-global-symbol=dtrun_* ${STRIP} ${whole} ${OBJECT}
                COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${whole} ${OBJECT}.unique)
