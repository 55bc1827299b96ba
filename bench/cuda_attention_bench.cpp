// Attention on a CUDA device, forward and backward, called as a program calls it: device time between CUDA events and
// TFLOP/s of the pairs that are seen (a causal mask leaves half), 4 D flop a pair and query head forward, 10 D
// backward. Inputs rotate so that none is still in the L2 cache when its turn comes.
//     cuda_attention_bench [filter] [--lines FILE]
// FILE takes "name <tab> flop <tab> milliseconds" lines, which bench/pytorch/cuda_attention.py sets beside the times of
// PyTorch's kernels; the shape stands in the name.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/device_time.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/op_base.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/random/random.h"
#include "strata/ops/view/view.h"

namespace {
using namespace strata;

const Rows* g_rows = nullptr;

template <class F>
void row(const std::string& name, double flop, int64_t sets, F&& f) {
  if (!g_rows->wanted(name)) return;
  const double ms = device_ms(sets, f);
  std::printf("%-48s %9.4f ms  %7.1f TFLOP/s\n", name.c_str(), ms, flop / ms * 1e-9);
  std::fflush(stdout);
  g_rows->line(name, flop, ms);
}

struct Case {
  int64_t d, time, batch, heads, kv_heads;
  bool causal;
};
constexpr Case kCases[] = {
    {64, 1024, 8, 12, 12, true},  {64, 1024, 32, 12, 12, true},  {64, 2048, 4, 32, 8, true},
    {64, 4096, 4, 16, 16, false}, {128, 4096, 4, 16, 16, false}, {128, 4096, 4, 16, 16, true},
    {80, 4096, 4, 16, 16, false}, {80, 4096, 4, 16, 16, true},   {96, 4096, 4, 16, 16, false},
    {96, 4096, 4, 16, 16, true},  {256, 4096, 4, 8, 8, false},   {256, 4096, 4, 8, 8, true},
    {128, 8192, 2, 32, 8, true},  {128, 16384, 1, 32, 8, true},
};

std::vector<Value> call(const char* op, const std::vector<Value>& args) {
  const OpBase* record = OpBase::find(op);
  check(record != nullptr, op, "there is no such op");
  return record->call_boxed(args);
}

// [B, T, H, D] seen as [B, H, T, D], as models have it.
std::vector<Tensor> several(int64_t sets, int64_t batch, int64_t time, int64_t heads, int64_t d) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < sets; ++i)
    all.push_back(randn({batch, time, heads, d}, DType::f32).to(DType::bf16).transpose(1, 2));
  return all;
}

void bench(const Case& c) {
  const std::string shape =
      cat("D", c.d, " S", c.time, " B", c.batch, " H", c.heads, "/", c.kv_heads, c.causal ? " causal" : "");
  const int64_t bytes = 2 * c.batch * c.time * c.d * (c.heads + 2 * c.kv_heads);
  const int64_t sets = std::clamp<int64_t>(kRotate / bytes, 2, 16);
  const auto q = several(sets, c.batch, c.time, c.heads, c.d), k = several(sets, c.batch, c.time, c.kv_heads, c.d),
             v = several(sets, c.batch, c.time, c.kv_heads, c.d), g = several(sets, c.batch, c.time, c.heads, c.d);
  const double pairs =
                   static_cast<double>(c.batch * c.heads * c.time) * static_cast<double>(c.time) * (c.causal ? 0.5 : 1),
               flop = 4 * static_cast<double>(c.d) * pairs;
  AttentionOptions options;
  options.is_causal = c.causal;
  row("attention " + shape, flop, sets, [&](int64_t at) {
    const size_t i = static_cast<size_t>(at);
    scaled_dot_product_attention(q[i], k[i], v[i], {}, options);
  });
  std::vector<std::vector<Value>> results;
  for (size_t i = 0; i < q.size(); ++i)
    results.push_back(call("scaled_dot_product_attention", {q[i], k[i], v[i], std::monostate(), c.causal}));
  const auto backward = [&](const std::string& name, const std::vector<Tensor>& gradients) {
    row(name, 2.5 * flop, sets, [&](int64_t at) {
      const size_t i = static_cast<size_t>(at);
      call("scaled_dot_product_attention_backward",
           {gradients[i], std::monostate(), q[i], k[i], v[i], std::monostate(), results[i][0], results[i][1], c.causal,
            std::monostate(), int64_t{0}, int64_t{0}, 0.0, std::monostate()});
    });
  };
  backward("attention_backward " + shape, g);
  if (c.d <= 128) return;
  // One gradient for all batches, a stride of 0, is what the copy engine's kernels do not take.
  std::vector<Tensor> one_for_all;
  for (const Tensor& x : g) one_for_all.push_back(x.narrow(0, 0, 1).expand(x.shape()));
  backward("attention_backward " + shape + " by mma.sync", one_for_all);
}

// 16384 rows in sequences of uneven lengths: one call, and a call for each.
void bench_varlen(int64_t d, int64_t heads) {
  std::vector<int64_t> lengths;
  std::vector<int64_t> ends{0};
  double pairs = 0;
  while (ends.back() < 16384) {
    const int64_t n = std::min<int64_t>(64 + ends.size() * 397 % 1500, 16384 - ends.back());
    lengths.push_back(n), ends.push_back(ends.back() + n);
    pairs += 0.5 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(heads);
  }
  const int64_t sets = 4;
  const std::string shape = cat("D", d, " T16384 N", lengths.size(), " H", heads, " causal");
  const double flop = 4 * static_cast<double>(d) * pairs;
  std::vector<Tensor> q, k, v, g;
  for (int64_t i = 0; i < sets; ++i)
    for (auto* x : {&q, &k, &v, &g}) x->push_back(randn({16384, heads, d}).to(DType::bf16));
  const Tensor on_device = from_span<int64_t>(ends, {static_cast<int64_t>(ends.size())}).to(Device::cuda());
  AttentionOptions options;
  options.is_causal = true;
  row("varlen " + shape, flop, sets, [&](int64_t at) {
    const size_t i = static_cast<size_t>(at);
    varlen_attention(q[i], k[i], v[i], on_device, on_device, options);
  });
  std::vector<std::vector<Value>> results;
  for (size_t i = 0; i < q.size(); ++i)
    results.push_back(call("varlen_attention", {q[i], k[i], v[i], on_device, on_device, true}));
  row("varlen_backward " + shape, 2.5 * flop, sets, [&](int64_t at) {
    const size_t i = static_cast<size_t>(at);
    call("varlen_attention_backward", {g[i], std::monostate(), q[i], k[i], v[i], on_device, on_device, results[i][0],
                                       results[i][1], true, std::monostate(), int64_t{0}, int64_t{0}});
  });
  const auto each = [&](const Tensor& x, int64_t n) {
    return x.narrow(0, ends[static_cast<size_t>(n)], lengths[static_cast<size_t>(n)]).transpose(0, 1).unsqueeze(0);
  };
  row("one by one " + shape, flop, sets, [&](int64_t at) {
    const size_t i = static_cast<size_t>(at);
    for (int64_t n = 0; n < static_cast<int64_t>(lengths.size()); ++n)
      scaled_dot_product_attention(each(q[i], n), each(k[i], n), each(v[i], n), {}, options);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const Rows rows(argc, argv);
  g_rows = &rows;
  if (!Rows::on_a_card()) return 0;
  const DeviceScope on(Device::cuda());
  const NoGrad guard;
  for (const Case& c : kCases) bench(c);
  bench_varlen(64, 12);
  bench_varlen(128, 16);
}
