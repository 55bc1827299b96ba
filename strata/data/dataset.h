#pragma once
// Data sets: what a loader draws samples from.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/data/sampler.h"
#include "strata/data/token_file.h"

namespace strata::data {

/// The tensors of one batch, e.g. {inputs, targets}; the first dimension of each is the sample.
using Batch = std::vector<Tensor>;

/// A numbered set of samples. A loader's background thread calls get_batch, one call at a time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// New tensors with the samples asked for, in that order. Throws IndexError for an index outside [0, size()).
  virtual Batch get_batch(std::span<const Sample> samples) const = 0;
};

/// Rows of tensors that are in memory: sample i is {t[i] for t in tensors}.
class TensorDataset final : public Dataset {
 public:
  /// Tensors of any dtype on the host with the same first dimension. Throws ShapeError, ValueError (none given), or
  /// DeviceError.
  explicit TensorDataset(std::vector<Tensor> tensors);
  int64_t size() const override { return size_; }
  Batch get_batch(std::span<const Sample> samples) const override;

 private:
  std::vector<Tensor> tensors_;
  int64_t size_ = 0;
};

/// How a TokenDataset cuts its tokens.
struct TokenDatasetOptions {
  /// Tokens per sample, T.
  int64_t context = 256;
  /// Moves all windows by up to T - 1 tokens, differently in each epoch, so that a token is not always seen at the same
  /// place of a window. Needs more than 2 T tokens, else it is off.
  bool shift_each_epoch = true;
  /// i64 or i32.
  DType dtype = DType::i64;
};

/// Windows of a range of a token file. Sample i is {inputs [T], targets [T]}: tokens i T .. i T + T - 1 and the same
/// one further on. The windows of an epoch do not overlap and leave out less than 2 T tokens of the range.
class TokenDataset final : public Dataset {
 public:
  /// Tokens [begin, end) of the file. Throws ValueError for a context < 1, another dtype, a range that is not in the
  /// file or has less than context + 1 tokens.
  TokenDataset(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end,
               const TokenDatasetOptions& options = {});
  int64_t size() const override { return size_; }
  /// {inputs [B, T], targets [B, T]}.
  Batch get_batch(std::span<const Sample> samples) const override;
  /// First token of a sample, from the start of the file.
  int64_t begin_of(const Sample& sample) const;

 private:
  std::shared_ptr<const TokenFile> file_;
  int64_t begin_, size_ = 0;
  TokenDatasetOptions options_;
};

/// Where to cut `tokens` tokens so that the last `val_fraction` is for validation: [0, cut) and [cut, tokens), with at
/// least `context` + 1 tokens on each side. Throws ValueError where there are too few, or the fraction is not in (0,
/// 1).
int64_t split_tokens(int64_t tokens, double val_fraction, int64_t context);

}  // namespace strata::data
