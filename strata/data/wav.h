#pragma once
// WAV, the file format of uncompressed sound (Microsoft and IBM 1991): a RIFF file with the chunks "fmt " and "data".

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::data {

/// Sound as numbers.
struct Sound {
  Tensor samples;    ///< f32 [channels, n], from -1 to 1
  int64_t rate = 0;  ///< samples a second

  /// The mean of the channels, [n].
  Tensor mono() const;
};

/// Sound of samples f32 [n] or [channels, n]. Throws ShapeError, DTypeError, ValueError for a rate below 1.
Sound sound_of(const Tensor& samples, int64_t rate);

/// Reads a file of PCM in 8, 16, 24 or 32 bits, or of f32 or f64, also with the longer header (WAVE_FORMAT_EXTENSIBLE).
/// Other chunks are passed over. Throws IoError naming the file and the byte: not a WAV file, a kind of samples that is
/// not had, chunks longer than the file, data that is not whole samples, numbers that are not finite. Never allocates
/// more than eight times what the file holds; files of more than 1 GiB are refused.
///
///     const data::Sound sound = data::read_wav("speech.wav");
Sound read_wav(const std::string& path);
/// The same for a file's bytes; `name` stands in the messages.
Sound parse_wav(std::span<const std::byte> file, std::string_view name);

}  // namespace strata::data
