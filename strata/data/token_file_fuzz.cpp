// libFuzzer: any bytes are a token file all of whose tokens and documents can be read, or an error that is told.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "strata/core/error.h"
#include "strata/data/token_file.h"
#include "strata/data/token_format_inl.h"
#include "strata/io/temp_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace strata::data;
  static const strata::io::TempDir dir;
  static const std::string path = dir / ("tokens" + std::to_string(::getpid()));
  std::vector<char> file(bytes, bytes + size);
  // The checksum made right, so that what it covers is looked at.
  if (size >= kTokenHeader3 && file[8] == 3) {
    TokenHeader header;
    std::memcpy(static_cast<void*>(&header), file.data(), sizeof header);
    header.checksum = header.checksum_of(kTokenHeader3 - 8);
    std::memcpy(file.data(), &header, sizeof header);
  }
  std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(file.size()));
  try {
    const TokenFile tokens(path);
    if (tokens.tokenizer().size() > kMaxIdentity) std::abort();
    for (int64_t d = 0; d < tokens.documents(); ++d) {
      const auto [begin, end] = tokens.document(d);
      if (begin > end || end > tokens.size()) std::abort();
    }
    std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
    tokens.read(0, ids);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokens.vocab_size()) std::abort();
  } catch (const strata::IoError&) {
  }
  return 0;
}
