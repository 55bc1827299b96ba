#include <algorithm>
#include <cstring>

#include "strata/core/dispatch.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/rnn/recurrence_kernel.h"
#include "strata/ops/rnn/step_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/rnn/recurrence_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::recurrent {
namespace {

// Sequences do not touch each other: a block of them goes through all steps on one thread. Blocks depend on the batch
// alone, so that the number of threads changes no bit; a batch of one block shares its products among the threads.
constexpr int64_t kRows = 16;

template <class F>
void for_blocks(int64_t batch, int64_t grain, F&& f) {
  const int64_t blocks = (batch + kRows - 1) / kRows;
  parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) f(b * kRows, std::min(kRows, batch - b * kRows));
  });
}

DType sum_dtype(DType t) {
  return t == DType::f64 ? t : DType::f32;
}

// Addresses within arrays of `size`-byte elements.
struct Bytes {
  int64_t size;
  const void* at(const void* p, int64_t i) const { return static_cast<const char*>(p) + i * size; }
  void* at(void* p, int64_t i) const { return static_cast<char*>(p) + i * size; }
};

// How many of the rows [row, row + n) have step t.
int64_t present(const RecurrenceCall& r, int64_t t, int64_t row, int64_t n) {
  return r.counts == nullptr ? n : std::clamp<int64_t>(r.counts[t] - row, 0, n);
}

// The row of from_x and of the gates that belongs to step t of sequence b.
int64_t row_at(const RecurrenceCall& r, int64_t t, int64_t b) {
  return (r.counts == nullptr ? t * r.batch : r.firsts[t]) + b;
}

// [H, G H]: the product with h reads its rows as they lie.
void transpose_weight(const RecurrenceCall& r, void* to) {
  const int64_t rows = gates(r.cell) * r.hidden, cols = r.hidden;
  dispatch_bytes(r.t, [&]<class E>() {
    const E* from = static_cast<const E*>(r.w);
    constexpr int64_t kTile = 16;
    parallel_for(0, (cols + kTile - 1) / kTile, 4, [&](int64_t begin, int64_t end) {
      for (int64_t j0 = begin * kTile; j0 < std::min(cols, end * kTile); j0 += kTile)
        for (int64_t i0 = 0; i0 < rows; i0 += kTile)
          for (int64_t j = j0; j < std::min(cols, j0 + kTile); ++j)
            for (int64_t i = i0; i < std::min(rows, i0 + kTile); ++i)
              static_cast<E*>(to)[j * rows + i] = from[i * cols + j];
    });
  });
}

// The recurrent weight as the second factor of every step, packed once where there is a kernel for that. One block of
// sequences shares its products among the threads, for which a packed factor is not made.
class Factor {
 public:
  /// B [k, n] with these strides in elements. `frame` keeps what is packed.
  Factor(DType t, int64_t batch, int64_t k, int64_t n, const void* b, int64_t row, int64_t col, ScratchFrame& frame) {
    g_.in = g_.bias_dtype = t;
    g_.out = sum_dtype(t);
    g_.n = n, g_.k = k, g_.b = b;
    g_.a_row = k, g_.a_col = 1, g_.b_row = row, g_.b_col = col, g_.c_row = n;
    g_.m = kRows;
    if (t != DType::f32 || batch <= kRows || n < 64 || !cpu::detail::gemm_packed(g_, true)) return;
    packed_ = frame.take<float>(cpu::detail::packed_b_size(k, n));
    cpu::detail::pack_b(static_cast<const float*>(b), row, col, k, n, packed_);
  }
  bool packed() const { return packed_ != nullptr; }
  /// C [m, n] = A [m, k] B (+ C) (+ bias), C in f32 (f64).
  void multiply(int64_t m, const void* a, void* c, double beta, const void* bias) const {
    Gemm g = g_;
    g.m = m, g.a = a, g.c = c, g.beta = beta, g.bias = bias;
    if (packed_ != nullptr) {
      g.b = packed_;
      if (cpu::detail::gemm_packed(g)) return;
      g.b = g_.b;
    }
    cpu::gemm(g);
  }

 private:
  Gemm g_;
  float* packed_ = nullptr;
};

// Between elements of dtype t and sums, n of them.
void widen(DType t, const void* from, void* sums, int64_t n) {
  dispatch_floats(t, "recurrence", [&]<class T>() {
    for (int64_t i = 0; i < n; ++i)
      static_cast<compute_t<T>*>(sums)[i] = static_cast<compute_t<T>>(static_cast<const T*>(from)[i]);
  });
}
void narrow(DType t, const void* sums, void* to, int64_t n) {
  dispatch_floats(t, "recurrence", [&]<class T>() {
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(to)[i] = T(static_cast<const compute_t<T>*>(sums)[i]);
  });
}
void add_to(DType t, const void* from, void* sums, int64_t n) {
  dispatch_floats(t, "recurrence", [&]<class T>() {
    for (int64_t i = 0; i < n; ++i)
      static_cast<compute_t<T>*>(sums)[i] += static_cast<compute_t<T>>(static_cast<const T*>(from)[i]);
  });
}

}  // namespace

void recurrence_cpu(const RecurrenceCall& r) {
  const int64_t H = r.hidden, width = gates(r.cell) * H, kept = kept_gates(r.cell) * H;
  if (r.steps * r.batch * H == 0) return;
  const Bytes e{size_of(r.t)}, wide{size_of(sum_dtype(r.t))};
  ScratchFrame frame;
  Factor weight(r.t, r.batch, H, width, r.w, 1, H, frame);
  if (!weight.packed()) {
    void* const w = frame.take<char>(H * width * e.size);
    transpose_weight(r, w);
    weight = Factor(r.t, r.batch, H, width, w, width, 1, frame);
  }
  const auto step_forward = STRATA_VEC_CALL(step_forward);
  for_blocks(r.batch, 1, [&](int64_t row, int64_t n) {
    ScratchFrame own;
    void* const sums = own.take<char>(n * width * wide.size);
    void* const carry = own.take<char>(n * H * wide.size);
    const void *h = e.at(r.h, row * H), *c = r.c == nullptr ? nullptr : e.at(r.c, row * H);
    if (c != nullptr) widen(r.t, c, carry, n * H);
    for (int64_t i = 0; i < r.steps; ++i) {
      const int64_t t = r.reverse ? r.steps - 1 - i : i, at = t * r.batch + row, m = present(r, t, row, n);
      const int64_t own_row = row_at(r, t, row);
      void* const y = e.at(r.y, at * H);
      void* const states = c == nullptr ? nullptr : e.at(r.states, at * H);
      void* const gates = r.gates == nullptr || kept == 0 ? nullptr : e.at(r.gates, own_row * kept);
      if (m > 0) {
        weight.multiply(m, h, sums, 0, r.bias);
        step_forward(r.t, {.cell = r.cell,
                           .n = m,
                           .hidden = H,
                           .from_x = e.at(r.from_x, own_row * width),
                           .sums = sums,
                           .carry = carry,
                           .h = h,
                           .y = y,
                           .states = states,
                           .gates = gates});
      }
      if (m < n) {
        const auto rest = static_cast<size_t>((n - m) * H * e.size);
        std::memcpy(e.at(y, m * H), e.at(h, m * H), rest);
        if (c != nullptr) std::memcpy(e.at(states, m * H), e.at(c, m * H), rest);
      }
      h = y, c = states;
    }
  });
}

void recurrence_backward_cpu(const RecurrenceBackwardCall& r) {
  const RecurrenceCall& f = r.forward;
  const int64_t H = f.hidden, width = gates(f.cell) * H, kept = kept_gates(f.cell) * H;
  if (f.batch * H == 0) return;
  const Bytes e{size_of(f.t)}, wide{size_of(sum_dtype(f.t))};
  ScratchFrame frame;
  const Factor weight(f.t, f.batch, width, H, f.w, H, 1, frame);
  const auto step_backward = STRATA_VEC_CALL(step_backward);
  for_blocks(f.batch, 1, [&](int64_t row, int64_t n) {
    ScratchFrame own;
    void* const gh = own.take<char>(n * H * wide.size);
    void* const carry = own.take<char>(n * H * wide.size);
    std::memset(gh, 0, static_cast<size_t>(n * H * wide.size));
    std::memset(carry, 0, static_cast<size_t>(n * H * wide.size));
    for (int64_t i = f.steps; i-- > 0;) {
      const int64_t t = f.reverse ? f.steps - 1 - i : i, at = t * f.batch + row, m = present(f, t, row, n);
      const int64_t before = (f.reverse ? t + 1 : t - 1) * f.batch + row;
      const int64_t own_row = row_at(f, t, row);
      const bool first = i == 0;
      void* const gx = e.at(r.gfrom_x, own_row * width);
      void* const gfrom_h = r.gfrom_h == nullptr ? nullptr : e.at(r.gfrom_h, own_row * width);
      const void* const gy = e.at(r.gy, at * H);
      const void* const gstates = r.gstates == nullptr ? nullptr : e.at(r.gstates, at * H);
      if (m > 0) {
        step_backward(f.t, {.cell = f.cell,
                            .n = m,
                            .hidden = H,
                            .sums = gh,
                            .carry = carry,
                            .h = first ? e.at(f.h, row * H) : e.at(static_cast<const void*>(f.y), before * H),
                            .c = f.c == nullptr ? nullptr
                                 : first        ? e.at(f.c, row * H)
                                                : e.at(static_cast<const void*>(f.states), before * H),
                            .y = e.at(f.y, at * H),
                            .states = f.c == nullptr ? nullptr : e.at(f.states, at * H),
                            .gates = kept == 0 ? f.gates : e.at(f.gates, own_row * kept),
                            .gy = gy,
                            .gstates = gstates,
                            .gfrom_x = gx,
                            .gfrom_h = gfrom_h});
        const bool gru = f.cell == Cell::gru;
        weight.multiply(m, gru ? gfrom_h : gx, gh, gru ? 1 : 0, nullptr);
      }
      if (m < n) {  // the state went through as it was
        add_to(f.t, e.at(gy, m * H), wide.at(gh, m * H), (n - m) * H);
        if (gstates != nullptr) add_to(f.t, e.at(gstates, m * H), wide.at(carry, m * H), (n - m) * H);
      }
    }
    narrow(f.t, gh, e.at(r.gh, row * H), n * H);
    if (r.gc != nullptr) narrow(f.t, carry, e.at(r.gc, row * H), n * H);
  });
}

// ---- one step, whose products others computed ----------------------------------------------------------------------

namespace {
// Blocks of a step's sequences below which a second thread does not pay.
int64_t step_grain(int64_t hidden) {
  constexpr int64_t kUnits = 4096;
  return std::max<int64_t>(1, kUnits / (kRows * hidden));
}
}  // namespace

void step_forward_cpu(const StepCall& s) {
  const int64_t H = s.hidden, width = gates(s.cell) * H, kept = 4 * H;
  const DType sum = sum_dtype(s.t);
  const bool lstm = s.cell == Cell::lstm, wide = s.own != s.t;  // wide: all of it in f32
  const Bytes e{size_of(s.t)}, own{size_of(s.own)}, sums{size_of(sum)};
  const auto step = STRATA_VEC_CALL(step_forward);
  for_blocks(s.n, step_grain(H), [&](int64_t row, int64_t n) {
    ScratchFrame frame;
    const auto widened = [&](const void* from, int64_t count) {
      void* const to = frame.take<char>(count * sums.size);
      widen(s.t, from, to, count);
      return to;
    };
    const void* const x = e.at(s.from_x, row * width);
    const void* const before = own.at(s.before, row * H);
    void* const c = lstm ? own.at(s.c, row * H) : nullptr;
    void* const carry = s.own == sum ? c : frame.take<char>(n * H * sums.size);
    if (lstm) widen(s.own, before, carry, n * H);
    void* const gates = s.gates == nullptr ? nullptr : e.at(s.gates, row * kept);
    void* const wide_gates = wide && gates != nullptr ? frame.take<char>(n * kept * sums.size) : gates;
    step(wide ? sum : s.t, {.cell = s.cell,
                            .n = n,
                            .hidden = H,
                            .from_x = wide ? widened(x, n * width) : x,
                            .sums = widened(e.at(s.from_h, row * width), n * width),
                            .carry = carry,
                            .h = before,
                            .y = own.at(s.h, row * H),
                            .states = c,
                            .gates = wide_gates});
    if (wide && gates != nullptr) narrow(s.t, wide_gates, gates, n * kept);
  });
}

void step_backward_cpu(const StepBackwardCall& s) {
  const int64_t H = s.hidden, width = gates(s.cell) * H, kept = 4 * H;
  const DType sum = sum_dtype(s.t);
  const bool lstm = s.cell == Cell::lstm, wide = s.own != s.t;
  const Bytes e{size_of(s.t)}, own{size_of(s.own)}, sums{size_of(sum)};
  const auto step = STRATA_VEC_CALL(step_backward);
  for_blocks(s.n, step_grain(H), [&](int64_t row, int64_t n) {
    ScratchFrame frame;
    const auto zeros = [&](int64_t count) {
      void* const to = frame.take<char>(count * sums.size);
      std::memset(to, 0, static_cast<size_t>(count * sums.size));
      return to;
    };
    void* const of_h = zeros(n * H);
    void* const carry = zeros(n * H);
    if (s.gc != nullptr) widen(s.own, own.at(s.gc, row * H), carry, n * H);
    const void* gates = e.at(s.gates, row * kept);
    if (wide) {
      void* const to = frame.take<char>(n * kept * sums.size);
      widen(s.t, gates, to, n * kept);
      gates = to;
    }
    void* const gfrom_x = e.at(s.gfrom_x, row * width);
    void* const gfrom_h = s.gfrom_h == nullptr ? nullptr : e.at(s.gfrom_h, row * width);
    void* const x = wide ? frame.take<char>(n * width * sums.size) : gfrom_x;
    void* const h = wide && gfrom_h != nullptr ? frame.take<char>(n * width * sums.size) : gfrom_h;
    const void* const before = own.at(s.before, row * H);
    const void* const gh = own.at(s.gh, row * H);
    step(wide ? sum : s.t, {.cell = s.cell,
                            .n = n,
                            .hidden = H,
                            .sums = of_h,
                            .carry = carry,
                            .h = before,
                            .c = before,
                            .y = const_cast<void*>(gh),  // read by no cell that comes here
                            .states = lstm ? const_cast<void*>(own.at(s.c, row * H)) : nullptr,
                            .gates = const_cast<void*>(gates),
                            .gy = gh,
                            .gstates = nullptr,
                            .gfrom_x = x,
                            .gfrom_h = h});
    narrow(s.own, lstm ? carry : of_h, own.at(s.gbefore, row * H), n * H);
    if (!wide) return;
    narrow(s.t, x, gfrom_x, n * width);
    if (gfrom_h != nullptr) narrow(s.t, h, gfrom_h, n * width);
  });
}

}  // namespace strata::recurrent
