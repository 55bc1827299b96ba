#pragma once
// The tokenizer as Python holds it.

#include <memory>

#include "strata/text/tokenizer.h"

namespace strata::python {

/// Any of the engine's tokenizers.
struct PyTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;
};

}  // namespace strata::python
