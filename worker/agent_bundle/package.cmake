# cmake -P package.cmake, with the definitions of worker/CMakeLists.txt: makes the folder `package` and its archive,
# and a source file with the digests of the archive and of the names and sizes in it.
set(new ${FOLDER}.new)
file(REMOVE_RECURSE ${new})
file(COPY ${SOURCE}/agent_bundle/dtrun DESTINATION ${new}/pythonpath PATTERN __pycache__ EXCLUDE)
file(COPY ${SOURCE}/agent_bundle/dtrun_startup DESTINATION ${new} PATTERN __pycache__ EXCLUDE)
file(COPY ${SOURCE}/python/ DESTINATION ${new}/lib/dtrun/python PATTERN __pycache__ EXCLUDE
     PATTERN README.md EXCLUDE)
file(MAKE_DIRECTORY ${new}/lib/dtrun/backends)
set(libraries ${CLIENT}:libdtrun.so.0 ${COLLECTIVES}:libdtrun_collectives.so.0)
string(REGEX MATCHALL "[^/]+" plugins ${PLUGINS})
foreach(plugin ${plugins})
    list(APPEND libraries ${PLUGIN_FOLDER}/lib${plugin}.so:dtrun/backends/lib${plugin}.so)
endforeach()
foreach(library ${libraries})
    string(REPLACE ":" ";" names ${library})
    list(GET names 0 from)
    list(GET names 1 to)
    if(STRIP)
        execute_process(COMMAND ${STRIP} --strip-unneeded -o ${new}/lib/${to} ${from} COMMAND_ERROR_IS_FATAL ANY)
    else()
        file(COPY_FILE ${from} ${new}/lib/${to})
    endif()
endforeach()

# The same content gives the same bytes: no times, no owners, and no order of a folder's.
execute_process(COMMAND tar --create --format=gnu --sort=name --mtime=@946684800 --owner=0 --group=0 --numeric-owner
                        --mode=u=rwX,go=rX pythonpath dtrun_startup lib
                COMMAND gzip -9n OUTPUT_FILE ${ARCHIVE}.new
                WORKING_DIRECTORY ${new} COMMAND_ERROR_IS_FATAL ANY)
file(SHA256 ${ARCHIVE}.new digest)
file(GLOB_RECURSE files RELATIVE ${new} ${new}/*)
list(SORT files COMPARE STRING)
set(lines "")
foreach(file ${files})
    file(SIZE ${new}/${file} bytes)
    string(APPEND lines "${bytes} ${file}\n")
endforeach()
string(SHA256 names "${lines}")
file(REMOVE_RECURSE ${FOLDER})
file(RENAME ${new} ${FOLDER})
file(RENAME ${ARCHIVE}.new ${ARCHIVE})
configure_file(${SOURCE}/agent_bundle/package_digest.cpp.in ${DIGEST} @ONLY)
file(TOUCH ${DIGEST})
