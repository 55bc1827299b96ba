#pragma once
// Pictures of whatever format their first bytes say.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::data {

/// The picture of a file, u8 [height, width, 3]: red, green and blue from 0 to 255. Takes
///   PPM   as read_ppm() does;
///   PNG   of every kind: greys and palettes become colours, of 16 bits the upper 8 are taken, and what is transparent
///         is shown as if it were not; gamma and colour profiles are passed over;
///   JPEG  grey or in colour, also progressive; not of four colours (CMYK); its orientation (Exif) is passed over.
/// These are the bytes that Pillow gives for convert("RGB"); of JPEG within 1, as decoders differ. Throws IoError
/// naming the file and what is wrong: another format, a damaged or cut file, more than 100 million pixels, and rows
/// that a file of its size cannot hold.
///
///     const Tensor picture = data::read_picture("cat.jpg");
Tensor read_picture(const std::string& path);
/// The same for a file's bytes; `name` stands in the messages.
Tensor parse_picture(std::span<const std::byte> file, std::string_view name);

}  // namespace strata::data
