# The libraries that Strata is built with. What is missing is named in one message, with the packages that bring it.

find_package(OpenMP REQUIRED)
find_package(Threads REQUIRED)
set(missing)
foreach(pair "dnnl=libdnnl-dev ocl-icd-opencl-dev" hwy=libhwy-dev fmt=libfmt-dev ZLIB=zlib1g-dev nlohmann_json=nlohmann-json3-dev
        Liburing=liburing-dev httplib=libcpp-httplib-dev utf8proc=libutf8proc-dev PCRE2=libpcre2-dev zstd=libzstd-dev PNG=libpng-dev JPEG=libjpeg-dev CLI11=libcli11-dev GTest=libgtest-dev)
  string(REGEX MATCH "^([^=]*)=(.*)$" pair "${pair}")
  set(name ${CMAKE_MATCH_1})
  set(package "${CMAKE_MATCH_2}")
  # The command alone wants CLI11, and the Python package is built without it.
  if((name STREQUAL "CLI11" AND SKBUILD) OR (name STREQUAL "GTest" AND NOT STRATA_BUILD_TESTS))
    continue()
  endif()
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    list(APPEND missing ${package})
  endif()
endforeach()
# These two are headers only.
find_path(STRATA_XXHASH_INCLUDE xxhash.h)
find_path(STRATA_TOMLPLUSPLUS_INCLUDE toml++/toml.h)
mark_as_advanced(STRATA_XXHASH_INCLUDE STRATA_TOMLPLUSPLUS_INCLUDE)
if(NOT STRATA_XXHASH_INCLUDE)
  list(APPEND missing libxxhash-dev)
endif()
if(NOT STRATA_TOMLPLUSPLUS_INCLUDE)
  list(APPEND missing libtomlplusplus-dev)
endif()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR "Libraries are missing. On Debian 12 and Ubuntu 24.04 they are in these packages, which the scripts "
                      "in scripts/ install by themselves:\n  sudo apt-get install -y --no-install-recommends ${missing}\n"
                      "Elsewhere, install their equivalents and name their folders in CMAKE_PREFIX_PATH.")
endif()
