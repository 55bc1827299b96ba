#include "strata/io/temp_dir.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::io {

TempDir::TempDir() {
  const char* parent = std::getenv("TMPDIR");
  path_ = std::string(parent && *parent ? parent : "/tmp") + "/strata-XXXXXX";
  check<IoError>(::mkdtemp(path_.data()) != nullptr, "TempDir", "cannot make ", path_, ": ", errno_text(errno));
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace strata::io
