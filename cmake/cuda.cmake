# Code for GPUs, where there is a CUDA toolkit; nothing else needs one. It is compiled by commands of its own:
# CMake's language CUDA would have to be known to every folder that links a library of it.
#
# DTRUN_CUDA_FOUND says whether there is one, DTRUN_CUDA_WHY which, or why not.
set(DTRUN_WITH_CUDA AUTO CACHE STRING "CUDA kernels of the codecs: AUTO, ON or OFF")
set_property(CACHE DTRUN_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DTRUN_CUDA_FOUND OFF)

# dtrun_cuda_library(TARGET SOURCE PART): the library libTARGET.so of one .cu file, beside the plug-ins, with the
# CUDA runtime inside; a row PART of the table that ends a build.
function(dtrun_cuda_library target source part)
    if(NOT DTRUN_CUDA_FOUND)
        dtrun_part("${part}" no "${DTRUN_CUDA_WHY}")
        return()
    endif()
    dtrun_part("${part}" yes "${DTRUN_CUDA_WHY}")
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}.o)
    add_custom_command(
        OUTPUT ${object}
        COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${DTRUN_NVCC} ${DTRUN_NVCC_FLAGS} -MD -MT ${object} -MF ${object}.d
                -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
        DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
        DEPFILE ${object}.d
        COMMENT "Compiling ${part}" VERBATIM)
    add_library(${target} MODULE ${object})
    target_link_libraries(${target} PRIVATE ${DTRUN_CUDART_STATIC} Threads::Threads ${CMAKE_DL_LIBS} rt)
    target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs $<$<CONFIG:Release>:-s>)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX BUILD_WITH_INSTALL_RPATH ON
                          LIBRARY_OUTPUT_DIRECTORY ${DTRUN_BACKEND_DIR})
    # A component of its own: 8 MB that machines without GPUs have no use for.
    install(TARGETS ${target} COMPONENT cuda
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/dtrun/backends COMPONENT cuda)
endfunction()

# dtrun_no_cuda(WHY): not found, which is an error if it was asked for. The caller returns.
function(dtrun_no_cuda why)
    if(DTRUN_WITH_CUDA STREQUAL "ON")
        message(FATAL_ERROR "DTRUN_WITH_CUDA=ON: ${why}")
    endif()
    set(DTRUN_CUDA_WHY "${why}" PARENT_SCOPE)
endfunction()

if(DTRUN_WITH_CUDA STREQUAL "OFF")
    set(DTRUN_CUDA_WHY "DTRUN_WITH_CUDA is OFF")
    return()
endif()

find_program(DTRUN_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
if(DTRUN_NVCC)
    execute_process(COMMAND ${DTRUN_NVCC} --list-gpu-code OUTPUT_VARIABLE dtrun_gpu_codes
                    ERROR_VARIABLE dtrun_nvcc_error RESULT_VARIABLE dtrun_nvcc_result)
    # Its folder, through links and wrappers: nvcc says where it finds the rest of the toolkit.
    execute_process(COMMAND ${DTRUN_NVCC} --dryrun --cuda x.cu OUTPUT_QUIET
                    ERROR_VARIABLE dtrun_nvcc_paths)
    string(REGEX MATCH "TOP=([^\n]*)" _ "${dtrun_nvcc_paths}")
    set(dtrun_cuda_top "${CMAKE_MATCH_1}")
    find_library(DTRUN_CUDART_STATIC libcudart_static.a
                 HINTS ${dtrun_cuda_top}/lib64 ${dtrun_cuda_top}/targets/x86_64-linux/lib
                       ${dtrun_cuda_top}/targets/sbsa-linux/lib /usr/local/cuda/lib64)
    find_path(DTRUN_CUDA_INCLUDE cuda_runtime_api.h
              HINTS ${dtrun_cuda_top}/include ${dtrun_cuda_top}/targets/x86_64-linux/include
                    ${dtrun_cuda_top}/targets/sbsa-linux/include /usr/local/cuda/include)
endif()
if(NOT DTRUN_NVCC OR NOT dtrun_nvcc_result EQUAL 0 OR NOT DTRUN_CUDART_STATIC
   OR NOT DTRUN_CUDA_INCLUDE)
    dtrun_no_cuda("no CUDA toolkit here (nvcc and libcudart_static.a)")
    return()
endif()

# Machine code for the generations in use, as far as the toolkit knows them: V100; T4; A100; H100; B200. For
# GPUs between those and later ones the driver compiles what is closest from below.
set(dtrun_gpu_flags "")
set(dtrun_gpu_generations "")
foreach(generation 70 75 80 90 100)
    if(dtrun_gpu_codes MATCHES "sm_${generation}[^0-9]")
        list(APPEND dtrun_gpu_flags -gencode=arch=compute_${generation},code=sm_${generation})
        list(APPEND dtrun_gpu_generations ${generation})
    endif()
endforeach()
if(NOT dtrun_gpu_generations)
    set(dtrun_nvcc_result 1)
    set(dtrun_nvcc_error "error: it knows none of the GPUs that they run on")
else()
    list(GET dtrun_gpu_generations 0 dtrun_gpu_oldest)
    list(GET dtrun_gpu_generations -1 dtrun_gpu_newest)
    foreach(generation ${dtrun_gpu_oldest} ${dtrun_gpu_newest})
        list(APPEND dtrun_gpu_flags -gencode=arch=compute_${generation},code=compute_${generation})
    endforeach()
    list(REMOVE_DUPLICATES dtrun_gpu_flags)
endif()
set(dtrun_nvcc_flags -std=c++20 -O3 -fmad=false -I${CMAKE_SOURCE_DIR}
                     -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra -Werror all-warnings)

# Whether this nvcc and the compiler behind it take our flags: an old one has no C++20, and none takes every
# new g++.
if(dtrun_nvcc_result EQUAL 0 AND NOT DTRUN_NVCC_WORKS STREQUAL DTRUN_NVCC)
    file(WRITE ${CMAKE_BINARY_DIR}/generated/nvcc_works.cu
         "#include <cuda_runtime_api.h>\n#include <cstddef>\n#include <memory>\n"
         "template <class T> concept Any = true;\n"
         "template <Any T> __global__ void kernel(T* data) { *data = 0; }\n"
         "void start(float* data) { kernel<<<1, 1>>>(data); }\n")
    execute_process(COMMAND ${DTRUN_NVCC} ${dtrun_nvcc_flags} -c nvcc_works.cu -o nvcc_works.o
                            -gencode=arch=compute_${dtrun_gpu_oldest},code=sm_${dtrun_gpu_oldest}
                    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/generated RESULT_VARIABLE dtrun_nvcc_result
                    OUTPUT_VARIABLE dtrun_nvcc_error ERROR_VARIABLE dtrun_nvcc_error)
    if(dtrun_nvcc_result EQUAL 0)
        set(DTRUN_NVCC_WORKS ${DTRUN_NVCC} CACHE INTERNAL "the nvcc that was tried and compiles our code")
    endif()
endif()
if(NOT dtrun_nvcc_result EQUAL 0)
    string(REGEX MATCH "[^\n]*(error|unsupported|not )[^\n]*" dtrun_nvcc_error "${dtrun_nvcc_error}")
    set(dtrun_nvcc_error "${DTRUN_NVCC} does not compile them (12.0 or newer does): ${dtrun_nvcc_error}")
    dtrun_no_cuda("${dtrun_nvcc_error}")
    return()
endif()
list(JOIN dtrun_gpu_generations ", " dtrun_gpu_generations)
set(DTRUN_CUDA_WHY "${DTRUN_NVCC}, sm_${dtrun_gpu_generations}")
set(DTRUN_CUDA_FOUND ON)
set(DTRUN_NVCC_FLAGS ${dtrun_nvcc_flags} ${dtrun_gpu_flags})
