// Padding: with a value, or with what a tensor holds itself.

#include <algorithm>
#include <string>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/index.h"
#include "strata/ops/shape/pad_kernel.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/shape/shape_kernels.h"
#include "strata/ops/shape/shape_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Cost move_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

Shape padded_shape(const Tensor& x, const Dims& pads, std::string_view op) {
  check<ShapeError>(pads.size() % 2 == 0 && pads.size() / 2 <= x.dim(), op, "pads ", pads,
                    " must hold a pair for each of the last dimensions of ", x);
  Shape shape = x.shape();
  for (int i = 0; i < pads.size() / 2; ++i) {
    const int64_t d = x.dim() - 1 - i;
    constexpr int64_t most = int64_t{1} << 60;
    for (const int64_t n : {pads[2 * i], pads[2 * i + 1]})
      check<ShapeError>(n > -most && n < most, op, "pads ", pads, " are too large for dimension ", d, " of ", x);
    const int64_t size = shape[d] + pads[2 * i] + pads[2 * i + 1];
    check<ShapeError>(size >= 0, op, "pads ", pads, " crop more than dimension ", d, " of ", x, " has");
    shape[d] = size;
  }
  return shape;
}

const Op<Tensor(const Tensor&, const Dims&, Scalar)> constant_pad_op{{
    .schema = "constant_pad(Tensor x, int[] pads, Scalar value=0) -> Tensor",
    .shard = "padded pads",
    .doc = "x with `value` around it: pads holds (before, after) for the last dimension, then for the one before it, "
           "and so "
           "on. A negative number crops.",
    .infer = [](const Tensor& x, const Dims& pads,
                Scalar) { return like(x).with_shape(padded_shape(x, pads, "constant_pad")); },
    .kernels = {.everywhere = constant_pad_into},
    .backward =
        [](Backward& b, const Tensor&, const Dims& pads, Scalar) {
          // Where nothing was cropped it is a part of the result's gradient, not a copy of that part.
          if (std::all_of(pads.begin(), pads.end(), [](int64_t n) { return n >= 0; })) {
            Tensor g = b.gy();
            for (int i = 0; i < pads.size() / 2; ++i) {
              const int64_t d = g.dim() - 1 - i, size = g.shape()[d];
              if (pads[2 * i] > 0 || pads[2 * i + 1] > 0) g = slice(g, d, pads[2 * i], size - pads[2 * i + 1]);
            }
            b.set(0, g);
            return;
          }
          Dims back = pads;
          for (int64_t& n : back) n = -n;
          b.set(0, pad(b.gy(), back));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Dims&, Scalar) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Dims{1, 2}, Scalar(3));
          s.add(s.tensor({2, 3}), Dims{-1, 2, 1, -1});
          s.add(s.tensor({0, 2}), Dims{0, 0, 1, 1}, Scalar(1));
          s.invalid<ShapeError>("pair", s.tensor({3}), Dims{1});
          s.invalid<ShapeError>("crop", s.tensor({3}), Dims{-2, -2});
        },
    .reference = by_loops::padded_with,
}};

// x with `before` and `after` elements around dimension `dim`, of what it holds itself. What a side crops beyond x it
// takes from the other side's.
Tensor padded_by_itself(PadMode mode, const Tensor& x, const PadSpan& s) {
  const auto part = [&](int64_t begin, int64_t end) { return slice(x, s.dim, begin, end); };
  const auto repeated = [&](int64_t at, int64_t times) {
    Shape shape = x.shape();
    shape[static_cast<int>(s.dim)] = times;
    return expand(part(at, at + 1), shape);
  };
  TensorList parts{x};
  if (s.before > 0)
    parts.insert(parts.begin(), mode == PadMode::reflect     ? flip(part(1, s.before + 1), {s.dim})
                                : mode == PadMode::replicate ? repeated(0, s.before)
                                                             : part(s.size - s.before, s.size));
  if (s.after > 0)
    parts.push_back(mode == PadMode::reflect     ? flip(part(s.size - 1 - s.after, s.size - 1), {s.dim})
                    : mode == PadMode::replicate ? repeated(s.size - 1, s.after)
                                                 : part(0, s.after));
  const Tensor y = parts.size() > 1 ? cat(parts, s.dim) : x;
  const int64_t crop = std::max<int64_t>(0, -s.before), length = y.size(s.dim);
  return s.before < 0 || s.after < 0 ? slice(y, s.dim, crop, length - std::max<int64_t>(0, -s.after)) : y;
}

PadMode mode_of(const std::string& mode) {
  check(mode == "reflect" || mode == "replicate" || mode == "circular", "pad",
        "mode must be constant, reflect, replicate or circular, got \"", mode, "\"");
  return mode == "reflect" ? PadMode::reflect : mode == "replicate" ? PadMode::replicate : PadMode::circular;
}
// What is done to each dimension that pads change.
std::vector<PadSpan> spans_of(const Tensor& x, const Dims& pads, PadMode mode) {
  padded_shape(x, pads, "pad");
  std::vector<PadSpan> spans;
  for (int i = 0; i < pads.size() / 2; ++i) {
    PadSpan s{x.dim() - 1 - i, 0, x.size(x.dim() - 1 - i), pads[2 * i], pads[2 * i + 1]};
    if (mode == PadMode::circular && (s.before < 0 || s.after < 0)) {  // what is cropped does not come back
      s.begin = std::max<int64_t>(0, -s.before);
      s.size -= s.begin + std::max<int64_t>(0, -s.after);
      s.before = std::max<int64_t>(0, s.before);
      s.after = std::max<int64_t>(0, s.after);
    }
    if (s.before == 0 && s.after == 0 && s.size == x.size(s.dim)) continue;
    if (s.before != 0 || s.after != 0) {
      check<ShapeError>(s.size > 0, "pad", "there are no elements to repeat in dimension ", s.dim, " of ", x);
      check<ShapeError>(mode != PadMode::reflect || std::max(s.before, s.after) < s.size, "pad",
                        "mode reflect needs pads below the size ", s.size, " of dimension ", s.dim, ", got ", s.before,
                        " and ", s.after);
      check<ShapeError>(mode != PadMode::circular || std::max(s.before, s.after) <= s.size, "pad",
                        "mode circular needs pads of at most the size ", s.size, " of dimension ", s.dim, ", got ",
                        s.before, " and ", s.after);
    }
    spans.push_back(s);
  }
  return spans;
}
Tensor by_dimensions(const Tensor& x, const Dims& pads, const std::string& mode) {
  Tensor y = x;
  for (const PadSpan& s : spans_of(x, pads, mode_of(mode))) {
    if (s.size != y.size(s.dim)) y = slice(y, s.dim, s.begin, s.begin + s.size);
    if (s.before != 0 || s.after != 0) y = padded_by_itself(mode_of(mode), y, s);
  }
  return y.storage() == x.storage() ? clone(y) : y;  // crops alone leave a view
}

void samples_by_itself(auto&& add) {
  add(Shape{2, 3}, Dims{2, 1, 1, 0}, "reflect");
  add(Shape{2, 3}, Dims{2, 4, 1, 1}, "replicate");
  add(Shape{2, 3}, Dims{3, 1, -1, 1}, "circular");
  add(Shape{2, 5}, Dims{-2, 3}, "circular");
}

// All dimensions at once, which a card does in a launch.
const Op<Tensor(const Tensor&, const Dims&, const std::string&)> pad_by_itself_op{{
    .schema = "pad_by_itself(Tensor x, int[] pads, str mode) -> Tensor",
    .shard = "padded pads",
    .internal = true,
    .doc = "pad in the modes reflect, replicate and circular.",
    .infer =
        [](const Tensor& x, const Dims& pads, const std::string& mode) {
          spans_of(x, pads, mode_of(mode));
          return like(x).with_shape(padded_shape(x, pads, "pad"));
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL([](Tensor& y, const Tensor& x, const Dims& pads, const std::string& mode) {
                  pad_by_itself_cuda(y, x, mode_of(mode), spans_of(x, pads, mode_of(mode)));
                })},
    .composed = by_dimensions,
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Dims&, const std::string&) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          samples_by_itself(
              [&](const Shape& shape, const Dims& pads, const char* mode) { s.add(s.tensor(shape), pads, mode); });
          s.add(s.tensor({2, 3, 2}).transpose(0, 2), Dims{1, -1, 2, 0, 0, 1}, "reflect")
              .named("three dimensions, strided");
          s.add(s.tensor({5}), Dims{-4, 6}, "replicate").named("cropped beyond");
          s.add(s.tensor({0, 3}), Dims{1, 1}, "circular").named("empty");
        },
    .reference = [](const Tensor& x, const Dims& pads,
                    const std::string& mode) { return by_loops::padded(x, pads, mode, 0); },
}};

const Op<Tensor(const Tensor&, const Dims&, const std::string&, Scalar)> pad_op{{
    .schema = "pad(Tensor x, int[] pads, str mode=\"constant\", Scalar value=0) -> Tensor",
    .doc = "Pads or (with negative numbers) crops. pads holds (before, after) for the last dimension, then for the one "
           "before "
           "it, and so on. Modes: constant (with value), reflect (without the edge), replicate (the edge), circular "
           "(of what is left where a side crops).",
    .example =
        "assert(pad(arange(3), {2, 1}, \"reflect\").to_vector<int64_t>() == std::vector<int64_t>({2, 1, 0, 1, 2, 1}));",
    .composed =
        [](const Tensor& x, const Dims& pads, const std::string& mode, Scalar value) {
          if (mode == "constant") return constant_pad_op(x, pads, value);
          return x.device().is_cuda() ? pad_by_itself_op(x, pads, mode) : by_dimensions(x, pads, mode);
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Dims&, const std::string&, Scalar) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Dims{1, 2});
          samples_by_itself(
              [&](const Shape& shape, const Dims& pads, const char* mode) { s.add(s.tensor(shape), pads, mode); });
          s.invalid<ShapeError>("at most the size 2", s.tensor({5}), Dims{-3, 3}, "circular");
          s.invalid<ValueError>("mode", s.tensor({3}), Dims{1, 1}, "mirror");
          s.invalid<ShapeError>("reflect", s.tensor({3}), Dims{3, 0}, "reflect");
          s.invalid<ShapeError>("elements to repeat", s.tensor({0}), Dims{1, 0}, "replicate");
        },
    .reference = by_loops::padded,
}};

}  // namespace

Tensor pad(const Tensor& x, const Dims& pads, std::string_view mode, Scalar value) {
  return pad_op(x, pads, std::string(mode), value);
}

}  // namespace strata
