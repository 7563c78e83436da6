# libdtrun_codec_cuda.so, where there is a CUDA toolkit; nothing else needs one. It is compiled by a
# command of its own: CMake's language CUDA would have to be known to every folder that links it.
set(DTRUN_WITH_CUDA AUTO CACHE STRING "codecs as CUDA kernels: AUTO, ON or OFF")
set_property(CACHE DTRUN_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
if(DTRUN_WITH_CUDA STREQUAL "OFF")
    dtrun_part("CUDA codecs" no "DTRUN_WITH_CUDA is OFF")
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
    if(DTRUN_WITH_CUDA STREQUAL "ON")
        message(FATAL_ERROR "DTRUN_WITH_CUDA=ON: no CUDA toolkit (nvcc and libcudart_static.a)")
    endif()
    dtrun_part("CUDA codecs" no "no CUDA toolkit here (nvcc and libcudart_static.a)")
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
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/nvcc_works.cu
         "#include <cuda_runtime_api.h>\n#include <cstddef>\n#include <memory>\n"
         "template <class T> concept Any = true;\n"
         "template <Any T> __global__ void kernel(T* data) { *data = 0; }\n"
         "void start(float* data) { kernel<<<1, 1>>>(data); }\n")
    execute_process(COMMAND ${DTRUN_NVCC} ${dtrun_nvcc_flags} -c nvcc_works.cu -o nvcc_works.o
                            -gencode=arch=compute_${dtrun_gpu_oldest},code=sm_${dtrun_gpu_oldest}
                    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} RESULT_VARIABLE dtrun_nvcc_result
                    OUTPUT_VARIABLE dtrun_nvcc_error ERROR_VARIABLE dtrun_nvcc_error)
    if(dtrun_nvcc_result EQUAL 0)
        set(DTRUN_NVCC_WORKS ${DTRUN_NVCC} CACHE INTERNAL "the nvcc that was tried and compiles our code")
    endif()
endif()
if(NOT dtrun_nvcc_result EQUAL 0)
    string(REGEX MATCH "[^\n]*(error|unsupported|not )[^\n]*" dtrun_nvcc_error "${dtrun_nvcc_error}")
    set(dtrun_nvcc_error "${DTRUN_NVCC} does not compile them (12.0 or newer does): ${dtrun_nvcc_error}")
    if(DTRUN_WITH_CUDA STREQUAL "ON")
        message(FATAL_ERROR "DTRUN_WITH_CUDA=ON: ${dtrun_nvcc_error}")
    endif()
    dtrun_part("CUDA codecs" no "${dtrun_nvcc_error}")
    return()
endif()
list(JOIN dtrun_gpu_generations ", " dtrun_gpu_generations)
dtrun_part("CUDA codecs" yes "${DTRUN_NVCC}, sm_${dtrun_gpu_generations}")

set(dtrun_codec_cuda_object ${CMAKE_CURRENT_BINARY_DIR}/codec_cuda.o)
add_custom_command(
    OUTPUT ${dtrun_codec_cuda_object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${DTRUN_NVCC} ${dtrun_nvcc_flags} ${dtrun_gpu_flags}
            -MD -MT ${dtrun_codec_cuda_object} -MF ${dtrun_codec_cuda_object}.d
            -c ${CMAKE_CURRENT_SOURCE_DIR}/codec_cuda.cu -o ${dtrun_codec_cuda_object}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/codec_cuda.cu
    DEPFILE ${dtrun_codec_cuda_object}.d
    COMMENT "Compiling CUDA codecs" VERBATIM)
add_library(dtrun_codec_cuda MODULE ${dtrun_codec_cuda_object})
target_link_libraries(dtrun_codec_cuda PRIVATE ${DTRUN_CUDART_STATIC} Threads::Threads
                      ${CMAKE_DL_LIBS} rt)
target_link_options(dtrun_codec_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs
                    $<$<CONFIG:Release>:-s>)
set_target_properties(dtrun_codec_cuda PROPERTIES LINKER_LANGUAGE CXX
                      LIBRARY_OUTPUT_DIRECTORY ${DTRUN_BACKEND_DIR})
install(TARGETS dtrun_codec_cuda COMPONENT collectives
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/dtrun/backends COMPONENT collectives)
