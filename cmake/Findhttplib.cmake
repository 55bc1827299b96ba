# cpp-httplib's packages bring no CMake file: the target httplib::httplib. Installed beside StrataConfig.cmake, too.
# What the library was built with (OpenSSL, zlib, Brotli) decides how its classes look: its pkg-config file says it.
find_path(httplib_INCLUDE_DIR httplib.h)
find_library(httplib_LIBRARY cpp-httplib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(httplib REQUIRED_VARS httplib_LIBRARY httplib_INCLUDE_DIR)
mark_as_advanced(httplib_INCLUDE_DIR httplib_LIBRARY)
if(httplib_FOUND AND NOT TARGET httplib::httplib)
  get_filename_component(httplib_folder "${httplib_LIBRARY}" DIRECTORY)
  set(httplib_definitions)
  if(EXISTS "${httplib_folder}/pkgconfig/cpp-httplib.pc")
    file(STRINGS "${httplib_folder}/pkgconfig/cpp-httplib.pc" httplib_flags REGEX "^Cflags:")
    string(REGEX MATCHALL "CPPHTTPLIB_[A-Z]+_SUPPORT" httplib_definitions "${httplib_flags}")
  endif()
  add_library(httplib::httplib UNKNOWN IMPORTED)
  set_target_properties(httplib::httplib PROPERTIES IMPORTED_LOCATION "${httplib_LIBRARY}"
                                                    INTERFACE_INCLUDE_DIRECTORIES "${httplib_INCLUDE_DIR}"
                                                    INTERFACE_COMPILE_DEFINITIONS "${httplib_definitions}")
endif()
