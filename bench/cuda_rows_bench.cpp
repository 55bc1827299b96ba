// The memory-bound ops on a CUDA device, called as a program calls them: device time between CUDA events, GB/s of the
// fewest bytes that must move, and the fraction of a device-to-device copy's bandwidth in the same run. Inputs rotate
// so that none is still in the L2 cache when its turn comes.
//     cuda_rows_bench [filter] [--lines FILE]
// FILE takes "name <tab> bytes <tab> milliseconds" lines, which bench/pytorch/cuda_rows.py sets beside PyTorch's times.

#include <cstdio>
#include <string>
#include <vector>

#include "bench/device_rows.h"
#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"
#include "strata/optim/optim.h"

namespace {
using namespace strata;

void bench_norms(int64_t rows, int64_t n) {
  const double x_bytes = 2. * static_cast<double>(rows * n);
  const int64_t sets = sets_for(2 * rows * n);
  const auto x = several(sets, {rows, n}, DType::bf16), g = several(sets, {rows, n}, DType::bf16);
  const Tensor w = randn({n}), b = randn({n});
  const Tensor mean = zeros({rows, 1}), rstd = ones({rows, 1});
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const auto run = [&](const char* op, double passes, auto f) {
    if (wanted(op)) row(label(op, rows, n), passes * x_bytes, sets, f);
  };
  run("rms_norm", 2, [&](int64_t i) { rms_norm(x[at(i)], {n}, w); });
  run("layer_norm", 2, [&](int64_t i) { layer_norm(x[at(i)], {n}, w, b); });
  run("add_rms_norm", 4, [&](int64_t i) { add_rms_norm(x[at(i)], g[at(i)], w); });
  run("add_layer_norm", 4, [&](int64_t i) { add_layer_norm(x[at(i)], g[at(i)], w, b); });
  run("rms_norm_backward", 3, [&](int64_t i) { call("rms_norm_backward", {g[at(i)], x[at(i)], Dims{n}, w, rstd}); });
  run("layer_norm_backward", 3, [&](int64_t i) {
    call("layer_norm_backward", {g[at(i)], x[at(i)], Dims{n}, w, mean, rstd});
  });
  run("add_layer_norm_backward", 4, [&](int64_t i) {
    call("layer_norm_backward", {g[at(i)], x[at(i)], Dims{n}, w, mean, rstd, g[at((i + 1) % sets)]});
  });
}

void bench_softmax(int64_t rows, int64_t n) {
  const double x_bytes = 2. * static_cast<double>(rows * n);
  const int64_t sets = sets_for(2 * rows * n);
  const auto x = several(sets, {rows, n}, DType::bf16), g = several(sets, {rows, n}, DType::bf16);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const auto run = [&](const char* op, double passes, auto f) {
    if (wanted(op)) row(label(op, rows, n), passes * x_bytes, sets, f);
  };
  run("softmax", 2, [&](int64_t i) { softmax(x[at(i)], -1); });
  run("log_softmax", 2, [&](int64_t i) { log_softmax(x[at(i)], -1); });
  run("softmax_backward", 3, [&](int64_t i) { call("softmax_backward", {g[at(i)], x[at(i)], int64_t{-1}}); });
  run("log_softmax_backward", 3, [&](int64_t i) { call("log_softmax_backward", {g[at(i)], x[at(i)], int64_t{-1}}); });
}

void bench_elementwise() {
  const int64_t rows = 16384, n = 4096;
  const double x_bytes = 2. * static_cast<double>(rows * n);
  const auto x = several(2, {rows, n}, DType::bf16), g = several(2, {rows, n}, DType::bf16);
  const Tensor bias = randn({n}).to(DType::bf16);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const auto run = [&](const char* op, double passes, auto f) {
    if (wanted(op)) row(label(op, rows, n), passes * x_bytes, 2, f);
  };
  run("gelu", 2, [&](int64_t i) { gelu(x[at(i)]); });
  run("gelu_tanh", 2, [&](int64_t i) { gelu(x[at(i)], "tanh"); });
  run("gelu_backward", 3, [&](int64_t i) { call("gelu_backward", {g[at(i)], x[at(i)], std::string("none")}); });
  run("gelu_tanh_backward", 3, [&](int64_t i) { call("gelu_backward", {g[at(i)], x[at(i)], std::string("tanh")}); });
  run("relu", 2, [&](int64_t i) { relu(x[at(i)]); });
  run("add", 3, [&](int64_t i) { add(x[at(i)], g[at(i)]); });
  run("mul", 3, [&](int64_t i) { mul(x[at(i)], g[at(i)]); });
  run("add_bias", 2, [&](int64_t i) { add(x[at(i)], bias); });
  run("mul_number", 2, [&](int64_t i) { mul(x[at(i)], 1.5); });
  run("to_f32", 3, [&](int64_t i) { x[at(i)].to(DType::f32); });
  run("transpose", 2, [&](int64_t i) { x[at(i)].transpose(0, 1).contiguous(); });
  run("narrow_copy", 1, [&](int64_t i) { x[at(i)].narrow(1, 1024, 2048).contiguous(); });
  run("heads_copy", 2, [&](int64_t i) { permute(x[at(i)].view({16, 1024, 64, 64}), {0, 2, 1, 3}).contiguous(); });
  run("dropout", 2, [&](int64_t i) { dropout(x[at(i)], 0.1, true); });
  run("swiglu", 1.5, [&](int64_t i) { swiglu(x[at(i)]); });
  run("swiglu_backward", 2.5, [&](int64_t i) {
    call("swiglu_packed_backward", {narrow(g[at(i)].view({2, rows, n / 2}), 0, 0, 1).view({rows, n / 2}), x[at(i)]});
  });
  if (wanted("rotary")) {
    const auto [c, s] = rotary_tables(4096, 128);
    const std::vector<Tensor> q{x[0].view({4, 4096, 32, 128}), x[1].view({4, 4096, 32, 128})};
    run("rotary", 2, [&](int64_t i) { rotary(q[at(i)].transpose(1, 2), c, s); });
  }
  const std::vector<Tensor> f{x[0].to(DType::f32), x[1].to(DType::f32)};
  run("to_bf16", 3, [&](int64_t i) { f[at(i)].to(DType::bf16); });
  run("sum_all", 1, [&](int64_t i) { sum(x[at(i)]); });
  run("sum_rows", 1, [&](int64_t i) { sum(x[at(i)], {1}); });
  run("sum_columns", 1, [&](int64_t i) { sum(x[at(i)], {0}); });
  run("mean_rows", 1, [&](int64_t i) { mean(x[at(i)], {1}); });
  run("amax_rows", 1, [&](int64_t i) { amax(x[at(i)], {1}); });
  run("amax_columns", 1, [&](int64_t i) { amax(x[at(i)], {0}); });
  run("argmax_rows", 1, [&](int64_t i) { argmax(x[at(i)], 1); });
  run("var_rows", 1, [&](int64_t i) { var(x[at(i)], {1}); });
}

void bench_cross_entropy(int64_t rows, int64_t n) {
  const double x_bytes = 2. * static_cast<double>(rows * n);
  const auto x = several(1, {rows, n}, DType::bf16);
  const Tensor target = randint(0, n, {rows});
  if (wanted("cross_entropy"))
    row(label("cross_entropy", rows, n), x_bytes, 1, [&](int64_t) { cross_entropy(x[0], target); });
  if (wanted("cross_entropy_backward")) {
    const Tensor gloss = ones({}), lse = full({rows}, 11.0);
    row(label("cross_entropy_backward", rows, n), 2 * x_bytes, 1, [&](int64_t) {
      call("cross_entropy_backward", {gloss, x[0], target, lse, int64_t{-100}, std::string("mean"), 0.0});
    });
  }
}

void bench_embedding() {
  const int64_t rows = 32768, n = 768, vocab = 50304;
  // Text repeats its words: the square of a uniform number makes small ones likelier.
  const Tensor ids = (square(rand({rows})) * static_cast<double>(vocab)).to(DType::i64);
  const Tensor table = randn({vocab, n}), half = table.to(DType::bf16);
  const auto g = several(4, {rows, n}, DType::bf16);
  const auto wide = several(2, {rows, n}, DType::f32);
  const double out = 2. * static_cast<double>(rows * n), whole = 4. * static_cast<double>(vocab * n);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  if (wanted("embedding")) row("embedding 32768 of 50304x768 bf16", 2 * out, 1, [&](int64_t) { embedding(ids, half); });
  if (wanted("embedding_backward")) {
    row("embedding_backward 32768 of 50304x768 bf16", out + whole / 2, 4, [&](int64_t i) {
      call("embedding_backward", {g[at(i)], ids, vocab});
    });
    row("embedding_backward 32768 of 50304x768 f32", 2 * out + whole, 2, [&](int64_t i) {
      call("embedding_backward", {wide[at(i)], ids, vocab});
    });
    // Text by bytes: few rows, each of very many positions.
    const int64_t bytes = 256;
    const Tensor text = (square(rand({rows})) * static_cast<double>(bytes)).to(DType::i64);
    row("embedding_backward 32768 of 256x768 bf16", out, 4, [&](int64_t i) {
      call("embedding_backward", {g[at(i)], text, bytes});
    });
    row("embedding_backward 32768 of 256x768 f32", 2 * out, 2, [&](int64_t i) {
      call("embedding_backward", {wide[at(i)], text, bytes});
    });
  }
}

// A language model's head and loss, forward and backward: in one, and with whole logits. The rate is that of the
// products, in TFLOP/s; the peak of memory is what the call adds.
void bench_head(int64_t rows, int64_t width, int64_t vocab, bool whole) {
  if (!wanted("head")) return;
  Tensor x = randn({rows, width}).to(DType::bf16), w = randn({vocab, width}) * 0.02;
  x.set_requires_grad(), w.set_requires_grad();
  const Tensor target = randint(0, vocab, {rows});
  const GradMode on(true);
  for (const bool one : {true, false}) {
    if (!one && !whole) continue;
    const auto step = [&](int64_t) {
      const Tensor loss =
          one ? linear_cross_entropy(x, w, target) : cross_entropy(linear(x, w.to(DType::bf16)), target);
      loss.backward();
      x.set_grad({}), w.set_grad({});
    };
    step(0);
    cuda::synchronize();
    memory::reset_peak(Device::cuda());
    const int64_t before = memory::stats(Device::cuda()).live_total;
    step(0);
    const int64_t peak = memory::stats(Device::cuda()).peak_total - before;
    const double ms = device_ms(1, step);
    std::printf("%-48s %9.4f ms  %7.0f TFLOP/s  peak %.2f GiB\n",
                cat(one ? "head fused " : "head whole ", rows, "x", width, "x", vocab).c_str(), ms,
                6. * static_cast<double>(rows * width) * static_cast<double>(vocab) / ms * 1e-9,
                static_cast<double>(peak) / (1 << 30));
    std::fflush(stdout);
  }
}

// GPT-2's parameters.
void bench_optimizer() {
  if (!wanted("adamw") && !wanted("grad_norm")) return;
  TensorList all{randn({50304, 768}), randn({1024, 768})};
  for (int i = 0; i < 12; ++i)
    for (const Shape& s : {Shape{768}, Shape{768}, Shape{2304, 768}, Shape{2304}, Shape{768, 768}, Shape{768},
                           Shape{768}, Shape{768}, Shape{3072, 768}, Shape{3072}, Shape{768, 3072}, Shape{768}})
      all.push_back(randn(s));
  double n = 0;
  for (Tensor& p : all) {
    p.set_requires_grad();
    p.set_grad(randn(p.shape()));
    n += static_cast<double>(p.numel());
  }
  optim::AdamW opt(all);
  if (wanted("adamw")) row("adamw GPT-2 124M f32", 28 * n, 1, [&](int64_t) { opt.step(); });
  if (wanted("adamw")) row("adamw clipped GPT-2 124M f32", 32 * n, 1, [&](int64_t) { opt.step_clipped(1.0); });
}

}  // namespace

int main(int argc, char** argv) {
  const Rows rows(argc, argv);
  g_rows = &rows;
  if (!Rows::on_a_card()) return 0;
  const DeviceScope on(Device::cuda());
  const NoGrad guard;
  copy_row();
  bench_norms(16384, 4096);
  bench_norms(32768, 768);
  bench_norms(8192, 2048);
  bench_norms(2048, 16384);
  bench_softmax(16384, 4096);
  bench_softmax(65536, 1024);
  bench_softmax(2048, 32768);
  bench_elementwise();
  bench_cross_entropy(8192, 50304);
  bench_cross_entropy(8192, 50257);
  bench_head(32768, 768, 50304, true);
  bench_head(32768, 768, 50257, true);
  bench_head(8192, 2048, 128256, true);
  bench_embedding();
  bench_optimizer();
}
