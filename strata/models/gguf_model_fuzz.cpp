// libFuzzer: any bytes are a GGUF file whose tokenizer, spec and weights are loaded and give logits, or a
// strata::Error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/temp_dir.h"
#include "strata/models/pretrained.h"
#include "strata/ops/factory/factory.h"
#include "strata/text/tokenizer_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  static const io::TempDir dir;
  const std::string path = dir / "x.gguf";
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const text::TokenizerFolder folder = text::load_tokenizer_folder(path);
    const std::vector<int32_t> ids = folder.tokenizer->encode("A text, and 12 more.\n");
    for (const int32_t id : ids)
      if (id < 0 || id >= folder.tokenizer->vocab_size()) std::abort();
    folder.tokenizer->decode(ids);
  } catch (const Error&) {
  }
  try {
    const Pretrained p = load_pretrained(path, {.dtype = DType::f32});
    const NoGrad guard;
    const Tensor logits = p.model->forward(zeros({1, 3}, DType::i64));
    if (logits.shape() != Shape({1, 3, p.spec.vocab})) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
