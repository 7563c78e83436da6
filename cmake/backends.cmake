# How a plug-in of collectives is built and installed.

# dtrun_backend(NAME SOURCES ... LIBRARIES ... [NATIVE]): the plug-in libdtrun_backend_NAME.so. With NATIVE it is
# linked with a library of this host, so that it is built there: `cmake --build BUILD --target dtrun_backends` builds
# all of these, and `cmake --install BUILD --component backends` installs them alone.
add_custom_target(dtrun_backends)
function(dtrun_backend name)
    cmake_parse_arguments(ARG "NATIVE" "" "SOURCES;LIBRARIES" ${ARGN})
    set(target dtrun_backend_${name})
    add_library(${target} MODULE ${ARG_SOURCES})
    dtrun_precompiled(${target} dtrun_base)
    target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES} dtrun_collectives_parts ${CMAKE_DL_LIBS})
    # What it has of other libraries is its own: Python has another OpenSSL.
    set(exports ${CMAKE_SOURCE_DIR}/collectives/backends/plugin.map)
    target_link_options(${target} PRIVATE -Wl,--version-script,${exports} -Wl,--gc-sections)
    set_target_properties(${target} PROPERTIES DTRUN_STATIC ON BUILD_WITH_INSTALL_RPATH ON LINK_DEPENDS ${exports}
                          LIBRARY_OUTPUT_DIRECTORY ${DTRUN_BACKEND_DIR})
    install(TARGETS ${target} COMPONENT collectives
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/dtrun/backends COMPONENT collectives)
    if(ARG_NATIVE)
        add_dependencies(dtrun_backends ${target})
        if(DTRUN_BACKENDS STREQUAL "ONLY")  # it stays here, where the library is in a place of a module's, say
            set_target_properties(${target} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
        endif()
        set_property(GLOBAL APPEND PROPERTY dtrun_native_backends ${name})
        install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/dtrun/backends
                COMPONENT backends EXCLUDE_FROM_ALL)
    endif()
endfunction()
