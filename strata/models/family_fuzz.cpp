// libFuzzer: any JSON is a spec that its family writes and reads again, or an error; and so with the other settings of
// a folder.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "strata/core/error.h"
#include "strata/generate/decoder_start.h"
#include "strata/generate/generation_config.h"
#include "strata/models/family.h"
#include "strata/models/image_features.h"
#include "strata/models/sound_features.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tried = [](auto read) {
    try {
      read();
    } catch (const Error&) {
    }
  };
  tried([&] {
    const ConfigReader config(text, "config.json");
    const Family& family = family_of(config);
    const ModelSpec spec = read_spec(family, config);
    int64_t layers = static_cast<int64_t>(spec.layers.size());
    for (const ModelSpec& part : spec.parts) layers += static_cast<int64_t>(part.layers.size());
    if (layers > 64) return;
    family.weights(spec);
    // What a spec cannot be written as is an error that says so, and no other text.
    write_config(family, spec);
  });
  tried([&] { parse_generation_config(text, "generation_config.json"); });
  tried([&] { parse_decoder_start(text, {}, "generation_config.json"); });
  tried([&] { parse_sound_features(text, "preprocessor_config.json"); });
  tried([&] { parse_image_features(text, "preprocessor_config.json"); });
  return 0;
}
