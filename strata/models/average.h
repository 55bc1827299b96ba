#pragma once
// Averages of models that learned from one beginning (model soups, Wortsman et al., arXiv:2203.05482), and adapters
// merged into what they adapt: from files to files, a tensor at a time.

#include <string>
#include <utility>
#include <vector>

namespace strata {

/// Writes the mean of the weights of `members` to `to`, a new folder. Members are folders as Hugging Face writes them,
/// whose other files (configuration, tokenizer) are copied from the first; or checkpoints of runs (RUN/step-00001000),
/// of one process or of several ranks in whatever layout, of which `to` becomes a run's folder with one of one process.
/// Sums are in f64, and a tensor has the dtype that it has in the first member. `weights`, one for each member, are
/// brought to a sum of 1; empty: all count the same. In memory are one tensor, or of checkpoints one model. Throws
/// ValueError for no members, weights that are not positive and finite or of another number, members with other
/// tensors, shapes or configurations, all of them listed, and whole numbers that differ; IoError, for a checkpoint also
/// where its weights are not those that were written.
void average_models(const std::vector<std::string>& members, const std::string& to,
                    const std::vector<double>& weights = {});

/// What a greedy average was made of.
struct GreedySoup {
  std::vector<std::string> members;                    ///< that went in, the best first
  double loss = 0;                                     ///< of the average
  std::vector<std::pair<std::string, double>> losses;  ///< of each member alone, from the best to the worst
};

namespace detail {
/// A function of a folder that lives as long as the call it is passed to.
struct FolderLoss {
  const void* fn;
  double (*call)(const void* fn, const std::string& folder);
};
GreedySoup greedy_average(const std::vector<std::string>& members, const std::string& to, FolderLoss loss);
}  // namespace detail

/// Takes the members from the best to the worst, by loss(folder) on held-out data, and keeps each with which the
/// average is no worse than without: so that the result is at least as good as the best. Averages that are tried stand
/// beside `to` as long as they are. Throws as average_models, ValueError for a loss that is NaN, and what `loss`
/// throws.
///     greedy_average({"a", "b", "c"}, "soup", [&](const std::string& dir) { return held_out_loss(dir); });
template <class F>
GreedySoup greedy_average(const std::vector<std::string>& members, const std::string& to, const F& loss) {
  return detail::greedy_average(members, to, {&loss, [](const void* f, const std::string& folder) {
                                                return static_cast<double>((*static_cast<const F*>(f))(folder));
                                              }});
}

/// Writes the folder `base` with the adapter folder `adapter` (strata/models/peft.h) merged into its weights, computed
/// in f32 and rounded once to their dtype, to `to`, a new folder: what merge_lora() makes of the loaded model. Throws
/// IoError for what cannot be read and for tensors of the adapter that the base has no weight for or of another shape,
/// all of them listed.
void merge_adapter(const std::string& base, const std::string& adapter, const std::string& to);

}  // namespace strata
