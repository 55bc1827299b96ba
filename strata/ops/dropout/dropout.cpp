#include "strata/ops/dropout/dropout.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/dropout/dropout_kernel.h"

namespace strata {
namespace {

double scale_for(double p) {
  return p < 1 ? 1 / (1 - p) : 0;
}

void check_numbers(const Tensor& x, const Dims& numbers) {
  if (numbers.empty()) return;
  check(numbers.size() == 5, "dropout", "numbers are run, a, b, step and first, got ", numbers);
  check(numbers[0] > 0 && std::ranges::all_of(numbers, [](int64_t n) { return n >= 0; }), "dropout",
        "a run has an element at least, and no number is below 0, got ", numbers);
  check(numbers[4] <= std::numeric_limits<int64_t>::max() - x.numel(), "dropout", "there is no element ", numbers[4],
        " + ", x.numel());
}

// Calls f(begin, count, key) for the stretches of n elements whose numbers are neighbours, in order: they are those of
// the key's stream from its start on.
template <class F>
void each_stretch(int64_t n, RngKey key, const Dims& numbers, F&& f) {
  if (numbers.empty()) return f(int64_t{0}, n, key);
  const int64_t run = numbers[0], first = numbers[4];
  for (int64_t at = 0; at < n;) {
    const int64_t which = (first + at) / run, within = (first + at) % run, count = std::min(n - at, run - within);
    // Without a sign: what is too large comes round.
    const uint64_t number = static_cast<uint64_t>(which % 2 == 0 ? numbers[1] : numbers[2]) +
                            static_cast<uint64_t>(which / 2) * static_cast<uint64_t>(numbers[3]) +
                            static_cast<uint64_t>(within);
    RngKey here = key;
    here.offset += number / 4 + (number % 4 != 0);
    f(at, count, here);
    at += count;
  }
}

const Op<Tensor(const Tensor&, double, RngKey, const Dims&)> dropout_op{{
    .schema = "dropout(Tensor x, float p, RngKey key, int[] numbers=[]) -> Tensor",
    .shard = "elementwise random",
    .doc = "Each element set to 0 with probability p, the others divided by 1 - p (Srivastava et al., JMLR 15, 2014). "
           "Element i, in "
           "row-major order, is dropped where number i of the key's stream is below p: the same elements for equal "
           "keys, on any "
           "device and any number of threads. With numbers = [run, a, b, step, first] x is a part of something larger, "
           "whose elements come in runs: run 2m has the numbers from a + m step on, run 2m + 1 those from b + m step "
           "on, and x begins with element first of them; a stretch of x whose first number is no multiple of four has "
           "those from the next multiple on. ValueError unless 0 <= p <= 1, and for numbers that are no such five; "
           "DTypeError unless x is floating.",
    .example = "Tensor y = dropout(ones({8}), 1.0, RngKey{1, 0}); assert(y.sum().item() == 0);",
    .infer =
        [](const Tensor& x, double p, RngKey, const Dims& numbers) {
          check<DTypeError>(is_floating(x.dtype()), "dropout", "needs a floating dtype, got ", x.dtype());
          check(p >= 0 && p <= 1, "dropout", "p must be in [0, 1], got ", p);
          check_numbers(x, numbers);
          return numbers.empty() ? laid_like(x) : like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double p, RngKey key, const Dims& numbers) {
      if (p == 0) return copy_elements(on, y, x);  // nothing is drawn for nothing
      if (p == 1) return fill_elements(on, y, 0);
      const auto chance = static_cast<float>(p);
      if constexpr (on.cuda) {
        if (numbers.empty() && (!x.is_contiguous() || !y.is_contiguous()))
          return dropout_cuda(x, y, chance, scale_for(p), key);
      }
      const Tensor xc = x.contiguous(), rows = y.is_contiguous() ? y : empty(like(y));
      const auto at = [&](const Tensor& t, int64_t i) {
        return static_cast<std::byte*>(t.raw_data()) + i * static_cast<int64_t>(size_of(t.dtype()));
      };
      each_stretch(x.numel(), key, numbers, [&](int64_t begin, int64_t count, RngKey here) {
        if constexpr (on.cuda)
          dropout_cuda(x.dtype(), at(xc, begin), at(rows, begin), count, chance, scale_for(p), here);
        else
          dropout_cpu(x.dtype(), at(xc, begin), at(rows, begin), count, chance, scale_for(p), here);
      });
      if (!rows.same_as(y)) copy_elements(on, y, rows);
    }),
    .backward = [](Backward& b, const Tensor&, double p, RngKey key,
                   const Dims& numbers) { b.set(0, p == 0 ? b.gy() : dropout(b.gy(), p, key, numbers)); },
    .draws = [](const Tensor& x, double, RngKey, const Dims&) { return random_blocks(x.numel()); },
    .cost =
        [](const Tensor& x, double, RngKey, const Dims&) {
          return Cost{1.0 * x.numel(), 2.0 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 0.3, RngKey{1, 0});
          s.add(s.tensor({1030}), 0.5, RngKey{2, 7}).named("longer than a block");
          s.add(s.tensor({4}), 0.0, RngKey{3, 0}).named("nothing");
          s.add(s.tensor({4}), 1.0, RngKey{3, 0}).named("everything");
          s.add(s.tensor({0}), 0.3, RngKey{3, 0}).named("empty");
          s.add(s.tensor({2, 6, 8}), 0.4, RngKey{1, 5}, Dims{24, 24, 96, 144, 0}).named("chunks of sequences");
          s.add(s.tensor({5, 8}), 0.4, RngKey{1, 5}, Dims{24, 24, 96, 144, 16}).named("a tile of them");
          s.add(s.tensor({4, 3}), 0.4, RngKey{1, 5}, Dims{5, 2, 50, 7, 1}).named("of no multiples of four");
          s.invalid<ValueError>("run, a, b, step and first", s.tensor({3}), 0.5, RngKey{1, 0}, Dims{1, 2});
          s.invalid<ValueError>("an element at least", s.tensor({3}), 0.5, RngKey{1, 0}, Dims{0, 0, 0, 0, 0});
          s.invalid<ValueError>("below 0", s.tensor({3}), 0.5, RngKey{1, 0}, Dims{4, 0, -4, 0, 0});
          s.invalid<ValueError>("p must be", s.tensor({3}), 1.5, RngKey{1, 0});
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), 0.5, RngKey{1, 0});
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), 0.1, RngKey{1, 0});
        },
    .reference =
        [](const Tensor& x, double p, RngKey key, const Dims& numbers) {
          std::vector<double> v = x.to_vector<double>();
          uint64_t number = 0;
          for (size_t i = 0; i < v.size(); ++i, ++number) {
            if (const size_t at = numbers.empty() ? i : static_cast<size_t>(numbers[4]) + i; !numbers.empty()) {
              const auto run = static_cast<size_t>(numbers[0]), m = at / run;
              if (i == 0 || at % run == 0)
                number = (static_cast<uint64_t>(m % 2 == 0 ? numbers[1] : numbers[2]) +
                          m / 2 * static_cast<uint64_t>(numbers[3]) + at % run + 3) /
                         4 * 4;
            }
            v[i] = uniform_f32(philox(key, number / 4)[number % 4]) < static_cast<float>(p) ? 0 : v[i] * scale_for(p);
          }
          return from_span<double>(v, x.shape());
        },
}};

}  // namespace

Tensor dropout(const Tensor& x, double p, RngKey key, const Dims& numbers) {
  return dropout_op(x, p, key, numbers);
}

Tensor dropout(const Tensor& x, double p, bool training) {
  check(p >= 0 && p <= 1, "dropout", "p must be in [0, 1], got ", p);
  if (!training || p == 0) return x;
  return dropout_op.drawn(default_generator(), x, p, {}, {});
}

}  // namespace strata
