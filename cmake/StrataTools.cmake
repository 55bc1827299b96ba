# Compiler cache, linker, warnings, sanitizers, and the two functions that every room uses.

# A quick build's compilations are not worth a cache: precompiled headers keep them out of it.
find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT STRATA_QUICK_BUILD)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STRATA_CCACHE})
endif()

include(CheckLinkerFlag)
foreach(linker mold lld gold)
  check_linker_flag(CXX -fuse-ld=${linker} STRATA_HAS_${linker})
  if(STRATA_HAS_${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()

add_library(strata_flags INTERFACE)
target_compile_options(strata_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-Wno-missing-field-initializers;-ffunction-sections;-fdata-sections>
  # 186: comparisons of unsigned numbers with 0, in rows that are written for all numbers.
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--expt-extended-lambda;-diag-suppress=186;${STRATA_CUDA_COMPRESS};-Xcompiler=-Wall,-Wno-unused-parameter,-ffunction-sections,-fdata-sections>)
# Dead sections are dropped, so that a program carries only the rooms it uses.
add_link_options(-Wl,--gc-sections)
if(STRATA_SANITIZE)
  add_compile_options(-fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${STRATA_SANITIZE})
  if(STRATA_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

if(STRATA_BUILD_TESTS)
  enable_testing()
endif()

# Kernels are compiled for several instruction sets, and the program chooses when it runs. A quick build has the one that
# this processor would choose (and of Highway's the one that any has): the same kernels run, so the same numbers come out.
if(STRATA_QUICK_BUILD)
  file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/instruction_sets.cpp
"#include <cstdio>
#include <hwy/highway.h>
#include \"strata/ops/vec/level.h\"
int main() {
  const long long best = hwy::SupportedTargets() & -hwy::SupportedTargets();
  std::printf(\"%d;0x%llx\", strata::vec_level(), ~(best | HWY_STATIC_TARGET) & ~(1LL << 63));
}
")
  try_run(ran built SOURCES ${PROJECT_BINARY_DIR}/CMakeFiles/instruction_sets.cpp ${PROJECT_SOURCE_DIR}/strata/ops/vec/level.cpp
          CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR} LINK_LIBRARIES hwy::hwy RUN_OUTPUT_VARIABLE sets
          COMPILE_OUTPUT_VARIABLE why CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  if(built AND ran EQUAL 0)
    list(GET sets 0 level)
    list(GET sets 1 others)
    add_compile_definitions(STRATA_VEC_ONLY=${level} HWY_DISABLED_TARGETS=${others}LL)
  else()
    message(WARNING "What this processor can do was not found out, so kernels are built for every one:\n${why}")
  endif()
endif()

# strata_quick(TARGET kernels... HEADERS headers...): what a quick build changes of a target. The kernels keep their own options.
function(strata_quick target)
  if(NOT STRATA_QUICK_BUILD)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "KERNELS;HEADERS" ${ARGN})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  target_precompile_headers(${target} PRIVATE ${ARG_HEADERS})
  set_source_files_properties(${ARG_KERNELS} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# strata_room(NAME rooms... DEPENDS libs... HEADERS those that most files include): a static library strata_NAME from every .cpp under the rooms, tests and
# example programs aside. New files are picked up by the next build: adding an op touches one folder only.
# Each *_test.cpp folder becomes the test program strata_ROOM_FOLDER_test.
function(strata_room name)
  cmake_parse_arguments(ARG "" "" "ROOMS;DEPENDS;PRIVATE_DEPENDS;HEADERS" ${ARGN})
  set(sources)
  foreach(room ${ARG_ROOMS})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${room}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|_transport)\\.cpp$|/test_plugin/")
  if(NOT STRATA_WITH_CUDA)
    list(FILTER tests EXCLUDE REGEX "_cuda_test\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.cpp$")
    set(cuda)
    foreach(room ${ARG_ROOMS})
      file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${room}/*.cu)
      list(APPEND cuda ${found})
    endforeach()
  endif()
  add_library(strata_${name} STATIC ${sources})
  add_library(Strata::${name} ALIAS strata_${name})
  set_target_properties(strata_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(strata_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(strata_${name} PUBLIC cxx_std_20)
  target_link_libraries(strata_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:strata_flags> ${ARG_PRIVATE_DEPENDS})
  if(STRATA_WITH_CUDA)
    target_compile_definitions(strata_${name} PRIVATE STRATA_WITH_CUDA=1)
    if(cuda)
      # Objects, so that the library's link language stays C++ and its users need not enable CUDA.
      add_library(strata_${name}_cuda OBJECT ${cuda})
      target_include_directories(strata_${name}_cuda PRIVATE ${PROJECT_SOURCE_DIR})
      target_compile_definitions(strata_${name}_cuda PRIVATE STRATA_WITH_CUDA=1)
      target_link_libraries(strata_${name}_cuda PRIVATE strata_flags)
      target_sources(strata_${name} PRIVATE $<TARGET_OBJECTS:strata_${name}_cuda>)
      target_link_libraries(strata_${name} PRIVATE CUDA::cudart_static)
    endif()
  endif()
  # Kernels are loops: let the compiler unroll and vectorise them. Every copy of a loop would be a copy of the sanitizers'
  # checks too, and take minutes to compile.
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "_cpu\\.cpp$")
  set(options -fno-math-errno -fno-trapping-math)
  if(STRATA_QUICK_BUILD AND NOT STRATA_SANITIZE)
    list(PREPEND options -O2)  # -O3 takes half as long again, and these have their vectors written out where it matters most
  elseif(NOT STRATA_SANITIZE)
    list(PREPEND options -O3)
  endif()
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "${options}")
  strata_quick(strata_${name} KERNELS ${kernels} HEADERS ${ARG_HEADERS})
  install(TARGETS strata_${name} EXPORT Strata_${name})
  install(EXPORT Strata_${name} FILE Strata_${name}.cmake NAMESPACE Strata:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Strata)
  if(STRATA_BUILD_TESTS)
    strata_tests(${name} ${tests})
  endif()
endfunction()

# Programs of whole runs and of every model or record: minutes each, with sanitizers ten times that. Label "long", which apps_strata has
# too.
set(STRATA_LONG_TESTS models train lab generate eval dist_pipeline)

# strata_tests(NAME files...): one test program per folder, run by ctest as one test each.
function(strata_tests name)
  set(folders)
  foreach(test ${ARGN})
    get_filename_component(folder ${test} DIRECTORY)
    string(REPLACE "/" "_" id ${folder})
    list(APPEND folders ${id})
    list(APPEND files_${id} ${test})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  list(LENGTH folders programs)
  set(library $<LINK_LIBRARY:WHOLE_ARCHIVE,strata_${name}>)
  if(STRATA_SANITIZE AND programs GREATER 8)
    # With the sanitizers' checks every program would carry a third of a gigabyte of the same library.
    add_library(strata_${name}_together SHARED $<TARGET_OBJECTS:strata_${name}>)
    get_target_property(libraries strata_${name} LINK_LIBRARIES)
    target_link_libraries(strata_${name}_together PUBLIC ${libraries})
    target_include_directories(strata_${name}_together PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_options(strata_${name}_together PRIVATE -Wl,--no-gc-sections)
    set(library strata_${name}_together)
  endif()
  foreach(id ${folders})
    add_executable(test_${id} ${files_${id}})
    target_link_libraries(test_${id} PRIVATE strata_flags ${library} GTest::gtest GTest::gtest_main)
    add_test(NAME ${id} COMMAND test_${id})
    set_tests_properties(${id} PROPERTIES TIMEOUT 2400 ENVIRONMENT "STRATA_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
    if(id IN_LIST STRATA_LONG_TESTS)
      set_tests_properties(${id} PROPERTIES LABELS long)
    endif()
  endforeach()
endfunction()

# strata_fuzz(NAME folders...): one libFuzzer program per *_fuzz.cpp under the folders (the one named NAME if none is
# given), against strata_NAME, which is built with coverage (clang only, STRATA_BUILD_FUZZ).
function(strata_fuzz name)
  if(NOT STRATA_BUILD_FUZZ)
    return()
  endif()
  if(NOT ARGN)
    set(ARGN ${name})
  endif()
  list(TRANSFORM ARGN APPEND /*_fuzz.cpp)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARGN})
  target_compile_options(strata_${name} PRIVATE -fsanitize=fuzzer-no-link)
  foreach(source ${sources})
    get_filename_component(program ${source} NAME_WE)
    add_executable(${program} ${source})
    target_compile_options(${program} PRIVATE -fsanitize=fuzzer)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${program} PRIVATE strata_flags strata_${name})
  endforeach()
endfunction()
