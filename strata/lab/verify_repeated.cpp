// The same bits whenever a call is repeated: on other numbers of threads, under another device for new tensors, and on
// a card.

#include <bit>
#include <cmath>

#include "strata/core/parallel.h"
#include "strata/lab/verifier.h"

namespace strata::lab {
namespace {

// Enough elements that loops divide them among threads, and how far they grow.
constexpr double kThreadedSample = 200000;
constexpr CallLimit kThreadedCall{2e8, 2e7, 4e6};

}  // namespace

// The samples, and one of them enlarged, if the op (and, where wanted, its gradient on the device) takes it: work is
// divided only where there is enough of it.
std::vector<Sample> Verifier::with_one_enlarged(const std::vector<Sample>& samples, bool gradient) const {
  std::vector<Sample> all = samples;
  for (const Sample& sample : samples) {
    Sample large = sample;
    large.args = enlarged_within(op_, sample.args, kThreadedSample, kThreadedCall);
    large.label = "enlarged";
    try {
      if (std::isinf(result_bytes(op_, large.args))) continue;
      if (!options_.device.is_cpu()) refused_on_cpu(large.args);
      call(large.args);
      if (gradient) gradients_on_device(large.args);
    } catch (const Error&) {
      continue;
    }
    all.push_back(large);
    break;
  }
  return all;
}

// On a card, where blocks run in any order: the same bits each time, of results and of gradients.
void Verifier::repeated(DType dtype) {
  if (!(options_.dtypes & op_.dtypes() & dtype_bit(dtype))) return;
  Samples samples(dtype);
  try {
    op_.samples(samples);
  } catch (const std::exception&) {
    return;  // reported by round()
  }
  const bool gradient = op_.has_backward() && is_floating(dtype);
  for (const Sample& sample : with_one_enlarged(samples.valid, gradient)) {
    attempt(Check::threads, sample, dtype, [&] {
      const bool rule = gradient && sample.differentiable;
      const auto bits = [&] {
        std::vector<Tensor> all = call(sample.args);
        if (!rule) return bytes(all);
        for (Tensor& t : gradients_on_device(sample.args)) all.push_back(std::move(t));
        return bytes(all);
      };
      const auto first = bits();
      expect(bits() == first, "the same call gives other bits when it is repeated");
    });
  }
}

void Verifier::threads() {
  const DType dtype = op_.dtypes() & dtype_bit(DType::f32) ? DType::f32 : kAllDTypes[std::countr_zero(op_.dtypes())];
  if (!(options_.dtypes & dtype_bit(dtype))) return;
  Samples samples(dtype);
  try {
    op_.samples(samples);
  } catch (const std::exception&) {
    return;  // reported by round()
  }
  const int outer = num_threads();
  // A library below may divide a sum among threads; the record then says so in the reason for its tolerance.
  const bool divided = op_.tolerance_reason().find("thread") != std::string_view::npos;
  for (const Sample& sample : with_one_enlarged(samples.valid, false)) {
    attempt(Check::threads, sample, dtype, [&] {
      set_num_threads(1);
      const std::vector<Tensor> one = call(sample.args);
      set_num_threads(3);
      const std::vector<Tensor> three = call(sample.args);
      set_num_threads(outer);
      if (divided) return expect_close(three, one, sample.args);
      expect(bytes(one) == bytes(three), "the result on three threads differs from that on one");
    });
    set_num_threads(outer);
  }
}

}  // namespace strata::lab
