// Times the fused kernels on raw memory: attention, softmax, norms, cross entropy. Prints GB/s (least bytes moved) or
// GFLOP/s, beside the copy bandwidth of this machine measured in the same run; and for the row kernels what they cost
// one thread where everything is in its second-level cache, which is their arithmetic alone.
// Usage: fused_bench [threads] [filter]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/clock.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/softmax/softmax_kernel.h"
#include "strata/ops/vec/level.h"

namespace {
using namespace strata;

std::string g_filter;
double g_copy = 0;

// Memory whose pages are touched by the threads that will use them.
struct Buffer {
  std::byte* p;
  size_t bytes;
  explicit Buffer(int64_t n) : p(static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64))), bytes(n) {
    parallel_for(0, n, 4096, [&](int64_t a, int64_t b) { std::memset(p + a, 0, b - a); });
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(p); }
};

void fill(void* p, DType t, int64_t n) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::vector<float> some(65536);
  for (float& v : some) v = normal(rng);
  parallel_for(0, n, 65536, [&](int64_t a, int64_t b) {
    for (int64_t i = a; i < b; ++i) {
      const float v = some[i % 65521];
      if (t == DType::f32)
        static_cast<float*>(p)[i] = v;
      else
        static_cast<BFloat16*>(p)[i] = BFloat16(v);
    }
  });
}

void report(const std::string& name, DType t, const std::string& shape, double s, double bytes, double flops) {
  std::printf("%-22s %-5s %-22s %9.3f ms", name.c_str(), std::string(name_of(t)).c_str(), shape.c_str(), s * 1e3);
  if (flops > 0)
    std::printf("  %8.1f GFLOP/s\n", flops / s * 1e-9);
  else
    std::printf("  %8.1f GB/s  %5.2f of copy\n", bytes / s * 1e-9, bytes / s / g_copy);
  std::fflush(stdout);
}

void measure_copy() {
  const int64_t n = int64_t{256} << 20;
  Buffer a(n), b(n);
  const double s = best_seconds([&] {
    parallel_for(0, n, 4096, [&](int64_t from, int64_t to) { std::memcpy(b.p + from, a.p + from, to - from); });
  });
  g_copy = 2.0 * n / s;
  std::printf("copy of 256 MiB: %.1f GB/s (read + written), %d threads, vector level %d, amx %d\n", g_copy * 1e-9,
              num_threads(), vec_level(), has_amx_bf16());
}

// Calls measure(name, bytes moved, f) with each row kernel on r rows of n elements.
template <class F>
void each_row_kernel(DType t, int64_t r, int64_t n, F&& measure) {
  const int64_t size = size_of(t), count = r * n;
  const double b = static_cast<double>(count * size);
  Buffer x(count * size), y(count * size), g(count * size), w(n * size), bias(n * size), gw(n * size), gb(n * size),
      mean(r * 4), rstd(r * 4);
  for (Buffer* p : {&x, &g}) fill(p->p, t, count);
  fill(w.p, t, n);
  measure("softmax", 2 * b, [&] { softmax_forward_cpu(t, false, x.p, y.p, r, n, 1); });
  measure("softmax_backward", 3 * b, [&] { softmax_backward_cpu(t, false, g.p, x.p, y.p, r, n, 1); });
  measure("log_softmax", 2 * b, [&] { softmax_forward_cpu(t, true, x.p, y.p, r, n, 1); });
  measure("softmax dim 1 of 3", 2 * b, [&] { softmax_forward_cpu(t, false, x.p, y.p, r / 64, 64, n); });
  for (bool rms : {false, true}) {
    RowNorm c;
    c.dtype = c.affine = t;
    c.rms = rms;
    c.rows = r;
    c.n = n;
    c.x = x.p;
    c.weight = w.p;
    c.bias = rms ? nullptr : bias.p;
    c.y = y.p;
    c.mean = rms ? nullptr : mean.p;
    c.rstd = rstd.p;
    const std::string name = rms ? "rms_norm" : "layer_norm";
    row_norm_cpu(c);
    measure(name, 2 * b, [&] { row_norm_cpu(c); });
    RowNormBackward d;
    d.dtype = d.affine = t;
    d.rms = rms;
    d.rows = r;
    d.n = n;
    d.grad_y = g.p;
    d.x = x.p;
    d.weight = w.p;
    d.mean = c.mean;
    d.rstd = rstd.p;
    d.grad_x = y.p;
    d.grad_weight = gw.p;
    d.grad_bias = rms ? nullptr : gb.p;
    measure(name + "_backward", 3 * b, [&] { row_norm_backward_cpu(d); });
  }
  std::vector<int64_t> target(r);
  for (int64_t i = 0; i < r; ++i) target[i] = i * 7919 % n;
  Buffer loss(64), lse(r * 4);
  CrossEntropyCall c;
  c.dtype = t;
  c.rows = r;
  c.classes = n;
  c.x = x.p;
  c.target = target.data();
  c.loss = loss.p;
  c.grad_loss = w.p;
  c.lse = lse.p;
  c.grad_x = y.p;
  measure("cross_entropy", b, [&] { cross_entropy_cpu(c); });
  measure("cross_entropy_backward", 2 * b, [&] { cross_entropy_backward_cpu(c); });
}

void rows(DType t, int64_t r, int64_t n) {
  each_row_kernel(t, r, n, [&](const std::string& name, double bytes, auto&& f) {
    if (name.find(g_filter) != std::string::npos) report(name, t, cat("[", r, ", ", n, "]"), best_seconds(f), bytes, 0);
  });
}

// One thread, at most 256 KiB of each operand.
void arithmetic(DType t) {
  const int64_t n = 2048, r = 32;
  const int threads = num_threads();
  set_num_threads(1);
  each_row_kernel(t, r, n, [&](const std::string& name, double, auto&& f) {
    if (name.find(g_filter) == std::string::npos || name.find("dim 1") != std::string::npos) return;
    print_cost(cat(name, " ", name_of(t)), best_seconds_of_short(f), static_cast<double>(r * n));
  });
  set_num_threads(threads);
}

void attention(DType t, int64_t batch, int64_t heads, int64_t time, int64_t d) {
  const int64_t n = batch * time * heads * d, size = size_of(t);
  Buffer qkv(3 * n * size), out(n * size), go(n * size), g(3 * n * size), lse(batch * heads * time * 4);
  fill(qkv.p, t, 3 * n);
  fill(go.p, t, n);
  AttentionCall c;
  c.dtype = t;
  c.batch = batch;
  c.heads = c.kv_heads = heads;
  c.tq = c.tk = c.lse_head = time;
  c.d = c.dv = d;
  c.scale = 1 / std::sqrt(static_cast<double>(d));
  c.causal = true;
  const auto view = [&](std::byte* p, int64_t which, int64_t of) {
    return AttentionView{p + which * heads * d * size, time * heads * d * of, d, heads * d * of};
  };
  c.q = view(qkv.p, 0, 3);
  c.k = view(qkv.p, 1, 3);
  c.v = view(qkv.p, 2, 3);
  c.out = view(out.p, 0, 1);
  c.grad_out = view(go.p, 0, 1);
  c.grad_q = view(g.p, 0, 3);
  c.grad_k = view(g.p, 1, 3);
  c.grad_v = view(g.p, 2, 3);
  c.lse = lse.p;
  const double flops = 2.0 * batch * heads * time * time * d;  // causal: half of 4 T^2 D
  const std::string shape = cat("[", batch, ", ", heads, ", ", time, ", ", d, "]");
  if (std::string("attention").find(g_filter) != std::string::npos)
    report("attention causal", t, shape, best_seconds([&] { attention_forward_cpu(c); }), 0, flops);
  if (std::string("attention_backward").find(g_filter) != std::string::npos)
    report("attention_backward", t, shape, best_seconds([&] { attention_backward_cpu(c); }), 0, 2.5 * flops);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_num_threads(std::max(1, std::atoi(argv[1])));
  if (argc > 2) g_filter = argv[2];
  measure_copy();
  for (DType t : {DType::f32, DType::bf16}) arithmetic(t);
  for (DType t : {DType::f32, DType::bf16}) {
    rows(t, 4096, 4096);  // as pytorch/kernels.py
    rows(t, 2048, 256);
    rows(t, 16384, 1024);
    rows(t, 65536, 1024);
    rows(t, 4096, 8192);
    rows(t, 1024, 50304);
  }
  for (DType t : {DType::f32, DType::bf16})
    for (int64_t d : {32, 64, 128}) {
      attention(t, 8, 8, 256, d);
      attention(t, 2, 8, 1024, d);
      attention(t, 1, 8, 2048, d);
    }
}
