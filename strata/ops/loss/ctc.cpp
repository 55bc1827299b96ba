// The records of connectionist temporal classification.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/ctc_kernel.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

void check_inputs(std::string_view op, const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                  const Tensor& target_lengths, int64_t blank) {
  check<DTypeError>(is_floating(log_probs.dtype()), op, "needs floating log_probs, got ", log_probs.dtype());
  check<ShapeError>(log_probs.dim() == 3, op, "log_probs is ", log_probs, ", wanted [T, N, C]");
  const int64_t batch = log_probs.size(1), classes = log_probs.size(2);
  check<ShapeError>(targets.dim() == 2 && targets.size(0) == batch, op, "targets is ", targets, ", wanted [", batch,
                    ", S]");
  for (const Tensor& t : {input_lengths, target_lengths})
    check<ShapeError>(t.dim() == 1 && t.size(0) == batch, op, "lengths are ", t, ", wanted [", batch, "]");
  for (const Tensor& t : {targets, input_lengths, target_lengths})
    check<DTypeError>(t.dtype() == DType::i64, op, "needs i64 targets and lengths, got ", t.dtype());
  check(blank >= 0 && blank < classes, op, "blank ", blank, " is not one of the ", classes, " classes");
}

// What the kernels see; `keep` holds what had to be copied.
CtcCall describe_call(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                      const Tensor& target_lengths, int64_t blank, bool zero_infinity, std::vector<Tensor>& keep) {
  const auto raw = [&](const Tensor& t) {
    keep.push_back(t.contiguous());
    return static_cast<const int64_t*>(keep.back().raw_data());
  };
  CtcCall c;
  c.dtype = log_probs.dtype();
  c.steps = log_probs.size(0), c.batch = log_probs.size(1), c.classes = log_probs.size(2);
  c.labels = targets.size(1);
  c.blank = blank;
  c.zero_infinity = zero_infinity;
  keep.push_back(c.classes == 1 || log_probs.strides()[2] == 1 ? log_probs : log_probs.contiguous());
  c.log_probs = keep.back().raw_data();
  c.step_stride = keep.back().strides()[0], c.batch_stride = keep.back().strides()[1];
  c.targets = raw(targets), c.input_lengths = raw(input_lengths), c.target_lengths = raw(target_lengths);
  return c;
}

// Stands for -inf where it must be subtracted from itself.
constexpr double kNone = -1e30;

// x moved up by n states.
Tensor moved(const Tensor& x, int64_t n) {
  return slice(pad(x, {n, 0}, "constant", kNone), 1, 0, x.size(1), 1);
}

// The losses [N], with ops that have gradients of every order: the recursion of alpha, step by step.
Tensor composed_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                     const Tensor& target_lengths, int64_t blank, bool zero_infinity) {
  const int64_t steps = log_probs.size(0), batch = log_probs.size(1), labels = targets.size(1), states = 2 * labels + 1;
  const DType type = statistic_dtype(log_probs.dtype());
  const DeviceScope there(log_probs.device());
  const Tensor place = arange(states, DType::i64), odd = remainder(place, 2) == 1;
  // A label that stands outside its sequence may be any number.
  const Tensor here = unsqueeze(target_lengths, 1) > arange(labels, DType::i64);
  const Tensor known = where(here, targets, blank);
  const Tensor label = cat({stack({full_like(known, blank), known}, 2).reshape({batch, 2 * labels}),
                            full({batch, 1}, blank, DType::i64)},
                           1);
  Tensor skips = logical_and(odd, ones({batch, states}, DType::boolean));
  if (states >= 3) {
    const Tensor differs = label.narrow(1, 2, states - 2) != label.narrow(1, 0, states - 2);
    skips = logical_and(skips, cat({zeros({batch, 2}, DType::boolean), differs}, 1));
  }
  const Tensor used = place <= unsqueeze(target_lengths * 2, 1);
  const Tensor emitted =
      gather(log_probs.to(type), 2, label.unsqueeze(0).expand({steps, batch, states}));  // [T, N, states]
  // Before the first step a path stands before state 0, from where it goes to state 0 or 1.
  Tensor alpha = where(unsqueeze(place == 0, 0), zeros({batch, states}, type), kNone);
  for (int64_t t = 0; t < steps; ++t) {
    Tensor next = alpha;
    if (t == 0) {
      next = where(unsqueeze(place <= 1, 0), zeros({batch, states}, type), kNone);
    } else if (states > 1) {
      next = logaddexp(logaddexp(alpha, moved(alpha, 1)), where(skips, moved(alpha, 2), kNone));
    }
    next = where(used, next + emitted[t], kNone);
    alpha = where(unsqueeze(input_lengths, 1) > t, next, alpha);
  }
  const Tensor last = unsqueeze(target_lengths * 2, 1);
  const Tensor end = gather(alpha, 1, last).squeeze(1);
  const Tensor before = where(target_lengths > 0, gather(alpha, 1, clamp_min(last - 1, 0)).squeeze(1), kNone);
  const Tensor loss = -logaddexp(end, before), lost = loss > 1e29;
  return where(lost, zero_infinity ? 0.0 : std::numeric_limits<double>::infinity(), loss);
}

using BackwardSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, int64_t, bool);

// ctc_forward_op, which stands further down.
Pair forward_of(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, bool zero_infinity);

// Lengths and labels of sequences that fit.
struct Example {
  Tensor log_probs, targets, input_lengths, target_lengths;
};
Tensor integers(std::vector<int64_t> v, const Shape& shape) {
  return from_span<int64_t>(v, shape);
}
Example example(Samples& s) {
  return {s.uniform({5, 3, 4}, -3, -0.2), integers({1, 2, 1, 3, 3, 0, 2, 1, 3}, {3, 3}), integers({5, 4, 3}, {3}),
          integers({3, 2, 0}, {3})};
}
void invalid_samples(Samples& s) {
  const Example e = example(s);
  s.invalid<ShapeError>("[T, N, C]", s.tensor({5}), e.targets, e.input_lengths, e.target_lengths);
  s.invalid<ShapeError>("lengths", e.log_probs, e.targets, integers({5, 4}, {2}), e.target_lengths);
  s.invalid<ValueError>("input_lengths", e.log_probs, e.targets, integers({5, 9, 3}, {3}), e.target_lengths);
  s.invalid<ValueError>("target_lengths", e.log_probs, e.targets, e.input_lengths, integers({3, 4, 0}, {3}));
  s.invalid<ValueError>("target_lengths", e.log_probs, e.targets, e.input_lengths, integers({INT64_MAX, 1, 0}, {3}));
  s.invalid<IndexError>("not one of", e.log_probs, e.targets + 2, e.input_lengths, e.target_lengths);
  s.invalid<ValueError>("blank", e.log_probs, e.targets, e.input_lengths, e.target_lengths, 4);
}

// -log of the summed probability of every path of classes that spells out the labels: repetitions fall together, then
// blanks are left out.
double loss_over_paths(const std::vector<std::vector<double>>& log_probs, const std::vector<int64_t>& labels,
                       int64_t blank, int64_t classes) {
  double paths = 1;
  for (size_t t = 0; t < log_probs.size(); ++t) paths *= static_cast<double>(classes);
  check(paths < 1e5, "ctc_loss", "too many paths for the reference: ", paths);
  double total = 0;
  for (int64_t n = 0; n < static_cast<int64_t>(paths); ++n) {
    std::vector<int64_t> spelled;
    double log_probability = 0;
    int64_t rest = n, before = blank;
    for (const std::vector<double>& step : log_probs) {
      const int64_t c = rest % classes;
      rest /= classes;
      log_probability += step[static_cast<size_t>(c)];
      if (c != before && c != blank) spelled.push_back(c);
      before = c;
    }
    if (spelled == labels) total += std::exp(log_probability);
  }
  return -std::log(total);
}

Tensor reference_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                      const Tensor& target_lengths, int64_t blank, const std::string& reduction, bool zero_infinity) {
  const std::vector<double> all = log_probs.to_vector<double>();
  const std::vector<int64_t> classes_of = targets.to_vector<int64_t>(), steps = input_lengths.to_vector<int64_t>(),
                             lengths = target_lengths.to_vector<int64_t>();
  const auto batch = static_cast<int64_t>(lengths.size()), classes = log_probs.shape().back();
  std::vector<double> losses;
  double sum = 0, mean = 0;
  for (int64_t n = 0, first = 0; n < batch; ++n) {
    const int64_t length = lengths[static_cast<size_t>(n)];
    if (targets.dim() == 2) first = n * targets.shape()[1];
    const std::vector<int64_t> labels(classes_of.begin() + first, classes_of.begin() + first + length);
    first += length;
    std::vector<std::vector<double>> rows;
    for (int64_t t = 0; t < steps[static_cast<size_t>(n)]; ++t) {
      const auto row = all.begin() + (t * batch + n) * classes;
      rows.emplace_back(row, row + classes);
    }
    const double loss = loss_over_paths(rows, labels, blank, classes);
    losses.push_back(zero_infinity && std::isinf(loss) ? 0 : loss);
    sum += losses.back();
    mean += losses.back() / static_cast<double>(std::max<int64_t>(length, 1) * batch);
  }
  if (reduction != "none") return from_span<double>(std::vector<double>{reduction == "sum" ? sum : mean}, {});
  return from_span<double>(losses, log_probs.dim() == 2 ? Shape{} : Shape{batch});
}

const Op<BackwardSignature> ctc_backward_op{{
    .schema = "ctc_backward(Tensor gloss, Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor "
              "target_lengths, Tensor alpha, int blank=0, bool zero_infinity=false) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "The gradient of ctc_forward for log_probs: -gloss times the probability that a step has a class, given "
           "that the labels come out. NaN for a sequence whose labels have no path, 0 with zero_infinity; 0 past a "
           "sequence's steps.",
    .infer =
        [](const Tensor& gloss, const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
           const Tensor& target_lengths, const Tensor& alpha, int64_t blank, bool) {
          constexpr std::string_view op = "ctc_backward";
          check_inputs(op, log_probs, targets, input_lengths, target_lengths, blank);
          const DType type = statistic_dtype(log_probs.dtype());
          check<ShapeError>(gloss.shape() == Shape{log_probs.size(1)}, op, "gloss is ", gloss, ", wanted [",
                            log_probs.size(1), "]");
          const Shape wanted{log_probs.size(1), log_probs.size(0), 2 * targets.size(1) + 1};
          check<ShapeError>(alpha.shape() == wanted, op, "alpha is ", alpha, ", wanted ", wanted);
          check<DTypeError>(gloss.dtype() == type && alpha.dtype() == type, op, "gloss is ", gloss, " and alpha ",
                            alpha, ", wanted ", type);
          return like(log_probs);
        },
    .kernels = on_each_device([](auto on, Tensor& grad, const Tensor& gloss, const Tensor& log_probs,
                                 const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                                 const Tensor& alpha, int64_t blank, bool zero_infinity) {
      std::vector<Tensor> keep{gloss.contiguous(), alpha.contiguous()};
      CtcCall c = describe_call(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, keep);
      c.grad_loss = keep[0].raw_data();
      c.alpha = const_cast<void*>(static_cast<const void*>(keep[1].raw_data()));
      c.grad = grad.raw_data();
      if constexpr (on.cuda)
        ctc_backward_cuda(c);
      else
        ctc_backward_cpu(c);
    }),
    .composed =
        [](const Tensor& gloss, const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
           const Tensor& target_lengths, const Tensor&, int64_t blank, bool zero_infinity) {
          constexpr int64_t kMostSteps = 1 << 20;  // each records some ten nodes: 4 GB in all
          check<MemoryError>(log_probs.size(0) <= kMostSteps, "ctc_backward",
                             "a gradient of the gradient records every ", "step by itself: of at most ", kMostSteps,
                             ", log_probs is ", log_probs);
          const GradMode on(true);
          Tensor x = log_probs;
          if (!x.requires_grad()) {
            x = log_probs.detach();
            x.set_requires_grad();
          }
          const Tensor loss = composed_loss(x, targets, input_lengths, target_lengths, blank, zero_infinity);
          return grad({loss}, {x}, {gloss}, true)[0];
        },
    .cost =
        [](const Tensor&, const Tensor& log_probs, const Tensor& targets, const Tensor&, const Tensor&,
           const Tensor& alpha, int64_t, bool) {
          const double states = static_cast<double>(log_probs.size(0) * log_probs.size(1) * (2 * targets.size(1) + 1));
          return Cost{15 * states, static_cast<double>(log_probs.nbytes() + alpha.nbytes()) +
                                       states * static_cast<double>(size_of(log_probs.dtype()))};
        },
    .samples =
        [](Samples& s) {
          const auto add = [&](const Example& e, int64_t blank, bool zero_infinity) -> Sample& {
            const Tensor alpha = std::get<1>(
                forward_of(e.log_probs, e.targets, e.input_lengths, e.target_lengths, blank, zero_infinity));
            const DType type = statistic_dtype(s.dtype());
            return s
                .add(s.tensor({e.log_probs.size(1)}, type), e.log_probs, e.targets, e.input_lengths, e.target_lengths,
                     alpha, blank, zero_infinity)
                .not_differentiable();
          };
          Example e = example(s);
          add(e, 0, false);
          e.input_lengths = integers({5, 2, 0}, {3});
          add(e, 0, true).named("one without a path, one without steps");
          e.targets = integers({0, 2, 1, 0, 0, 9, 2, 1, 0}, {3, 3});
          e.log_probs = transpose(s.uniform({3, 5, 4}, -3, -0.2), 0, 1);
          e.target_lengths = integers({3, 1, 0}, {3});
          add(e, 3, true).named("another blank, strided");
        },
}};

const Op<Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, bool)> ctc_forward_op{{
    .schema = "ctc_forward(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, "
              "bool zero_infinity=false) -> (Tensor loss, Tensor alpha)",
    .shard = "whole",
    .doc = "The loss [N] of each sequence of ctc_loss, and alpha [N, T, 2 S + 1], the log-probabilities of the "
           "prefixes that end in each state (-inf outside of a sequence), which the gradient uses. Both are f32 (f64 "
           "for f64). targets are i64 [N, S], lengths i64 [N]. alpha has no gradient.",
    .infer =
        [](const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
           int64_t blank, bool) {
          check_inputs("ctc_loss", log_probs, targets, input_lengths, target_lengths, blank);
          const TensorMeta loss{
              {log_probs.size(1)}, statistic_dtype(log_probs.dtype()), log_probs.device(), std::nullopt};
          return std::array<TensorMeta, 2>{
              loss, loss.with_shape({log_probs.size(1), log_probs.size(0), 2 * targets.size(1) + 1})};
        },
    .kernels = on_each_device([](auto on, Tensor& loss, Tensor& alpha, const Tensor& log_probs, const Tensor& targets,
                                 const Tensor& input_lengths, const Tensor& target_lengths, int64_t blank,
                                 bool zero_infinity) {
      std::vector<Tensor> keep;
      CtcCall c = describe_call(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, keep);
      c.loss = loss.raw_data();
      c.alpha = alpha.raw_data();
      if constexpr (on.cuda)
        ctc_forward_cuda(c);
      else
        ctc_forward_cpu(c);
    }),
    .saves = "log_probs targets input_lengths target_lengths alpha",
    .backward =
        [](Backward& b, const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
           const Tensor& target_lengths, int64_t blank, bool zero_infinity) {
          check<AutogradError>(!b.has_gy(1), "ctc_forward", "alpha has no gradient");
          b.set(0, ctc_backward_op(b.gy(0), log_probs, targets, input_lengths, target_lengths, b.y(1), blank,
                                   zero_infinity));
        },
    .cost =
        [](const Tensor& log_probs, const Tensor& targets, const Tensor&, const Tensor&, int64_t, bool) {
          const double states = static_cast<double>(log_probs.size(0) * log_probs.size(1) * (2 * targets.size(1) + 1));
          return Cost{8 * states, states * static_cast<double>(size_of(statistic_dtype(log_probs.dtype())) +
                                                               size_of(log_probs.dtype()))};
        },
    .samples =
        [](Samples& s) {
          Example e = example(s);
          s.add(e.log_probs, e.targets, e.input_lengths, e.target_lengths).not_differentiable();
          s.add(s.uniform({7, 2, 6}, -3, -0.2), integers({0, 1, 4, 4, 4, 4}, {2, 3}), integers({7, 5}, {2}),
                integers({3, 3}, {2}), 5)
              .not_differentiable()
              .named("another blank, repeated labels");
          s.add(e.log_probs, e.targets, integers({5, 1, 0}, {3}), e.target_lengths, 0, true)
              .not_differentiable()
              .named("zero_infinity, no steps");
          s.add(e.log_probs, integers({}, {3, 0}), e.input_lengths, integers({0, 0, 0}, {3}))
              .not_differentiable()
              .named("no labels");
          invalid_samples(s);
        },
    .reference =
        [](const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
           int64_t blank, bool zero_infinity) {
          // Probabilities themselves, which these few steps do not make too small.
          const int64_t steps = log_probs.size(0), batch = log_probs.size(1), classes = log_probs.size(2),
                        width = 2 * targets.size(1) + 1;
          const std::vector<double> x = log_probs.to_vector<double>();
          const std::vector<int64_t> label = targets.to_vector<int64_t>(), inputs = input_lengths.to_vector<int64_t>(),
                                     lengths = target_lengths.to_vector<int64_t>();
          std::vector<double> loss, alpha(static_cast<size_t>(batch * steps * width));
          for (int64_t n = 0; n < batch; ++n) {
            const int64_t states = 2 * lengths[n] + 1;
            const auto class_of = [&](int64_t s) { return s % 2 == 0 ? blank : label[n * targets.size(1) + s / 2]; };
            std::vector<double> now(static_cast<size_t>(states));
            double total = lengths[n] == 0 ? 1 : 0;
            for (int64_t t = 0; t < inputs[n]; ++t) {
              const std::vector<double> before = now;
              for (int64_t s = 0; s < states; ++s) {
                double sum = t == 0 && s <= 1 ? 1 : 0;
                for (int64_t from = std::max<int64_t>(0, s - 2); t > 0 && from <= s; ++from)
                  if (from > s - 2 || (s % 2 == 1 && class_of(s) != class_of(from))) sum += before[from];
                now[s] = sum * std::exp(x[(t * batch + n) * classes + class_of(s)]);
                alpha[(n * steps + t) * width + s] = now[s];
              }
              total = now[states - 1] + (states > 1 ? now[states - 2] : 0);
            }
            loss.push_back(total == 0 && zero_infinity ? 0 : -std::log(total));
          }
          for (double& v : alpha) v = std::log(v);
          return Pair(from_span<double>(loss, {batch}), from_span<double>(alpha, {batch, steps, width}));
        },
}};

Pair forward_of(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, bool zero_infinity) {
  return ctc_forward_op(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
}

// Targets one after the other as rows of [N, longest].
Tensor padded_targets(const Tensor& targets, const Tensor& target_lengths) {
  constexpr std::string_view op = "ctc_loss";
  if (targets.device().is_meta()) return empty(like(targets).with_shape({target_lengths.size(0), targets.numel()}));
  const std::vector<int64_t> lengths = target_lengths.to_vector<int64_t>();
  const int64_t batch = target_lengths.size(0);
  int64_t longest = 0, total = 0;
  for (int64_t v : lengths) {
    check(v >= 0, op, "target_lengths must not be negative, got ", v);
    check<ShapeError>(v <= targets.numel() - total, op, "targets is ", targets,
                      ", but the target_lengths add up to more");
    longest = std::max(longest, v);
    total += v;
  }
  check<ShapeError>(total == targets.numel(), op, "targets is ", targets, ", but the target_lengths add up to ", total);
  std::vector<int64_t> at(static_cast<size_t>(batch * longest));
  int64_t first = 0;
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t i = 0; i < lengths[n]; ++i) at[n * longest + i] = first + i;
    first += lengths[n];
  }
  if (longest == 0) return zeros({batch, 0}, DType::i64).to(targets.device());
  return index_select(targets, 0, from_span<int64_t>(at, {batch * longest}).to(targets.device()))
      .reshape({batch, longest});
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&, bool)>
    ctc_loss_op{{
        .schema = "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int "
                  "blank=0, str reduction=\"mean\", bool zero_infinity=false) -> Tensor",
        .doc = "Connectionist temporal classification (Graves et al., 2006): -log of the probability that log_probs "
               "[T, N, C], the outputs of log_softmax at each step, spell out the labels, summed over all ways to "
               "repeat labels and to put blanks between them. targets hold N sequences of integer classes other than "
               "the blank: [N, S], of which the first target_lengths count, or one after the other in one dimension "
               "(the lengths are then read on the host). input_lengths [N] say how many of the T steps count. Without "
               "N: log_probs [T, C], targets [S], lengths of one element. reduction is mean (of the losses over their "
               "target lengths), sum or none. Labels that need more steps than there are have the loss inf and the "
               "gradient NaN; zero_infinity makes both 0. The loss is f32 (f64 for f64). The gradient is that of the "
               "formula as it stands: PyTorch's assumes that log_softmax comes before, and adds exp(log_probs). "
               "ValueError for lengths out of range, IndexError for labels that are no class; on CUDA the loss is NaN.",
        .example = "Tensor x = log_softmax(zeros({4, 1, 3}), -1); "
                   "Tensor loss = ctc_loss(x, ones({1, 1}, DType::i64), full({1}, 4, DType::i64), "
                   "ones({1}, DType::i64)); "
                   "assert(std::abs(loss.item() + std::log(10.0 / 81)) < 1e-6);",
        .composed =
            [](const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
               const Tensor& target_lengths, int64_t blank, const std::string& reduction, bool zero_infinity) {
              constexpr std::string_view op = "ctc_loss";
              const Reduction r = parse_reduction(reduction, op);
              check<ShapeError>(log_probs.dim() == 3 || log_probs.dim() == 2, op, "log_probs is ", log_probs,
                                ", wanted [T, N, C] or [T, C]");
              for (const Tensor& t : {targets, input_lengths, target_lengths})
                check<DTypeError>(!is_floating(t.dtype()), op, "needs integer targets and lengths, got ", t);
              const bool single = log_probs.dim() == 2;
              const auto lengths = [&](const Tensor& t) {
                check<ShapeError>(t.dim() == 1 || (single && t.dim() == 0), op, "lengths are ", t, ", wanted [N]");
                return t.to(DType::i64).reshape({t.numel()});
              };
              const Tensor x = single ? unsqueeze(log_probs, 1) : log_probs, count = lengths(target_lengths),
                           steps = lengths(input_lengths);
              Tensor labels = targets.to(DType::i64);
              if (single && labels.dim() == 1) labels = unsqueeze(labels, 0);
              if (labels.dim() == 1) labels = padded_targets(labels, count);
              Tensor loss = std::get<0>(ctc_forward_op(x, labels, steps, count, blank, zero_infinity));
              if (r == Reduction::mean) return mean(loss / clamp_min(count, 1).to(loss.dtype()));
              if (r == Reduction::sum) return sum(loss);
              return single ? squeeze(loss, 0) : loss;
            },
        .autocast = Autocast::full,
        .samples =
            [](Samples& s) {
              const Example e = example(s);
              s.add(e.log_probs, e.targets, e.input_lengths, e.target_lengths);
              s.add(e.log_probs, integers({1, 2, 1, 3, 3}, {5}), e.input_lengths, e.target_lengths, 0, "sum")
                  .named("targets one after the other");
              s.add(e.log_probs, e.targets, integers({5, 2, 0}, {3}), e.target_lengths, 0, "none", true)
                  .named("none, zero_infinity");
              s.add(transpose(s.uniform({2, 6, 5}, -3, -0.2), 0, 1), integers({0, 0, 3, 1, 2, 7}, {2, 3}),
                    integers({6, 5}, {2}), integers({3, 2}, {2}), 4, "none")
                  .named("another blank, strided");
              s.add(s.uniform({4, 3}, -3, -0.2), integers({1, 2}, {2}), integers({4}, {1}), integers({2}, {1}))
                  .named("no batch");
              invalid_samples(s);
              s.invalid<ValueError>("reduction", e.log_probs, e.targets, e.input_lengths, e.target_lengths, 0,
                                    "median");
              s.invalid<ShapeError>("add up", e.log_probs, integers({1, 2}, {2}), e.input_lengths, e.target_lengths);
              s.invalid<ShapeError>("add up", e.log_probs, integers({1, 2}, {2}), e.input_lengths,
                                    integers({INT64_MAX, INT64_MAX, 4}, {3}));
              if (s.benchmarking()) {
                const int64_t steps = 500, batch = 32, labels = 100, classes = 64;
                std::vector<int64_t> target;
                for (int64_t i = 0; i < batch * labels; ++i) target.push_back(1 + i * 7919 % (classes - 1));
                s.bench(s.uniform({steps, batch, classes}, -6, -2), integers(target, {batch, labels}),
                        full({batch}, steps, DType::i64), full({batch}, labels, DType::i64));
              }
            },
        .reference = reference_loss,
    }};

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, const std::string& reduction, bool zero_infinity) {
  return ctc_loss_op(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity);
}

}  // namespace strata
