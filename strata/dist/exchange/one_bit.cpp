// 1-bit Adam (Tang et al., arXiv:2102.02888): steps of Adam, then its momentum by signs, over second moments that stay.
// Momenta are coded in units of the roots of these, so that all numbers under one scale are of one size.

#include <cmath>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/exchange/exchange_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::distributed::exchange {
namespace {

constexpr BlockCode kOneBit{1, 1024};

class OneBit final : public CodedExchange {
 public:
  OneBit(const ExchangeRecord& record, const Parameters& parameters, Group& group, const ExchangeOptions& options)
      : CodedExchange(record, parameters, group, options, kOneBit),
        steps_(empty(TensorMeta{{1}, DType::i64, Device::cpu(), std::nullopt})) {
    const memory::TagScope tag(memory::Tag::optimizer);
    *steps_.data<int64_t>() = 0;
    for (const Flat& f : flats_)
      moments_.push_back({zeros_on(device_, {f.bucket.padded}), zeros_on(device_, {f.bucket.padded})});
  }

 protected:
  // The same in all ranks.
  struct Moments {
    Tensor first;   // f32 [padded]; after the warm-up in units of the second's roots
    Tensor second;  // f32 [padded]
  };

  void exchange(double max_norm) override {
    const int64_t step = ++*steps_.data<int64_t>();
    const bool whole = step <= options_.warmup;
    TensorList gradients;
    for (const Flat& f : flats_) {
      const Tensor g = gradients_of(f.bucket);
      if (whole) mean_of_ranks(g, "gradients of the warm-up");
      gradients.push_back(g);
    }
    clip(gradients, max_norm);
    const double corrected = 1 - std::pow(options_.beta1, static_cast<double>(step));
    for (size_t i = 0; i < flats_.size(); ++i) {
      Moments& m = moments_[i];
      if (whole) {
        copy_elements(m.first, m.first * options_.beta1 + gradients[i] * (1 - options_.beta1));
        copy_elements(m.second, m.second * options_.beta2 + square(gradients[i]) * (1 - options_.beta2));
      }
      const Tensor unit = unit_of(m, std::min(step, options_.warmup));
      if (!whole) {
        // What had no gradient in the warm-up has no unit, and stays.
        const Tensor own = where(m.second > Scalar(0.0f), gradients[i] / unit, 0.0f).to(DType::f32);
        copy_elements(m.first, average(flats_[i], m.first * options_.beta1 + own * (1 - options_.beta1)));
        const Bucket& b = flats_[i].bucket;
        if (b.padded > b.numel) fill_elements(m.first.narrow(0, b.numel, b.padded - b.numel), 0);
      }
      const Tensor scaled = whole ? m.first / unit : m.first;
      give_gradients(flats_[i].bucket, where(m.second > Scalar(0.0f), scaled / Scalar(corrected), scaled * 0.0f).to(DType::f32));
      if (step == options_.warmup)
        copy_elements(m.first, where(m.second > Scalar(0.0f), m.first / unit, 0.0f).to(DType::f32));
    }
  }

  std::vector<State> states() override {
    std::vector<State> all = CodedExchange::states();
    for (size_t i = 0; i < moments_.size(); ++i) {
      // Without what fills up blocks, which another number of ranks has more or less of.
      const int64_t n = flats_[i].bucket.numel;
      all.push_back({cat("first.", i), false, moments_[i].first.narrow(0, 0, n)});
      all.push_back({cat("second.", i), false, moments_[i].second.narrow(0, 0, n)});
    }
    all.push_back({"steps", false, steps_});
    return all;
  }

 private:
  Tensor unit_of(const Moments& m, int64_t updates) const {
    const double corrected = 1 - std::pow(options_.beta2, static_cast<double>(updates));
    return sqrt(m.second / Scalar(corrected)) + Scalar(options_.eps);
  }
  Tensor steps_;  // i64 [1] on the host
  std::vector<Moments> moments_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_one_bit(const GradientExchange::Parameters& p, Group& g, const ExchangeOptions& o) {
  return std::make_unique<OneBit>(exchange_record("onebit"), p, g, o);
}
double sent_one_bit(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&) {
  return sent_coded(shapes, ranks, kOneBit);
}
double kept_one_bit(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&) {
  return 4 * padded_numbers(shapes, ranks, kOneBit) * (1 + 1 / static_cast<double>(ranks)) + 2 * sent_plain(shapes, 2, {}) + 8;
}

}  // namespace strata::distributed::exchange
