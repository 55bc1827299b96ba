# strata_fuzz(NAME files...): one libFuzzer program fuzz_FILE for each *_fuzz.cpp, against the room strata_NAME, which is
# built with coverage. Needs clang:
#   cmake -S . -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DSTRATA_BUILD_FUZZ=ON -DSTRATA_SANITIZE=address,undefined
#   build-fuzz/strata/fuzz_safetensors -max_total_time=60
if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
  message(FATAL_ERROR "STRATA_BUILD_FUZZ needs clang: set CMAKE_CXX_COMPILER=clang++")
endif()

function(strata_fuzz name)
  target_compile_options(strata_${name} PRIVATE -fsanitize=fuzzer-no-link)
  foreach(file ${ARGN})
    get_filename_component(program ${file} NAME_WE)
    string(REGEX REPLACE "(.*)_fuzz$" "fuzz_\\1" program ${program})
    add_executable(${program} ${file})
    target_link_libraries(${program} PRIVATE strata_flags strata_${name})
    target_compile_options(${program} PRIVATE -fsanitize=fuzzer)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
  endforeach()
endfunction()
