// libFuzzer: any bytes are documents within their limits, or an error. The first byte chooses the options.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/data/text_reader.h"
#include "strata/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace strata::data;
  if (size == 0) return 0;
  const auto choice = static_cast<size_t>(bytes[0]);
  TextOptions options;
  options.format = parse_text_format(text_formats()[choice % text_formats().size()]);
  options.utf8 = parse_utf8_policy(utf8_policies()[choice / 8 % utf8_policies().size()]);
  options.field = choice & 64 ? "a.b" : "text";
  options.cut = (choice & 128) != 0;
  options.max_document = 1 << 16;
  const std::string_view file(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  try {
    TextReader reader(strata::io::ByteStream(file, "f.jsonl"), options);
    TextBlock block;
    std::string text;
    uint64_t end = 0, total = 0;
    // What a few bytes unpack to may be much.
    while (total < (uint64_t{1} << 24) && reader.next(block)) {
      if (block.parts.empty()) std::abort();
      for (const TextBlock::Part& part : block.parts) {
        if (part.begin > part.end || part.end > block.bytes.size() || part.byte < end) std::abort();
        end = part.byte + (part.end - part.begin);
        try {
          if (!document_of(block, part, reader.name(), options, text)) continue;
          if (options.utf8 != Utf8Policy::keep && strata::text::invalid_utf8(text) != text.size()) std::abort();
        } catch (const strata::IoError&) {
        }
      }
      total += block.bytes.size();
    }
  } catch (const strata::IoError&) {
  }
  return 0;
}
