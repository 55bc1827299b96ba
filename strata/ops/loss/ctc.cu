// CTC on a CUDA device: a block has a sequence and goes through its steps, a thread to a state; what remains of the
// gradient is a block for each step of each sequence. Nothing depends on the order in which threads run.

#include <algorithm>
#include <limits>

#include "strata/cuda/current.h"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/loss/ctc_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kMostThreads = 1024;  // longer sequences have several states a thread
constexpr int kAhead = 8;           // steps whose log-probabilities are on their way together
constexpr int kRowThreads = 128;

template <class C>
__device__ __forceinline__ C none() {
  return -std::numeric_limits<C>::infinity();
}
__device__ __forceinline__ float exp_of(float v) {
  return __expf(v);
}
__device__ __forceinline__ double exp_of(double v) {
  return exp(v);
}
__device__ __forceinline__ float log_of(float v) {
  return __logf(v);
}
__device__ __forceinline__ double log_of(double v) {
  return log(v);
}

// log(e^a + e^b + e^c)
template <class C>
__device__ __forceinline__ C log_sum(C a, C b, C c) {
  const C top = max(max(a, b), c), low = top == none<C>() ? C(0) : top;
  return low + log_of(exp_of(a - low) + exp_of(b - low) + exp_of(c - low));
}

// A sequence of the batch, its lengths brought into range.
template <class T>
struct Sequence {
  using C = compute_t<T>;
  int64_t steps, labels, states;
  const T* log_probs;
  const int64_t* target;
  bool valid;

  __device__ Sequence(const CtcCall& c, int64_t n)
      : steps(min(max(c.input_lengths[n], int64_t{0}), c.steps)),
        labels(min(max(c.target_lengths[n], int64_t{0}), c.labels)),
        states(2 * labels + 1),
        log_probs(static_cast<const T*>(c.log_probs) + n * c.batch_stride),
        target(c.targets + n * c.labels),
        valid(c.input_lengths[n] == steps && c.target_lengths[n] == labels) {}
  // The class of a state; 0 and not valid where there is none.
  __device__ int64_t label(const CtcCall& c, int64_t s) {
    if (s % 2 == 0) return c.blank;
    const int64_t v = target[s / 2];
    if (v >= 0 && v < c.classes && v != c.blank) return v;
    valid = false;
    return 0;
  }
  // From alpha: the logarithm of the probability of all labels.
  __device__ C total(const CtcCall& c, int64_t n) const {
    if (steps == 0) return labels == 0 ? C(0) : none<C>();
    const C* last = static_cast<const C*>(c.alpha) + (n * c.steps + steps - 1) * c.states();
    return states == 1 ? last[0] : log_sum(last[states - 1], last[states - 2], none<C>());
  }
};

// Alpha, or with Back the same of the sequence read backwards: what follows a state, without the state's own step.
// Both are [batch, steps, states]; Back leaves alone what is outside of a sequence, and writes to `next` where a label
// comes again (-1: not), with -2 added to those that came before.
template <class T, bool Back>
__global__ void __launch_bounds__(kMostThreads)
    recursion_kernel(CtcCall c, compute_t<T>* out, RangeCheck in_range, RangeCheck lengths) {
  using C = compute_t<T>;
  extern __shared__ char memory[];
  const int64_t n = blockIdx.x, width = c.states();
  Sequence<T> q(c, n);
  out += n * c.steps * width;
  const int threads = static_cast<int>(blockDim.x), lane = static_cast<int>(threadIdx.x);
  if constexpr (!Back) {
    if (lane == 0 && !q.valid)
      lengths.refuse(static_cast<double>(c.input_lengths[n] == q.steps ? c.target_lengths[n] : c.input_lengths[n]));
    for (int64_t i = lane; i < q.labels; i += threads) {
      q.valid = q.valid && in_range(q.target[i], c.classes);
      q.label(c, 2 * i + 1);
    }
    if (__syncthreads_or(!q.valid)) {
      for (int64_t i = lane; i < c.steps * width; i += threads) out[i] = std::numeric_limits<C>::quiet_NaN();
      if (lane == 0) static_cast<C*>(c.loss)[n] = std::numeric_limits<C>::quiet_NaN();
      return;
    }
    for (int64_t i = q.steps * width + lane; i < c.steps * width; i += threads) out[i] = none<C>();
  }
  // State k from the end that the recursion begins at.
  const auto state = [&](int64_t k) { return Back ? q.states - 1 - k : k; };
  const auto step = [&](int64_t t) { return Back ? q.steps - 1 - t : t; };
  const auto jumps = [&](int64_t k) {
    return k >= 3 && k % 2 == 1 && q.target[state(k) / 2] != q.target[state(k - 2) / 2];
  };

  if (width <= threads) {
    // Two rows in turn, with two states before the first. A thread without a state holds -inf.
    C* rows = reinterpret_cast<C*>(memory);
    const bool mine = lane < q.states;
    const int64_t s = mine ? state(lane) : lane;
    const T* from = q.log_probs + (mine ? q.label(c, s) : c.blank);
    const bool jump = mine && jumps(lane);
    const int stride = threads + 2;
    for (int i = lane; i < 2 * stride; i += threads) rows[i] = none<C>();
    C own = none<C>(), emitted[kAhead];
    __syncthreads();
    for (int64_t t0 = 0; t0 < q.steps; t0 += kAhead) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        emitted[u] = mine && t0 + u < q.steps ? C(widen(from[step(t0 + u) * c.step_stride])) : none<C>();
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int64_t t = t0 + u;
        if (t >= q.steps) break;
        const C* before = rows + (u % 2) * stride + 2 + lane;
        C* now = rows + (1 - u % 2) * stride + 2 + lane;
        C rest = t == 0 ? (lane <= 1 ? C(0) : none<C>()) : log_sum(own, before[-1], jump ? before[-2] : none<C>());
        own = rest + emitted[u];
        *now = own;
        if (lane < width && (!Back || mine)) out[step(t) * width + s] = Back ? rest : own;
        __syncthreads();
      }
    }
  } else {
    // Several states a thread; rows are read again from where they were written. Going back, what a state's next step
    // gave is what was written plus that step.
    const auto before = [&](int64_t t, int64_t k) -> C {
      const C v = out[step(t - 1) * width + state(k)];
      return Back ? v + C(widen(q.log_probs[step(t - 1) * c.step_stride + q.label(c, state(k))])) : v;
    };
    for (int64_t t = 0; t < q.steps; ++t) {
      for (int64_t k = lane; k < q.states; k += threads) {
        const C rest = t == 0 ? (k <= 1 ? C(0) : none<C>())
                              : log_sum(before(t, k), k >= 1 ? before(t, k - 1) : none<C>(),
                                        jumps(k) ? before(t, k - 2) : none<C>());
        const int64_t s = state(k);
        out[step(t) * width + s] = Back ? rest : rest + C(widen(q.log_probs[step(t) * c.step_stride + q.label(c, s)]));
      }
      if constexpr (!Back)
        for (int64_t k = q.states + lane; k < width; k += threads) out[t * width + k] = none<C>();
      __syncthreads();
    }
  }
  if constexpr (!Back) {
    if (lane == 0) {
      const C total = q.total(c, n);
      static_cast<C*>(c.loss)[n] = c.zero_infinity && total == none<C>() ? C(0) : -total;
    }
  }
}

// Where each label comes again, -1 if it does not; `first` is 1 where it comes for the first time.
__global__ void __launch_bounds__(kRowThreads) repeats_kernel(CtcCall c, int32_t* again, uint8_t* first) {
  const int64_t n = blockIdx.x, labels = min(max(c.target_lengths[n], int64_t{0}), c.labels);
  const int64_t* target = c.targets + n * c.labels;
  for (int64_t i = threadIdx.x; i < labels; i += kRowThreads) {
    const int64_t v = target[i];
    int64_t next = i + 1, before = i - 1;
    while (next < labels && target[next] != v) ++next;
    while (before >= 0 && target[before] != v) --before;
    again[n * c.labels + i] = next < labels ? static_cast<int32_t>(next) : -1;
    first[n * c.labels + i] = before < 0;
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    gradient_kernel(CtcCall c, const compute_t<T>* beta, const int32_t* again, const uint8_t* first) {
  using C = compute_t<T>;
  __shared__ C sums[kRowThreads / kWarp];
  const int64_t n = blockIdx.x % c.batch, t = blockIdx.x / c.batch, width = c.states();
  Sequence<T> q(c, n);
  T* row = static_cast<T*>(c.grad) + (t * c.batch + n) * c.classes;
  const C total = q.total(c, n);
  const bool past = t >= q.steps && q.valid, bad = total != total || (total == none<C>() && !c.zero_infinity);
  const T fill = narrow<T>(bad && !past ? std::numeric_limits<C>::quiet_NaN() : C(0));
  if (c.classes % kVec<T> == 0 && reinterpret_cast<uintptr_t>(c.grad) % 16 == 0) {
    Vec<T, kVec<T>> v;
#pragma unroll
    for (int k = 0; k < kVec<T>; ++k) v.v[k] = fill;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * kVec<T>; i < c.classes; i += kRowThreads * kVec<T>)
      store_vec(row + i, v);
  } else {
    for (int64_t i = threadIdx.x; i < c.classes; i += kRowThreads) row[i] = fill;
  }
  if (past || bad || total == none<C>()) return;
  const C g = static_cast<const C*>(c.grad_loss)[n];
  const C* before = static_cast<const C*>(c.alpha) + (n * c.steps + t) * width;
  const C* after = beta + (n * c.steps + t) * width;
  const auto share = [&](int64_t s) { return exp_of(before[s] + after[s] - total); };
  C blanks = 0;
  for (int64_t s = 2 * static_cast<int64_t>(threadIdx.x); s < q.states; s += 2 * kRowThreads) blanks += share(s);
  blanks = block_reduce<kRowThreads>(blanks, Sum(), sums);  // and the row is filled
  if (threadIdx.x == 0) row[c.blank] = narrow<T>(-g * blanks);
  for (int64_t i = threadIdx.x; i < q.labels; i += kRowThreads) {
    if (!first[n * c.labels + i]) continue;
    C sum = 0;
    for (int64_t j = i; j >= 0; j = again[n * c.labels + j]) sum += share(2 * j + 1);
    row[q.target[i]] = narrow<T>(-g * sum);
  }
}

template <class T, bool Back>
void launch_recursion(const CtcCall& c, void* out) {
  using C = compute_t<T>;
  const auto threads = static_cast<unsigned>(std::min<int64_t>((c.states() + kWarp - 1) / kWarp * kWarp, kMostThreads));
  recursion_kernel<T, Back><<<static_cast<unsigned>(c.batch), threads, 2 * (threads + 2) * sizeof(C), stream()>>>(
      c, static_cast<C*>(out), range_check(),
      value_check("lengths must not be negative, nor more than log_probs has steps and targets has labels"));
}

}  // namespace

void ctc_forward_cuda(const CtcCall& c) {
  if (c.batch == 0) return;
  dispatch_floats(c.dtype, "ctc_loss", [&]<class T>() { launch_recursion<T, false>(c, c.alpha); });
}

void ctc_backward_cuda(const CtcCall& c) {
  if (c.batch * c.steps == 0) return;
  const Device device = Device::cuda(current_device());
  const auto workspace = [&](int64_t bytes) {
    return empty({{std::max<int64_t>(1, bytes)}, DType::u8, device, std::nullopt});
  };
  const Tensor again = workspace(c.batch * c.labels * 4), first = workspace(c.batch * c.labels);
  dispatch_floats(c.dtype, "ctc_loss", [&]<class T>() {
    using C = compute_t<T>;
    const Tensor beta = workspace(c.batch * c.steps * c.states() * static_cast<int64_t>(sizeof(C)));
    launch_recursion<T, true>(c, beta.raw_data());
    if (c.labels > 0)
      repeats_kernel<<<static_cast<unsigned>(c.batch), kRowThreads, 0, stream()>>>(
          c, static_cast<int32_t*>(again.raw_data()), static_cast<uint8_t*>(first.raw_data()));
    gradient_kernel<T><<<static_cast<unsigned>(c.batch * c.steps), kRowThreads, 0, stream()>>>(
        c, static_cast<const C*>(beta.raw_data()), static_cast<const int32_t*>(again.raw_data()),
        static_cast<const uint8_t*>(first.raw_data()));
  });
}

}  // namespace strata
