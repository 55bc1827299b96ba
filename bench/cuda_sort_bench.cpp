// Counts, scans, sorts and reductions of long rows on a CUDA device: device time between CUDA events, GB/s of the
// fewest bytes that must move (each input read once, each result written once), and the fraction of a copy's bandwidth
// in the same run. What returns a result of unknown size waits for the device, and its time is with the wait.
//     cuda_sort_bench [filter] [--lines FILE]
// FILE takes "name <tab> bytes <tab> milliseconds" lines, which bench/pytorch/cuda_rows.py sets beside PyTorch's times.

#include "bench/device_rows.h"
#include "strata/core/node.h"
#include "strata/ops/index/index.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/sort/sort.h"

namespace {
using namespace strata;

constexpr int64_t kMany = int64_t{1} << 24;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

void bench_counts() {
  std::vector<Tensor> x, wide;
  for (int i = 0; i < 2; ++i) {
    x.push_back(randint(0, 1000, {kMany}));
    wide.push_back(randint(0, 1000000, {kMany}));
  }
  const double bytes = 8. * static_cast<double>(kMany);
  const Tensor w = rand({kMany});
  if (wanted("bincount")) {
    row("bincount 16M of 1000 i64", bytes, 2, [&](int64_t i) { bincount(x[at(i)]); });
    row("bincount 16M of 1000000 i64", bytes + 8e6, 2, [&](int64_t i) { bincount(wide[at(i)]); });
    row("bincount weights 16M of 1000 i64", bytes * 1.5, 2, [&](int64_t i) { bincount(x[at(i)], w); });
  }
  if (wanted("unique")) {
    row("unique 16M of 1000 i64", bytes, 2, [&](int64_t i) { unique(x[at(i)]); });
    row("unique 16M of 1000000 i64", bytes, 2, [&](int64_t i) { unique(wide[at(i)]); });
    row("unique inverse 16M of 1000000 i64", 2 * bytes, 2, [&](int64_t i) { unique(wide[at(i)], true, true); });
  }
}

void bench_scans(int64_t rows, int64_t n) {
  const std::vector<Tensor> x = several(2, {rows, n}, DType::f32);
  const double bytes = 4. * static_cast<double>(rows * n);
  const auto run = [&](const char* op, double work, auto f) {
    if (wanted(op)) row(label(op, rows, n, "f32"), work, 2, f);
  };
  run("cumsum", 2 * bytes, [&](int64_t i) { cumsum(x[at(i)], 1); });
  run("cummax", 4 * bytes, [&](int64_t i) { cummax(x[at(i)], 1); });
  run("topk50", bytes, [&](int64_t i) { topk(x[at(i)], 50); });
  run("topk1000", bytes, [&](int64_t i) { topk(x[at(i)], 1000); });
  run("kthvalue", bytes, [&](int64_t i) { kthvalue(x[at(i)], n / 2); });
  run("sort", 4 * bytes, [&](int64_t i) { sort(x[at(i)]); });
}

void bench_long() {
  if (wanted("sort 268M")) {
    const int64_t n = int64_t{1} << 28;
    const Tensor x = randint(-1000000000, 1000000000, {n}).to(DType::i32);
    row("sort 268M i32", 16. * static_cast<double>(n), 1, [&](int64_t) { sort(x); });
    row("msort 268M i32", 8. * static_cast<double>(n), 1, [&](int64_t) { msort(x); });
  }
  const std::vector<Tensor> one = several(4, {kMany}, DType::f32);
  const double bytes = 4. * static_cast<double>(kMany);
  if (wanted("cumsum 16M")) row("cumsum 16M f32", 2 * bytes, 4, [&](int64_t i) { cumsum(one[at(i)], 0); });
  if (wanted("topk100 16M")) row("topk100 16M f32", bytes, 4, [&](int64_t i) { topk(one[at(i)], 100); });
  const std::vector<Tensor> small = several(8, {2048, 2048}, DType::f32);
  if (wanted("sort 2048x2048")) row("sort 2048x2048 f32", 16. * 2048 * 2048, 8, [&](int64_t i) { sort(small[at(i)]); });
}

void bench_rows(DType t, const char* type) {
  const double size = static_cast<double>(size_of(t));
  const auto run = [&](const char* op, int64_t rows, int64_t n, double passes, int64_t sets, auto f) {
    if (wanted(op)) row(label(op, rows, n, type), passes * size * static_cast<double>(rows * n), sets, f);
  };
  {
    const auto x = several(2, {2048, 32768}, t);
    run("softmax", 2048, 32768, 2, 2, [&](int64_t i) { softmax(x[at(i)], -1); });
    run("log_softmax", 2048, 32768, 2, 2, [&](int64_t i) { log_softmax(x[at(i)], -1); });
  }
  {
    const auto x = several(2, {16384, 4096}, t);
    run("var_rows", 16384, 4096, 1, 2, [&](int64_t i) { var(x[at(i)], {1}); });
  }
  const int64_t rows = 2048, n = 16384;
  const auto x = several(3, {rows, n}, t), g = several(3, {rows, n}, t);
  const Tensor w = randn({n}), mean = zeros({rows, 1}), rstd = ones({rows, 1});
  // These programs have the records that they name in C++: the gradients are of the same files.
  run("rms_norm", rows, n, 2, 3, [&](int64_t i) { rms_norm(x[at(i)], Shape{n}, w); });
  run("rms_norm_backward", rows, n, 3, 3, [&](int64_t i) {
    call("rms_norm_backward", {g[at(i)], x[at(i)], Dims{n}, w, rstd});
  });
  run("layer_norm_backward", rows, n, 3, 3, [&](int64_t i) {
    call("layer_norm_backward", {g[at(i)], x[at(i)], Dims{n}, w, mean, rstd});
  });
}

}  // namespace

int main(int argc, char** argv) {
  const Rows rows(argc, argv);
  g_rows = &rows;
  if (!Rows::on_a_card()) return 0;
  const DeviceScope on(Device::cuda());
  const NoGrad guard;
  copy_row();
  bench_counts();
  bench_scans(256, 128256);
  bench_long();
  bench_rows(DType::bf16, "bf16");
  bench_rows(DType::f32, "f32");
}
