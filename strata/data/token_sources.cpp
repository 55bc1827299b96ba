#include "strata/core/error.h"
#include "strata/data/token_sources_inl.h"
#include "strata/io/input_file.h"

namespace strata::data {

SourceHash::SourceHash(const text::Tokenizer& tokenizer, const TokenFileOptions& options) {
  add(tokenizer.to_json());
  add(options.separator);
  // Not of what is usual, so that files from before there were formats keep their checksum.
  const TextOptions& text = options.text;
  if (text.format != TextFormat::whole || text.utf8 != Utf8Policy::keep)
    add(cat(to_string(text.format), " ", to_string(text.utf8), " ", text.field));
}

void SourceHash::begin(const TextFile& file, uint64_t bytes) {
  add(file.name);
  hash_.update_u64(bytes);
}

void SourceHash::add(std::string_view text) {
  hash_.update_u64(text.size());
  hash_.update(text);
}

uint64_t source_checksum(std::span<const TextFile> files, const text::Tokenizer& tokenizer,
                         const TokenFileOptions& options) {
  SourceHash hash(tokenizer, options);
  for (const TextFile& file : files) {
    const io::InputFile input(file.path);
    hash.begin(file, input.size());
    input.hash(hash.bytes());
  }
  return hash.digest();
}

}  // namespace strata::data
