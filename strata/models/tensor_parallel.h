#pragma once
// How language models' weights are cut among ranks.

#include "strata/models/language_model.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

/// Megatron-LM's way (Shoeybi et al., arXiv:1909.08053) for every block of the model: queries, keys and values by
/// heads, the first feed-forward product by its results, what follows by its inputs; the embeddings of tokens and the
/// output layer by the vocabulary. Norms, positions and the biases of what is summed stay whole. Each block then has
/// two exchanges forward and two backward, the output layer and the embeddings one each. `ranks`, those of the axis,
/// must divide the heads of queries and of keys: ValueError naming the block. So for blocks with latent attention or
/// values of another size than keys. Experts are left as they are, and must be spread over a group that has the axis
/// (nn::Experts::spread): each rank sends its positions to theirs.
///
///     distributed::shard_module(*model, shard_plan(*model, 2), "tp");
distributed::ShardPlan shard_plan(const LanguageModel& model, int64_t ranks);

}  // namespace strata
