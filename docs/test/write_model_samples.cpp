// Writes the small configurations of every family's record: write_model_samples FOLDER makes
// FOLDER/<family>-<variant>/config.json, which scripts/make-models makes into models.

#include <filesystem>
#include <iostream>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/models/family.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_model_samples FOLDER\n";
    return 2;
  }
  try {
    for (const strata::Family* family : strata::families()) {
      for (const strata::FamilySample& sample : family->samples) {
        const auto folder = std::filesystem::path(argv[1]) / strata::cat(family->name, '-', sample.name);
        std::filesystem::create_directories(folder);
        strata::io::write_file((folder / "config.json").string(), sample.config);
      }
    }
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
