#include <zlib.h>

#include <vector>

#include "strata/core/error.h"
#include "strata/io/compressed_size_inl.h"

namespace strata::io {

size_t compressed_size(std::string_view data) {
  uLongf size = compressBound(static_cast<uLong>(data.size()));
  std::vector<Bytef> out(size);
  const int code =
      compress(out.data(), &size, reinterpret_cast<const Bytef*>(data.data()), static_cast<uLong>(data.size()));
  check<IoError>(code == Z_OK, "compressed_size", "zlib says ", code);
  return size;
}

}  // namespace strata::io
