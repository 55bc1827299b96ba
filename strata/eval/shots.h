#pragma once
// Examples that are shown before a question.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace strata::eval {

/// Chooses examples as the harness does, so that the same questions show the same ones: the first, or of a seed those
/// that Python's random.Random(seed).sample gives, drawn anew for each question in turn.
///
///     ShotSampler shots(1000, 5, 1234);               // of 1000 examples 5, of the harness's usual seed
///     const std::vector<size_t> shown = shots.next();
class ShotSampler {
 public:
  /// `seed`: none takes the first. Throws ValueError for more shots than there are examples.
  ShotSampler(size_t examples, size_t shots, std::optional<uint64_t> seed = std::nullopt);
  ~ShotSampler();
  ShotSampler(ShotSampler&&) noexcept;

  /// Which examples the next question shows, in their order. `same`: whether an example is that question, which is then
  /// never shown; undefined where examples come from elsewhere. Throws ValueError where the others are too few.
  std::vector<size_t> next(const std::function<bool(size_t example)>& same = {});

 private:
  class Random;
  size_t examples_, shots_;
  std::unique_ptr<Random> random_;  // none: the first
};

}  // namespace strata::eval
