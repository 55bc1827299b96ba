// The records of a linear layer and the cross entropy of its results, by chunks of rows: the logits are never whole in
// memory. Liger-Kernel (Hsu et al., arXiv:2410.10989) computes the gradients in the forward pass too, so that no
// product is done twice.

#include <algorithm>
#include <cmath>

#include "strata/core/autocast.h"
#include "strata/core/backend.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/op_call.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/matmul/gemm_cuda.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// Logits that are in memory together: enough rows to keep a card's matrix units busy, few enough for a CPU's caches.
constexpr int64_t kDeviceBytes = int64_t{5} << 28, kHostBytes = int64_t{16} << 20;

void check_inputs(const Tensor& x, const Tensor& weight, const Tensor& target, double smoothing, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating x, got ", x.dtype());
  check<DTypeError>(weight.dtype() == x.dtype() || (weight.dtype() == DType::f32 && is_reduced_floating(x.dtype())), op,
                    "weight is ", weight.dtype(), ", x is ", x.dtype(), "; wanted the same, or f32 for f16 and bf16");
  check<DTypeError>(target.dtype() == DType::i64, op, "needs i64 targets (class indices), got ", target.dtype());
  check<ShapeError>(x.dim() == 2 && weight.dim() == 2 && target.dim() == 1 && x.shape()[1] == weight.shape()[1] &&
                        x.shape()[0] == target.shape()[0],
                    op, "x is ", x, ", weight is ", weight, ", target is ", target, ", wanted [N, D], [C, D] and [N]");
  check<ShapeError>(weight.shape()[0] > 0, op, "weight is ", weight, "; there must be a class");
  check(smoothing >= 0 && smoothing <= 1, op, "label_smoothing must be in [0, 1], got ", smoothing);
}

// Rows of a chunk, and elements from one row of its logits to the next.
std::pair<int64_t, int64_t> chunk_of(int64_t rows, int64_t classes, int64_t size, bool on_device) {
  const int64_t all = 16 / size;
  // Rows that begin at multiples of 16 bytes, for the card's matrix units.
  const int64_t stride = on_device ? (classes + all - 1) / all * all : classes;
  const int64_t most = std::max<int64_t>((on_device ? kDeviceBytes : kHostBytes) / (stride * size), 1);
  const int64_t chunks = std::max<int64_t>((rows + most - 1) / most, 1);
  int64_t chunk = (rows + chunks - 1) / chunks;
  if (chunks > 1 && chunk > 128) chunk = (chunk + 127) / 128 * 128;
  return {chunk, stride};
}

// One pass over the rows by chunks, on the device that On names. What is not wanted is null.
template <class On>
class Chunks {
 public:
  Chunks(const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index, double smoothing)
      : x_(x.contiguous()), weight_(low_weight(weight, x.dtype()).contiguous()), target_(target.contiguous()) {
    rows_ = x.shape()[0], width_ = x.shape()[1], classes_ = weight.shape()[0];
    std::tie(chunk_, stride_) = chunk_of(rows_, classes_, size_of(x.dtype()), On::cuda);
    call_.dtype = x.dtype();
    call_.classes = classes_;
    call_.row_stride = stride_;
    call_.ignore_index = ignore_index;
    call_.smoothing = smoothing;
    call_.reduction = Reduction::none;
  }

  // Losses and lse of all rows.
  void forward(const Tensor& each, const Tensor& lse) {
    const Tensor logits = buffer();
    for_chunks([&](int64_t from, int64_t n) {
      multiply_logits(logits, from, n);
      CrossEntropyCall c = at(logits, from, n, lse);
      c.loss = row(each, from);
      if constexpr (On::cuda)
        cross_entropy_cuda(c);
      else
        cross_entropy_cpu(c);
    });
  }
  // Gradients for row_gradients [N], that of each row's loss.
  void backward(const Tensor& row_gradients, const Tensor& lse, const Tensor& gx, const Tensor& gweight) {
    const Tensor logits = buffer(), gradient = On::cuda ? logits : buffer();
    gradients(gx, gweight, [&](int64_t from, int64_t n) {
      multiply_logits(logits, from, n);
      CrossEntropyCall c = at(logits, from, n, lse);
      c.grad_loss = row(row_gradients, from);
      c.grad_x = gradient.raw_data();
      if constexpr (On::cuda)
        cross_entropy_backward_cuda(c);
      else
        cross_entropy_backward_cpu(c);
      return gradient;
    });
  }
  // Both, the gradients being those of the rows' sum times `factor` [].
  void both(const Tensor& each, const Tensor& lse, const Tensor& factor, const Tensor& gx, const Tensor& gweight) {
    const Tensor logits = buffer(), gradient = On::cuda ? logits : buffer();
    const Tensor factors = On::cuda ? factor : factor.expand({chunk_}).contiguous();
    gradients(gx, gweight, [&](int64_t from, int64_t n) {
      multiply_logits(logits, from, n);
      CrossEntropyCall c = at(logits, from, n, lse);
      c.loss = row(each, from);
      c.grad_x = gradient.raw_data();
      c.grad_loss = factors.raw_data();
      if constexpr (On::cuda) {
        cross_entropy_both_cuda(c);
      } else {
        cross_entropy_cpu(c);
        cross_entropy_backward_cpu(c);
      }
      return gradient;
    });
  }

  // The loss from those of all rows.
  void total(Reduction reduction, const Tensor& each, const Tensor& loss) const {
    CrossEntropyCall c = all_rows(reduction);
    c.loss = loss.raw_data();
    if constexpr (On::cuda) return cross_entropy_total_cuda(c, each.raw_data());
    const auto add_up = [&]<class R>() {
      const R* const losses = each.data<R>();
      double sum = 0;
      for (int64_t r = 0; r < rows_; ++r) sum += static_cast<double>(losses[r]);
      *static_cast<R*>(c.loss) = static_cast<R>(sum / divisor(c));
    };
    each.dtype() == DType::f64 ? add_up.template operator()<double>() : add_up.template operator()<float>();
  }
  // What each row's loss is multiplied by for the loss.
  void share(Reduction reduction, const Tensor& share) const {
    const CrossEntropyCall c = all_rows(reduction);
    if constexpr (On::cuda)
      cross_entropy_share_cuda(c, share.raw_data());
    else
      fill_elements(share, 1 / divisor(c));
  }

 private:
  // A parameter's cast is kept with it.
  static Tensor low_weight(const Tensor& weight, DType t) {
    const bool parameter =
        weight.dtype() == DType::f32 && t != DType::f32 && weight.requires_grad() && weight.is_leaf();
    return parameter ? detail::low_copy(weight, t) : weight.to(t);
  }
  CrossEntropyCall all_rows(Reduction reduction) const {
    CrossEntropyCall c = call_;
    c.rows = rows_;
    c.reduction = reduction;
    c.target = static_cast<const int64_t*>(target_.raw_data());
    return c;
  }
  static double divisor(const CrossEntropyCall& c) {
    if (c.reduction != Reduction::mean) return 1;
    return static_cast<double>(c.rows - std::count(c.target, c.target + c.rows, c.ignore_index));
  }
  Tensor buffer() const { return empty({{chunk_, stride_}, x_.dtype(), x_.device(), std::nullopt}); }
  static void* row(const Tensor& t, int64_t at) {
    return static_cast<std::byte*>(t.raw_data()) + at * size_of(t.dtype());
  }
  template <class F>
  void for_chunks(F&& f) const {
    for (int64_t from = 0; from < rows_; from += chunk_) f(from, std::min(chunk_, rows_ - from));
  }
  CrossEntropyCall at(const Tensor& logits, int64_t from, int64_t n, const Tensor& lse) const {
    CrossEntropyCall c = call_;
    c.rows = n;
    c.x = logits.raw_data();
    c.target = static_cast<const int64_t*>(target_.raw_data()) + from;
    c.lse = row(lse, from);
    return c;
  }
  void run(const Gemm& g) const {
    if constexpr (On::cuda)
      cuda::gemm(g, x_.device());
    else
      cpu::gemm(g);
  }

  // logits = x weight^T
  void multiply_logits(const Tensor& logits, int64_t from, int64_t n) const {
    Gemm g;
    g.in = g.out = x_.dtype();
    g.m = n, g.n = classes_, g.k = width_;
    g.a = row(x_, from * width_), g.a_row = width_, g.a_col = 1;
    g.b = weight_.raw_data(), g.b_row = 1, g.b_col = width_;
    g.c = logits.raw_data(), g.c_row = stride_;
    run(g);
  }
  // gx = g weight, gweight = g^T x with g = f(from, n), the gradient of a chunk's logits. The sum over the chunks is
  // f32 (f64 for f64) and rounded once.
  template <class F>
  void gradients(const Tensor& gx, const Tensor& gweight, F&& f) const {
    const Tensor sum = is_reduced_floating(gweight.dtype())
                           ? empty({gweight.shape(), DType::f32, gweight.device(), std::nullopt})
                           : gweight;
    if (rows_ == 0) fill_elements(sum, 0);
    for_chunks([&](int64_t from, int64_t n) {
      const Tensor gradient = f(from, n);
      Gemm g;
      g.in = g.out = x_.dtype();
      g.m = n, g.n = width_, g.k = classes_;
      g.a = gradient.raw_data(), g.a_row = stride_, g.a_col = 1;
      g.b = weight_.raw_data(), g.b_row = width_, g.b_col = 1;
      g.c = row(gx, from * width_), g.c_row = width_;
      run(g);
      g.out = sum.dtype();
      g.m = classes_, g.k = n;
      g.a_row = 1, g.a_col = stride_;
      g.b = row(x_, from * width_);
      g.c = sum.raw_data();
      g.beta = from > 0 ? 1 : 0;
      run(g);
    });
    if (!sum.same_as(gweight)) copy_elements(gweight, sum);
  }

  Tensor x_, weight_, target_;
  const Pin near_{weight_, Access::read};  // the copy may live elsewhere, as the parameter may
  int64_t rows_ = 0, width_ = 0, classes_ = 0, stride_ = 0, chunk_ = 0;
  CrossEntropyCall call_;
};

// ---- the same with whole logits, of other ops ----

// log(sum(exp)) of the logits' rows, and the rows' losses, 0 where they are ignored.
Pair whole_losses(const Tensor& logits, const Tensor& target, int64_t ignore_index, double smoothing) {
  const Tensor lse = logsumexp(logits, {1});
  const Tensor at_target = sum(logits * detail::at_targets(target, logits.shape()[1], logits.dtype()), Dims{1});
  Tensor each = add(lse, at_target, -1) * (1 - smoothing);
  each = each + add(lse, mean(logits, Dims{1}), -1) * smoothing;
  return {lse, each * (target != ignore_index).to(each.dtype())};
}
Tensor reduced(const Tensor& each, const Tensor& target, int64_t ignore_index, Reduction reduction) {
  if (reduction == Reduction::none) return each;
  const Tensor total = sum(each);
  return reduction == Reduction::sum ? total : total / sum((target != ignore_index).to(each.dtype()));
}
Tensor logits_of(const Tensor& x, const Tensor& weight) {
  return linear(x, weight.to(x.dtype())).to(statistic_dtype(x.dtype()));
}
// The gradients for that of the logits.
Pair through_logits(const Tensor& g, const Tensor& x, const Tensor& weight) {
  const Tensor low = g.to(x.dtype());
  return {matmul(low, weight.to(x.dtype())), matmul(low.transpose(0, 1), x).to(weight.dtype())};
}
// What reaches x and weight through lse.
Pair through_lse(const Tensor& glse, const Tensor& x, const Tensor& weight, const Tensor& lse) {
  return through_logits(add(logits_of(x, weight), lse.unsqueeze(1), -1).exp() * glse.unsqueeze(1), x, weight);
}

// Sets what reaches x and weight through the loss (undefined: nothing), and through lse where that has a gradient.
void set_gradients(Backward& b, Tensor gx, Tensor gweight, const Tensor& x, const Tensor& weight) {
  if (b.has_gy(1)) {
    const auto [mx, mw] = through_lse(b.gy(1), x, weight, b.y(1));
    gx = gx.defined() ? gx + mx : mx;
    gweight = gweight.defined() ? gweight + mw : mw;
  }
  b.set(0, gx);
  b.set(1, gweight);
}

// [N]: the gradient of each row's loss.
Tensor row_gradients(const Tensor& gloss, const Tensor& target, int64_t ignore_index, Reduction reduction) {
  const Tensor share = detail::row_shares(target, ignore_index, reduction == Reduction::mean, gloss.dtype()).squeeze(1);
  return share * gloss;
}

TensorMeta rows_meta(const Tensor& x) {
  return {{x.shape()[0]}, statistic_dtype(x.dtype()), x.device(), std::nullopt};
}
Cost product_cost(const Tensor& x, const Tensor& weight, double products) {
  const double n = static_cast<double>(x.numel()) * static_cast<double>(weight.shape()[0]);
  return {2 * products * n, static_cast<double>(x.nbytes() + weight.nbytes())};
}

using BackwardSignature = Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t,
                               const std::string&, double);

constexpr const char* kWhyWide =
    "logits and their gradients are rounded to the dtype between the products, which the reference does not do";

const Op<BackwardSignature> linear_cross_entropy_backward_op{{
    .schema = "linear_cross_entropy_backward(Tensor gloss, Tensor x, Tensor weight, Tensor target, Tensor lse, int "
              "ignore_index, str reduction, float label_smoothing) -> (Tensor gx, Tensor gweight)",
    .shard = "whole",
    .internal = true,
    .doc = "The gradients of linear_cross_entropy for x [N, D] and weight [C, D] from the gradient gloss of its loss "
           "and the lse [N] that it kept. The logits are computed again, by chunks of rows.",
    .infer =
        [](const Tensor& gloss, const Tensor& x, const Tensor& weight, const Tensor& target, const Tensor& lse, int64_t,
           const std::string& reduction, double smoothing) {
          const std::string_view op = "linear_cross_entropy_backward";
          check_inputs(x, weight, target, smoothing, op);
          const bool none = parse_reduction(reduction, op) == Reduction::none;
          check<ShapeError>(none ? gloss.shape() == target.shape() : gloss.dim() == 0, op, "gloss is ", gloss);
          check<ShapeError>(lse.shape() == target.shape(), op, "lse is ", lse, ", target is ", target);
          check<DTypeError>(gloss.dtype() == statistic_dtype(x.dtype()) && lse.dtype() == gloss.dtype(), op,
                            "gloss and lse must be ", statistic_dtype(x.dtype()));
          return std::array<TensorMeta, 2>{like(x), like(weight)};
        },
    .kernels = on_each_device([](auto on, Tensor& gx, Tensor& gweight, const Tensor& gloss, const Tensor& x,
                                 const Tensor& weight, const Tensor& target, const Tensor& lse, int64_t ignore_index,
                                 const std::string& reduction, double smoothing) {
      const Reduction r = parse_reduction(reduction, "linear_cross_entropy_backward");
      Chunks<decltype(on)>(x, weight, target, ignore_index, smoothing)
          .backward(row_gradients(gloss, target, ignore_index, r).contiguous(), lse.contiguous(), gx, gweight);
    }),
    .composed =
        [](const Tensor& gloss, const Tensor& x, const Tensor& weight, const Tensor& target, const Tensor& lse,
           int64_t ignore_index, const std::string& reduction, double smoothing) {
          const Reduction r = parse_reduction(reduction, "linear_cross_entropy_backward");
          const int64_t classes = weight.shape()[0];
          const Tensor p = add(logits_of(x, weight), lse.unsqueeze(1), -1).exp();
          const Tensor wanted = detail::at_targets(target, classes, p.dtype()) * (1 - smoothing) +
                                smoothing / static_cast<double>(classes);
          return through_logits(add(p, wanted, -1) * row_gradients(gloss, target, ignore_index, r).unsqueeze(1), x,
                                weight);
        },
    .cost = [](const Tensor&, const Tensor& x, const Tensor& weight, const Tensor&, const Tensor&, int64_t,
               const std::string&, double) { return product_cost(x, weight, 3); },
    .samples =
        [](Samples& s) {
          const DType t = statistic_dtype(s.dtype());
          s.add(s.tensor({}, t), s.tensor({4, 5}), s.tensor({7, 5}), s.integers({4}, 0, 7), s.uniform({4}, 4, 6, t),
                -100, "mean", 0.0);
          s.add(s.tensor({6}, t), s.tensor({6, 8}), s.tensor({40, 8}), s.integers({6}, 0, 40), s.uniform({6}, 8, 9, t),
                3, "none", 0.1);
          s.invalid<ShapeError>("lse is", s.tensor({}, t), s.tensor({4, 5}), s.tensor({7, 5}), s.integers({4}, 0, 7),
                                s.tensor({3}, t), -100, "mean", 0.0);
        },
    .tolerance = 8,
    .tolerance_reason = kWhyWide,
}};

using ForwardSignature = Pair(const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&, double);

const Op<ForwardSignature> linear_cross_entropy_op{{
    .schema = "linear_cross_entropy(Tensor x, Tensor weight, Tensor target, int ignore_index=-100, str "
              "reduction=\"mean\", float label_smoothing=0.0) -> (Tensor loss, Tensor lse)",
    .shard = "whole",
    .shown = 1,
    .doc = "cross_entropy(linear(x, weight), target) for x [N, D], weight [C, D] and i64 targets [N], with the logits "
           "of some rows at a time in memory, never of all. lse [N] is log(sum(exp)) of each row's logits. weight has "
           "x's dtype, or f32 where x is bf16 or f16. The gradient computes the logits again. ShapeError, DTypeError, "
           "and IndexError for a target that is no class.",
    .example =
        "Tensor loss = linear_cross_entropy(zeros({2, 3}), ones({4, 3}), from_span<int64_t>(std::vector<int64_t>{1, "
        "3}, {2})); assert(std::abs(loss.item() - std::log(4.0)) < 1e-6);",
    .infer =
        [](const Tensor& x, const Tensor& weight, const Tensor& target, int64_t, const std::string& reduction,
           double smoothing) {
          check_inputs(x, weight, target, smoothing, "linear_cross_entropy");
          const bool none = parse_reduction(reduction, "linear_cross_entropy") == Reduction::none;
          const TensorMeta rows = rows_meta(x);
          return std::array<TensorMeta, 2>{none ? rows : rows.with_shape({}), rows};
        },
    .kernels =
        on_each_device([](auto on, Tensor& loss, Tensor& lse, const Tensor& x, const Tensor& weight,
                          const Tensor& target, int64_t ignore_index, const std::string& reduction, double smoothing) {
          const Reduction r = parse_reduction(reduction, "linear_cross_entropy");
          Chunks<decltype(on)> chunks(x, weight, target, ignore_index, smoothing);
          const Tensor each = r == Reduction::none ? loss : empty(like(lse));
          chunks.forward(each, lse);
          if (r != Reduction::none) chunks.total(r, each, loss);
        }),
    .saves = "x weight target lse",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index,
           const std::string& reduction, double smoothing) {
          Tensor gx, gweight;
          if (b.has_gy(0))
            std::tie(gx, gweight) = linear_cross_entropy_backward_op(b.gy(0), x, weight, target, b.y(1), ignore_index,
                                                                     reduction, smoothing);
          set_gradients(b, gx, gweight, x, weight);
        },
    .cost = [](const Tensor& x, const Tensor& weight, const Tensor&, int64_t, const std::string&,
               double) { return product_cost(x, weight, 1); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 5}), s.tensor({7, 5}), s.integers({4}, 0, 7));
          s.add(s.tensor({5, 8}), s.tensor({40, 8}), s.integers({5}, 0, 40), -100, "sum", 0.1).named("smoothed");
          s.add(s.tensor({6, 3}), s.tensor({3, 3}), s.integers({6}, 0, 3), 1, "none").named("ignored rows");
          s.add(s.tensor({0, 4}), s.tensor({3, 4}), s.integers({0}, 0, 3), -100, "sum").named("no rows");
          s.invalid<IndexError>("not one of", s.tensor({2, 3}), s.tensor({3, 3}), s.integers({2}, 3, 4));
          s.invalid<ShapeError>("wanted [N, D]", s.tensor({2, 3}), s.tensor({3, 4}), s.integers({2}, 0, 3));
          s.invalid<DTypeError>("i64", s.tensor({2, 3}), s.tensor({3, 3}), s.tensor({2}, DType::f32));
          s.invalid<ValueError>("reduction", s.tensor({2, 3}), s.tensor({3, 3}), s.integers({2}, 0, 3), -100, "median");
          if (s.benchmarking()) s.bench(s.tensor({4096, 512}), s.tensor({8192, 512}), s.integers({4096}, 0, 8192));
        },
    .reference =
        [](const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index,
           const std::string& reduction, double smoothing) {
          const auto [lse, each] = whole_losses(logits_of(x, weight), target, ignore_index, smoothing);
          return Pair(reduced(each, target, ignore_index, parse_reduction(reduction, "linear_cross_entropy")), lse);
        },
    .tolerance = 8,
    .tolerance_reason = kWhyWide,
}};

using TrainingSignature = Five(const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&, double, bool,
                               bool);

constexpr ByDevice<void (*)(Tensor&, const Tensor&)> kScaleInPlace =
    on_each_device([](auto on, Tensor& y, const Tensor& factor) {
      if constexpr (on.cuda) {
        scale_in_place_cuda(y, factor);
      } else if (factor.item() != 1) {
        const Tensor all = factor.expand(y.shape());
        map(on, Map::mul, y, {&y, &all});
      }
    });

// Saved result i of linear_cross_entropy_gradients times factor: in its own memory where nothing else reads that.
Tensor times(const Backward& b, int i, const Tensor& factor) {
  if (!b.may_overwrite(i)) return detail::scaled(b.y(i), factor);
  Tensor y = b.y(i).detach();
  if (const auto scale = kScaleInPlace.on(y.device().type)) scale(y, factor);
  return y;
}

const Op<TrainingSignature> linear_cross_entropy_gradients_op{{
    .schema = "linear_cross_entropy_gradients(Tensor x, Tensor weight, Tensor target, int ignore_index=-100, str "
              "reduction=\"mean\", float label_smoothing=0.0, bool of_sum=false, bool unrounded=false) -> (Tensor "
              "loss, Tensor lse, "
              "Tensor share, Tensor gx, Tensor gweight)",
    .shard = "whole",
    .internal = true,
    .doc = "linear_cross_entropy, mean or sum, with its gradients at once, so that no product is done twice. The "
           "gradient of loss is gx and gweight times share [] times its own gradient; they have no gradients "
           "themselves. With of_sum gx and gweight are those of the rows' sum and share is what the loss is of that "
           "sum (1 over the number of rows that count, or 1): so nothing of f16 is lost before a loss scaler's factor "
           "comes. Else they are those of loss, and share is 1. With unrounded gweight is f32 where weight is f16 or "
           "bf16: "
           "the sum over the chunks as it is, for the parameter that such a weight is a copy of.",
    .infer =
        [](const Tensor& x, const Tensor& weight, const Tensor& target, int64_t, const std::string& reduction,
           double smoothing, bool, bool unrounded) {
          const std::string_view op = "linear_cross_entropy_gradients";
          check_inputs(x, weight, target, smoothing, op);
          check(parse_reduction(reduction, op) != Reduction::none, op, "reduction must be mean or sum");
          const TensorMeta rows = rows_meta(x), one = rows.with_shape({});
          TensorMeta gweight = like(weight);
          if (unrounded && is_reduced_floating(weight.dtype())) gweight.dtype = DType::f32;
          return std::array<TensorMeta, 5>{one, rows, one, like(x), gweight};
        },
    .kernels = on_each_device([](auto on, Tensor& loss, Tensor& lse, Tensor& share, Tensor& gx, Tensor& gweight,
                                 const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index,
                                 const std::string& reduction, double smoothing, bool of_sum, bool) {
      const Reduction r = parse_reduction(reduction, "linear_cross_entropy_gradients");
      Chunks<decltype(on)> chunks(x, weight, target, ignore_index, smoothing);
      const Tensor each = empty(like(lse)), inside = empty(like(share));
      chunks.share(r, of_sum ? share : inside);
      fill_elements(of_sum ? inside : share, 1);
      chunks.both(each, lse, inside, gx, gweight);
      chunks.total(r, each, loss);
    }),
    .saves = "x weight target lse share gx gweight",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index,
           const std::string& reduction, double smoothing, bool, bool) {
          if (b.has_gy(3) || b.has_gy(4))
            throw AutogradError("linear_cross_entropy_gradients", "gx and gweight have no gradients");
          Tensor gx, gweight;
          if (b.has_gy(0) && grad_enabled()) {  // the gradients shall have gradients
            std::tie(gx, gweight) = linear_cross_entropy_backward_op(b.gy(0), x, weight, target, b.y(1), ignore_index,
                                                                     reduction, smoothing);
          } else if (b.has_gy(0)) {
            const Tensor factor = b.gy(0) * b.y(2);
            if (b.needs(0)) gx = times(b, 3, factor);
            if (b.needs(1)) gweight = times(b, 4, factor);
          }
          set_gradients(b, gx, gweight, x, weight);
        },
    .cost = [](const Tensor& x, const Tensor& weight, const Tensor&, int64_t, const std::string&, double, bool,
               bool) { return product_cost(x, weight, 3); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 5}), s.tensor({7, 5}), s.integers({4}, 0, 7)).not_differentiable();
          s.add(s.tensor({4, 5}), s.tensor({7, 5}), s.integers({4}, 0, 7), -100, "mean", 0.0, true)
              .not_differentiable();
          s.add(s.tensor({5, 8}), s.tensor({40, 8}), s.integers({5}, 0, 40), -100, "sum", 0.1).not_differentiable();
          s.add(s.tensor({6, 3}), s.tensor({3, 3}), s.integers({6}, 0, 3), 1, "mean").not_differentiable();
          s.add(s.tensor({6, 3}), s.tensor({3, 3}), s.integers({6}, 0, 3), 1, "mean", 0.0, false, true)
              .not_differentiable();
          s.add(s.tensor({0, 4}), s.tensor({3, 4}), s.integers({0}, 0, 3), -100, "sum").not_differentiable();
          s.invalid<ValueError>("mean or sum", s.tensor({2, 3}), s.tensor({3, 3}), s.integers({2}, 0, 3), -100, "none");
          s.invalid<IndexError>("not one of", s.tensor({2, 3}), s.tensor({3, 3}), s.integers({2}, 3, 4));
          if (s.benchmarking()) s.bench(s.tensor({4096, 512}), s.tensor({8192, 512}), s.integers({4096}, 0, 8192));
        },
    .reference =
        [](const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index,
           const std::string& reduction, double smoothing, bool of_sum, bool unrounded) {
          const Reduction r = parse_reduction(reduction, "linear_cross_entropy_gradients");
          const Tensor logits = logits_of(x, weight);
          const auto [lse, each] = whole_losses(logits, target, ignore_index, smoothing);
          const int64_t classes = weight.shape()[0];
          const Tensor used = (target != ignore_index).to(each.dtype());
          const Tensor wanted = detail::at_targets(target, classes, each.dtype()) * (1 - smoothing) +
                                smoothing / static_cast<double>(classes);
          const Tensor one = ones({}, each.dtype()), share = r == Reduction::sum ? one : one / sum(used);
          Tensor g = add(add(logits, lse.unsqueeze(1), -1).exp(), wanted, -1) * used.unsqueeze(1);
          if (!of_sum) g = g * share;
          const auto [gx, gweight] = through_logits(g, x, weight);
          return Five(reduced(each, target, ignore_index, r), lse, of_sum ? share : one, gx,
                      unrounded && is_reduced_floating(weight.dtype()) ? gweight.to(DType::f32) : gweight);
        },
    .tolerance = 8,
    .tolerance_reason = kWhyWide,
}};

// x times a number that the device knows, in the number's precision.
const Op<Tensor(const Tensor&, const Tensor&)> scaled_op{{
    .schema = "scaled(Tensor x, Tensor factor) -> Tensor",
    .shard = "elementwise",
    .doc = "x times a 0-dim factor of dtype f32 (f64 for f64), rounded once to x's dtype; mul would round the factor "
           "first.",
    .infer =
        [](const Tensor& x, const Tensor& factor) {
          check<DTypeError>(is_floating(x.dtype()), "scaled", "needs a floating dtype, got ", x.dtype());
          check<ShapeError>(factor.dim() == 0, "scaled", "factor is ", factor, ", wanted []");
          check<DTypeError>(factor.dtype() == statistic_dtype(x.dtype()), "scaled", "factor must be ",
                            statistic_dtype(x.dtype()), ", got ", factor.dtype());
          return like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& factor) {
      const Tensor all = factor.expand(x.shape());
      if constexpr (on.cuda)
        scale_cuda(y, x, all);
      else
        map(on, Map::mul, y, {&x, &all});
    }),
    .composed = [](const Tensor& x, const Tensor& factor) { return (x.to(factor.dtype()) * factor).to(x.dtype()); },
    .cost =
        [](const Tensor& x, const Tensor&) {
          return Cost{static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const DType t = statistic_dtype(s.dtype());
          s.add(s.tensor({3, 5}), s.tensor({}, t));
          s.add(s.tensor({0}), s.tensor({}, t));
          s.invalid<ShapeError>("factor is", s.tensor({3}), s.tensor({1}, t));
        },
}};

// Whether the weight is given as autocast's copy: an argument is brought whole, and of a parameter that lives elsewhere
// (on a tier, in parts on ranks) nobody reads the f32 numbers, of twice the bytes. The gradient is as wide as before.
bool reads_copy(const Tensor& weight, DType dtype) {
  return autocast_enabled() && dtype == autocast_dtype() && !autocast_settings().low_gradients && weight.is_leaf() &&
         weight.requires_grad() && weight.dtype() == DType::f32 &&
         weight.tier() != memory::backend(weight.device()).tier;
}

}  // namespace

Tensor detail::scaled(const Tensor& x, const Tensor& factor) {
  return scaled_op(x, factor);
}

int64_t detail::linear_cross_entropy_workspace(int64_t rows, int64_t width, int64_t classes, DType dtype) {
  const auto [chunk, stride] = chunk_of(rows, classes, size_of(dtype), true);
  return (chunk * stride + (is_reduced_floating(dtype) ? classes * width : 0)) * size_of(dtype);
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target, const CrossEntropyOptions& o) {
  check<ShapeError>(x.dim() > 0 && x.numel() / std::max<int64_t>(x.shape().back(), 1) == target.numel(),
                    "linear_cross_entropy", "x is ", x, ", target is ", target, ", wanted [.., D] and [..]");
  // With weights of classes the logits are in memory as a whole; of a sharded weight this rank's part of them is.
  if (o.weight.defined() || is_placed(weight)) {
    const Tensor loss = cross_entropy(linear(x.reshape({target.numel(), x.shape().back()}), weight),
                                      target.reshape({target.numel()}), o);
    return o.reduction == "none" ? loss.reshape(target.shape()) : loss;
  }
  Tensor rows = x.reshape({target.numel(), x.shape().back()});
  if (autocast_enabled() && rows.dtype() == DType::f32) rows = rows.to(autocast_dtype());
  const Tensor classes = target.reshape({target.numel()});
  if (o.reduction != "none" && grad_enabled() && (rows.requires_grad() || weight.requires_grad())) {
    const bool of_copy = reads_copy(weight, rows.dtype());
    return std::get<0>(linear_cross_entropy_gradients_op(
        rows, of_copy ? detail::autocast_tensor(weight, Autocast::low, rows.dtype()) : weight, classes, o.ignore_index,
        o.reduction, o.label_smoothing, rows.dtype() == DType::f16, of_copy));
  }
  const Tensor loss =
      std::get<0>(linear_cross_entropy_op(rows, weight, classes, o.ignore_index, o.reduction, o.label_smoothing));
  return o.reduction == "none" ? loss.reshape(target.shape()) : loss;
}

}  // namespace strata
