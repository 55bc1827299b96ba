#pragma once
// Heads of sizes that the tensor-core kernels do not take, or whose rows 16-byte copies cannot read, in rows of the
// next size by 8: zeros in what is added to queries and keys leave scores as they are, and those of values give columns
// that nobody reads. The scale, masks and all other options stay the call's.

#include <algorithm>
#include <cstdint>

#include "strata/ops/attention/attention.cuh"

namespace strata::attention_cuda {

/// Rows of one operand, [batch, heads, time] of them, that go from one place to another: the first to_size numbers of
/// each, zeros where there are fewer.
struct HeadCopy {
  AttentionView from, to;
  int64_t heads = 0, time = 0, from_size = 0, to_size = 0;
  int64_t end = 0;  // rows of this and of the copies before
};
struct HeadCopies {
  int count = 0;
  HeadCopy of[5];

  void add(HeadCopy c, int64_t batch) {
    c.end = rows() + batch * c.heads * c.time;
    of[count++] = c;
  }
  int64_t rows() const { return count == 0 ? 0 : of[count - 1].end; }
};

/// A call on padded rows, with what must be copied before and after it, and how many numbers of the call's dtype the
/// padded rows take.
struct PaddedHeads {
  AttentionCall call;
  HeadCopies before, after;
  int64_t numbers = 0;
};

/// The size by 8 that queries, keys and values get.
inline int64_t padded_size(const AttentionCall& c) {
  return (std::max(c.d, c.dv) + 7) / 8 * 8;
}

/// The padded call, whose rows lie in `memory` of PaddedHeads::numbers numbers, at a multiple of 16 bytes; null to
/// find out what it would be. Operands that a call does not have stay null.
inline PaddedHeads pad_heads(const AttentionCall& c, bool backward, void* memory) {
  PaddedHeads p;
  p.call = c;
  const int64_t size = padded_size(c);
  p.call.d = p.call.dv = size;
  const int64_t bytes = static_cast<int64_t>(size_of(c.dtype));
  const auto place = [&](int64_t heads, int64_t time) {
    AttentionView padded{nullptr, heads * time * size, time * size, size, 1};
    if (memory != nullptr) padded.data = static_cast<char*>(memory) + p.numbers * bytes;
    p.numbers += c.batch * heads * time * size;
    return padded;
  };
  const auto read = [&](AttentionView& v, int64_t heads, int64_t time, int64_t of) {
    if (v.data == nullptr) return void(v = {});
    const AttentionView padded = place(heads, time);
    p.before.add({v, padded, heads, time, of, size}, c.batch);
    v = padded;
  };
  const auto written = [&](AttentionView& v, int64_t heads, int64_t time, int64_t of) {
    if (v.data == nullptr) return void(v = {});
    const AttentionView padded = place(heads, time);
    p.after.add({padded, v, heads, time, size, of}, c.batch);
    v = padded;
  };
  AttentionCall& to = p.call;
  read(to.q, c.heads, c.tq, c.d), read(to.k, c.kv_heads, c.tk, c.d), read(to.v, c.kv_heads, c.tk, c.dv);
  if (!backward) {
    written(to.out, c.heads, c.tq, c.dv);
    return p;
  }
  read(to.out, c.heads, c.tq, c.dv), read(to.grad_out, c.heads, c.tq, c.dv);
  written(to.grad_q, c.heads, c.tq, c.d), written(to.grad_k, c.kv_heads, c.tk, c.d);
  written(to.grad_v, c.kv_heads, c.tk, c.dv);
  return p;
}

namespace {  // a program of tests has the kernel for the processor and for the card
constexpr int kCopyThreads = 256;
/// Threads that share a row: they read 32 bytes of it side by side.
template <class Word>
inline constexpr int kCopyLanes = 32 / static_cast<int>(sizeof(Word));

/// A row for every kCopyLanes threads.
template <class Word>
__global__ void __launch_bounds__(kCopyThreads) copy_heads_kernel(const __grid_constant__ HeadCopies all) {
  constexpr int kLanes = kCopyLanes<Word>;
  int64_t row = static_cast<int64_t>(blockIdx.x) * (kCopyThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
  int i = 0;
  while (i < all.count && row >= all.of[i].end) ++i;
  if (i == all.count) return;
  if (i > 0) row -= all.of[i - 1].end;
  const HeadCopy& c = all.of[i];
  const int64_t t = row % c.time, h = row / c.time % c.heads, b = row / c.time / c.heads;
  const Word* const from = head_of<const Word>(c.from, b, h) + t * c.from.time;
  Word* const to = head_of<Word>(c.to, b, h) + t * c.to.time;
#pragma unroll 4
  for (int d = static_cast<int>(threadIdx.x) % kLanes; d < c.to_size; d += kLanes)
    to[d] = d < c.from_size ? from[d] : Word(0);
}
}  // namespace

#ifndef STRATA_TILE_EMULATION
/// Whether a call that the tensor-core kernels do not take as it lies should be padded for them: they would take it
/// then, and there is more to compute than the copies cost.
bool pads_heads(const AttentionCall& c, bool backward);

/// Copies rows on the stream.
void copy_heads(const HeadCopies& copies, DType dtype);

/// Copies operands into padded rows, calls f(the padded call), copies its results out of them and returns what f
/// returned. The rows' memory is taken for the call.
template <class F>
auto with_padded_heads(const AttentionCall& c, bool backward, const Tensor& like_this, F&& f) {
  const int64_t numbers = pad_heads(c, backward, nullptr).numbers;
  const Tensor rows = empty({Shape{numbers}, c.dtype, like_this.device(), std::nullopt});
  const PaddedHeads p = pad_heads(c, backward, rows.raw_data());
  copy_heads(p.before, c.dtype);
  auto result = f(p.call);
  copy_heads(p.after, c.dtype);
  return result;
}
#endif

}  // namespace strata::attention_cuda
