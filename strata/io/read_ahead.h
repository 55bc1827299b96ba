#pragma once
// Files on their way into the system's cache while their reader is busy with something else.

#include <string>
#include <thread>
#include <vector>

#include "strata/io/checkpoint.h"
#include "strata/io/input_file.h"

namespace strata::io::detail {

/// Until it ends a thread asks the system for the files' bytes, in their order, at most a quarter of the machine's
/// memory: what is read later is there then. Move-only.
class ReadAhead {
 public:
  ReadAhead() = default;
  explicit ReadAhead(std::vector<InputFile> files);

  /// Waits until all that it wants has been asked for.
  void finish();

 private:
  std::jthread thread_;  // stopped and joined with this
};

/// Of a checkpoint's files, or those of these names alone; what it has not is left out.
ReadAhead read_ahead(const FoundCheckpoint& found, const std::vector<std::string>& only = {});

}  // namespace strata::io::detail
