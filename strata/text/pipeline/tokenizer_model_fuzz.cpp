// libFuzzer: any bytes are a sentencepiece model or an IoError or ValueError; what a model becomes encodes any text,
// and goes to GGUF and back.

#include <cstddef>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/text/pipeline/gguf_vocabulary.h"
#include "strata/text/pipeline/sentencepiece.h"
#include "strata/text/pipeline/token_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::text;
  try {
    const SentencePieceModel pieces = parse_sentencepiece({reinterpret_cast<const char*>(data), size}, "fuzz");
    const nlohmann::json tokenizer = tokenizer_json(pieces);
    const auto model = parse_token_model(tokenizer.at("model"), "fuzz");
    std::vector<int32_t> ids;
    for (size_t i = 0; i < pieces.pieces.size() && i < 64; ++i) model->encode(pieces.pieces[i].text + "ab\n", ids);
    for (const int32_t id : ids)
      if (id < 0 || id >= model->vocab_size()) __builtin_trap();
    tokenizer_json(gguf_vocabulary(tokenizer));
  } catch (const strata::IoError&) {
  } catch (const strata::ValueError&) {
  }
  return 0;
}
