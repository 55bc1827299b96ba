#pragma once
// A sound for tests.

#include <cstdint>
#include <string>

namespace strata::data {

/// The bytes of a WAV file: one channel of 16 bits, 16,000 a second.
inline std::string test_wav(uint32_t samples) {
  std::string wav = "RIFF";
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) wav += static_cast<char>(value >> (8 * i) & 255);
  };
  put(36 + 2 * samples, 4);
  wav += "WAVEfmt ";
  put(16, 4), put(1, 2), put(1, 2), put(16000, 4), put(32000, 4), put(2, 2), put(16, 2);
  wav += "data";
  put(2 * samples, 4);
  for (uint32_t i = 0; i < samples; ++i) put(i * i % 9001, 2);
  return wav;
}

}  // namespace strata::data
