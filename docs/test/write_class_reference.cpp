// write_class_reference FOLDER: writes docs/reference/classes from the headers of $STRATA_SOURCE_DIR, or of this
// folder.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "class_reference.h"

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::runtime_error("usage: write_class_reference FOLDER");
    const char* source = std::getenv("STRATA_SOURCE_DIR");
    std::filesystem::create_directories(argv[1]);
    for (const auto& [name, text] : strata::docs::class_reference(source ? source : ".", STRATA_PRIVATE_HEADERS)) {
      std::ofstream f(std::filesystem::path(argv[1]) / name, std::ios::binary);
      f << text;
      if (!f.flush()) throw std::runtime_error("cannot write " + name);
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "write_class_reference: %s\n", e.what());
    return 1;
  }
}
