#include "strata/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "strata/core/error.h"

namespace strata::data {

TensorDataset::TensorDataset(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  constexpr std::string_view op = "TensorDataset";
  check(!tensors_.empty(), op, "needs at least one tensor");
  for (Tensor& t : tensors_) {
    check<ShapeError>(t.dim() >= 1, op, "a tensor has no dimension to draw samples from: ", t);
    check<ShapeError>(t.size(0) == tensors_[0].size(0), op, "the first sizes differ: ", tensors_[0], " and ", t);
    check<DeviceError>(t.device().is_cpu(), op, "tensors must be on the host, got one on ", t.device());
    t = t.detach().contiguous();
  }
  size_ = tensors_[0].size(0);
}

Batch TensorDataset::get_batch(std::span<const Sample> samples) const {
  for (const Sample& s : samples)
    check<IndexError>(s.index >= 0 && s.index < size_, "TensorDataset", "sample ", s.index,
                      " is out of range, there are ", size_);
  Batch batch;
  for (const Tensor& t : tensors_) {
    Shape shape = t.shape();
    shape[0] = static_cast<int64_t>(samples.size());
    Tensor rows = empty(TensorMeta{shape, t.dtype(), Device::cpu()});
    if (rows.numel() > 0) {
      const auto row = static_cast<size_t>(t.nbytes() / size_);
      const char* from = static_cast<const char*>(t.raw_data());
      char* to = static_cast<char*>(rows.raw_data());
      for (const Sample& s : samples) {
        std::memcpy(to, from + static_cast<size_t>(s.index) * row, row);
        to += row;
      }
    }
    batch.push_back(std::move(rows));
  }
  return batch;
}

TokenDataset::TokenDataset(std::shared_ptr<const TokenFile> file, int64_t begin, int64_t end,
                           const TokenDatasetOptions& options)
    : file_(std::move(file)), begin_(begin), options_(options) {
  constexpr std::string_view op = "TokenDataset";
  check(file_ != nullptr, op, "needs a token file");
  check(options.context >= 1, op, "context must be at least 1, got ", options.context);
  check(options.dtype == DType::i64 || options.dtype == DType::i32, op, "dtype must be i64 or i32, got ",
        options.dtype);
  check(begin >= 0 && begin <= end && end <= file_->size(), op, "tokens ", begin, " to ", end,
        " are not in the file, which has ", file_->size());
  const int64_t tokens = end - begin, context = options.context;
  check(tokens > context, "data", "the text has ", tokens, " tokens here, a context of ", context, " needs at least ",
        context + 1, " (use more text or a smaller context)");
  options_.shift_each_epoch = options.shift_each_epoch && tokens > 2 * context && context > 1;
  // one window less where they move, so that every epoch has as many
  size_ = (tokens - 1 - (options_.shift_each_epoch ? context - 1 : 0)) / context;
}

int64_t TokenDataset::begin_of(const Sample& sample) const {
  check<IndexError>(sample.index >= 0 && sample.index < size_, "TokenDataset", "sample ", sample.index,
                    " is out of range, there are ", size_);
  int64_t shift = 0;
  if (options_.shift_each_epoch)
    shift = static_cast<int64_t>(mix(0x5eed, static_cast<uint64_t>(sample.epoch)) %
                                 static_cast<uint64_t>(options_.context));
  return begin_ + shift + sample.index * options_.context;
}

Batch TokenDataset::get_batch(std::span<const Sample> samples) const {
  const int64_t context = options_.context;
  const TensorMeta meta{Shape{static_cast<int64_t>(samples.size()), context}, options_.dtype, Device::cpu()};
  Batch batch{empty(meta), empty(meta)};
  const auto fill = [&]<class T>(T* inputs, T* targets) {
    const auto n = static_cast<size_t>(context);
    std::vector<T> window(n + 1);
    for (const Sample& s : samples) {
      file_->read(begin_of(s), std::span<T>(window));
      std::copy_n(window.begin(), n, inputs);
      std::copy_n(window.begin() + 1, n, targets);
      inputs += context;
      targets += context;
    }
  };
  if (options_.dtype == DType::i64) {
    fill(batch[0].data<int64_t>(), batch[1].data<int64_t>());
  } else {
    fill(batch[0].data<int32_t>(), batch[1].data<int32_t>());
  }
  return batch;
}

int64_t split_tokens(int64_t tokens, double val_fraction, int64_t context) {
  check(val_fraction > 0 && val_fraction < 1, "data", "the validation fraction must be between 0 and 1, got ",
        val_fraction);
  check(context >= 1 && tokens >= 2 * (context + 1), "data", "the text has ", tokens,
        " tokens, training and validation with a context of ", context, " need at least ", 2 * (context + 1),
        " (use more text or a smaller context)");
  const auto val = static_cast<int64_t>(std::llround(static_cast<double>(tokens) * val_fraction));
  return tokens - std::clamp(val, context + 1, tokens - context - 1);
}

}  // namespace strata::data
