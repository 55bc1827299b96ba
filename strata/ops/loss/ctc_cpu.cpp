#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/loss/ctc_kernel.h"
#include "strata/ops/vec/scratch.h"

namespace strata {
namespace {

template <class R>
constexpr R kNone = -std::numeric_limits<R>::infinity();

template <class R>
R log_sum(R a, R b) {
  const R top = std::max(a, b);
  return top == kNone<R> ? top : top + std::log1p(std::exp(std::min(a, b) - top));
}
template <class R>
R log_sum(R a, R b, R c) {
  const R top = std::max(std::max(a, b), c);
  return top == kNone<R> ? top : top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

// One sequence of the batch.
template <class T>
struct Sequence {
  using R = compute_t<T>;
  int64_t steps, labels, states = 0, blank;
  const T* log_probs;
  int64_t stride;
  const int64_t* target;
  R* alpha;  // rows of `width`
  int64_t width;

  Sequence(const CtcCall& c, int64_t n)
      : steps(c.input_lengths[n]),
        labels(c.target_lengths[n]),
        blank(c.blank),
        log_probs(static_cast<const T*>(c.log_probs) + n * c.batch_stride),
        stride(c.step_stride),
        target(c.targets + n * c.labels),
        alpha(static_cast<R*>(c.alpha) + n * c.steps * c.states()),
        width(c.states()) {
    constexpr std::string_view op = "ctc_loss";
    check(steps >= 0 && steps <= c.steps, op, "input_lengths[", n, "] is ", steps, ", must be 0 to ", c.steps);
    check(labels >= 0 && labels <= c.labels, op, "target_lengths[", n, "] is ", labels, ", must be 0 to ", c.labels);
    states = 2 * labels + 1;
    for (int64_t i = 0; i < labels; ++i)
      check<IndexError>(target[i] >= 0 && target[i] < c.classes && target[i] != blank, op, "label ", target[i],
                        " at position ", i, " of sequence ", n, " is not one of the ", c.classes,
                        " classes other than the blank, ", blank);
  }
  int64_t label(int64_t s) const { return s % 2 == 0 ? blank : target[s / 2]; }
  // Whether a path may go from state s - 2 to state s.
  bool skips(int64_t s) const { return s % 2 == 1 && s >= 3 && target[s / 2] != target[s / 2 - 1]; }
  R emitted(int64_t t, int64_t s) const { return static_cast<R>(log_probs[t * stride + label(s)]); }
  // The logarithm of the probability of the labels, -inf where there is no path.
  R total() const {
    if (steps == 0) return labels == 0 ? R(0) : kNone<R>;
    const R* last = alpha + (steps - 1) * width;
    return states == 1 ? last[0] : log_sum(last[states - 1], last[states - 2]);
  }
};

template <class T>
void forward(const CtcCall& c, int64_t n) {
  using R = compute_t<T>;
  const Sequence<T> q(c, n);
  std::fill_n(q.alpha, c.steps * q.width, kNone<R>);
  for (int64_t t = 0; t < q.steps; ++t) {
    R* now = q.alpha + t * q.width;
    if (t == 0) {
      for (int64_t s = 0; s < std::min<int64_t>(2, q.states); ++s) now[s] = q.emitted(0, s);
      continue;
    }
    const R* before = now - q.width;
    // t steps lead no further.
    const int64_t reached = std::min(q.states, 2 * t + 2);
    for (int64_t s = 0; s < reached; ++s)
      now[s] = log_sum(before[s], s >= 1 ? before[s - 1] : kNone<R>, q.skips(s) ? before[s - 2] : kNone<R>) +
               q.emitted(t, s);
  }
  const R total = q.total();
  static_cast<R*>(c.loss)[n] = c.zero_infinity && total == kNone<R> ? R(0) : -total;
}

template <class T>
void backward(const CtcCall& c, int64_t n) {
  using R = compute_t<T>;
  const Sequence<T> q(c, n);
  const R total = q.total(), g = static_cast<const R*>(c.grad_loss)[n];
  const bool lost = total == kNone<R> && q.steps > 0;
  const R fill = lost && !c.zero_infinity ? std::numeric_limits<R>::quiet_NaN() : R(0);
  T* grad = static_cast<T*>(c.grad) + n * c.classes;
  const int64_t row = c.batch * c.classes;
  for (int64_t t = 0; t < c.steps; ++t) std::fill_n(grad + t * row, c.classes, T(t < q.steps ? fill : R(0)));
  if (lost) return;

  ScratchFrame frame;
  R *beta = frame.take<R>(q.states + 2), *sums = frame.take<R>(q.labels + 1);
  int64_t* first = frame.take<int64_t>(q.labels + 1);  // where a label comes first
  for (int64_t i = 0; i < q.labels; ++i) first[i] = std::find(q.target, q.target + i, q.target[i]) - q.target;
  // beta[s]: the rest of a path from state s, with its step; two states past the end keep the loop short.
  std::fill_n(beta, q.states + 2, kNone<R>);
  for (int64_t t = q.steps - 1; t >= 0; --t) {
    R blanks = 0;
    std::fill_n(sums, q.labels, R(0));
    for (int64_t s = 0; s < q.states; ++s) {
      // In place: state s of the next step is read for the last time.
      const R rest = t == q.steps - 1
                         ? (s + 2 >= q.states ? R(0) : kNone<R>)
                         : log_sum(beta[s], beta[s + 1], s + 2 < q.states && q.skips(s + 2) ? beta[s + 2] : kNone<R>);
      const R share = std::exp(q.alpha[t * q.width + s] + rest - total);
      (s % 2 == 0 ? blanks : sums[first[s / 2]]) += share;
      beta[s] = rest + q.emitted(t, s);
    }
    T* to = grad + t * row;
    to[q.blank] = T(-g * blanks);
    for (int64_t i = 0; i < q.labels; ++i)
      if (first[i] == i) to[q.target[i]] = T(-g * sums[i]);
  }
}

}  // namespace

void ctc_forward_cpu(const CtcCall& c) {
  dispatch_floats(c.dtype, "ctc_loss", [&]<class T>() {
    parallel_for(0, c.batch, 1, [&](int64_t from, int64_t to) {
      for (int64_t n = from; n < to; ++n) forward<T>(c, n);
    });
  });
}

void ctc_backward_cpu(const CtcCall& c) {
  dispatch_floats(c.dtype, "ctc_loss", [&]<class T>() {
    parallel_for(0, c.batch, 1, [&](int64_t from, int64_t to) {
      for (int64_t n = from; n < to; ++n) backward<T>(c, n);
    });
  });
}

}  // namespace strata
