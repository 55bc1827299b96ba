#pragma once
// PPM, the plainest file format of pictures (netpbm): "P6", width, height and the largest value as text, then bytes.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::data {

/// The picture of a file, u8 [height, width, 3]: red, green and blue from 0 to 255. Takes P6, and P5 (grey, of which
/// all three are made), with a largest value of 255. Throws IoError naming the file and the byte for another file,
/// sizes outside 1 to 65535, and for more or fewer bytes than the sizes say. Other programs make such files of any
/// picture: `magick a.jpg a.ppm`.
///
///     const Tensor picture = data::read_ppm("cat.ppm");
Tensor read_ppm(const std::string& path);
/// The same for a file's bytes; `name` stands in the messages.
Tensor parse_ppm(std::span<const std::byte> file, std::string_view name);

}  // namespace strata::data
