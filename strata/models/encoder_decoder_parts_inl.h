#pragma once
// What records of encoder-decoders share: the rows of their blocks.

#include "strata/models/family_parts_inl.h"

namespace strata::parts {

/// Names of one part's blocks in the files, without ".weight". "{}" in `layer` is the layer.
struct StackNames {
  std::string layer;                           ///< "encoder.block.{}."
  std::string self, cross;                     ///< of the attentions: "layer.0.SelfAttention."
  std::string q = "q", k = "k", v = "v", out;  ///< within them
  std::string norm1, norm2, norm3;             ///< before attention, before that to the source, before feed-forward
  std::string up, gate, down;                  ///< of the feed-forward part; gate where it is gated
  std::string gguf = {};  ///< of a GGUF file, "enc.blk.{}.", whose other names are the same for all; empty: not there
};
/// Appends the rows of the blocks of `part`, which are ours under `ours` ("encoder."); with `names.cross` those of
/// nn::CrossBlock, else of nn::TransformerBlock.
void add_stack(std::vector<WeightRow>& rows, const ModelSpec& part, std::string_view ours, const StackNames& names);

/// A norm's weight, and its bias where it has one.
void add_norm(std::vector<WeightRow>& rows, const nn::NormSpec& norm, const std::string& ours,
              const std::string& theirs, int64_t dim, const std::string& gguf = {});

}  // namespace strata::parts
