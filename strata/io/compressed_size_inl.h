#pragma once
// How small bytes become.

#include <cstddef>
#include <string_view>

namespace strata::io {

/// Bytes of `data` as zlib's compress() writes them at its usual level.
size_t compressed_size(std::string_view data);

}  // namespace strata::io
