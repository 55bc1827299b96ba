#pragma once
// Proofs of what a model computed of texts, as a file for whoever has the same weights.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/eval/tasks.h"

namespace strata::eval {

/// Proofs (activation_proof) of what the output layer reads, and what decides which places they are of.
struct TextProofs {
  int64_t every = 32;   ///< tokens a proof, fewer at a window's end
  int64_t context = 0;  ///< Subject::context, the windows' size
  int64_t overlap = 1;  ///< rolling_windows()
  int32_t prefix = 0;   ///< Subject::prefix
  int64_t tokens = 0;   ///< of the texts
  std::vector<std::vector<uint8_t>> proofs{};
};

/// Reads texts window by window and proves what came out. Throws ValueError for texts without tokens, and where the
/// watch stops it.
TextProofs prove_texts(const Subject& subject, const std::vector<std::string>& texts,
                       const EvaluationOptions& options = {});

/// Reads the same texts again: accepted (the share of proofs that check_proof() accepts), other_exponents (of a proof
/// the largest share of its places), mean_mantissa (of a proof the largest). Throws ValueError where windows, prefix,
/// tokens or the number of proofs are not those of the texts here, or bytes are no proof.
Evaluation check_texts(const Subject& subject, const std::vector<std::string>& texts, const TextProofs& proofs,
                       const EvaluationOptions& options = {});

/// As JSON, and back. Throws IoError that names `source` and the member that is wrong.
std::string to_json(const TextProofs& proofs);
TextProofs parse_text_proofs(std::string_view json, std::string_view source);

}  // namespace strata::eval
