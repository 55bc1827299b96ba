# A file models/families/<name>.cpp is a family: the header that lists them is written into the build, so that another one
# is another file and nothing else.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/models/families/*.cpp)
set(names)
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  if(NOT name MATCHES "_(test|fuzz)$")
    string(APPEND names " STRATA_FAMILY(${name})")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/strata/models/family_list.h @ONLY CONTENT
     "// Written by families.cmake.\n#pragma once\n#define STRATA_FAMILIES@names@\n")
