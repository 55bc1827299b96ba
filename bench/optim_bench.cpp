// The optimizers' update against the machine's memory bandwidth: GB/s of the fewest bytes that must move (each
// parameter, gradient and state read once, each parameter and state written once), and the fraction of what an update
// of four plain arrays (p += a m; m += b v; v += c g: the same traffic as AdamW's) reaches on the same machine.
//     optim_bench [million parameters] [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/optim.h"

namespace {

using namespace strata;
using namespace strata::optim;

template <class F>
double best_seconds(F&& f) {
  f();
  double best = 1e30;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5 || std::chrono::steady_clock::now() - begin < std::chrono::seconds(1); ++i) {
    const auto t = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count());
  }
  return best;
}

// A transformer's mix of tensors: matrices of 1024 x 1024 and, for each, four vectors of 1024.
NamedTensors make_params(int64_t total, DType grad, DType dtype = DType::f32) {
  TensorList all;
  for (int64_t n = 0; n < total; n += 1024 * 1024 + 4 * 1024) {
    all.push_back(full({1024, 1024}, 0.5, dtype));
    for (int i = 0; i < 4; ++i) all.push_back(full({1024}, 0.5, dtype));
  }
  for (Tensor& t : all) {
    t.set_requires_grad();
    t.set_grad(full(t.shape(), 0.25, grad));
  }
  return number_params(all);
}

double baseline_gb_s(int64_t n) {
  const Tensor tp = full({n}, 0.5), tg = full({n}, 0.25), tm = full({n}, 0.0), tv = full({n}, 0.0);
  float *p = tp.data<float>(), *g = tg.data<float>(), *m = tm.data<float>(), *v = tv.data<float>();
  return 28e-9 * static_cast<double>(n) / best_seconds([&] {
           parallel_for(0, n, 32768, [=](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) {
               v[i] += 0.1f * g[i];
               m[i] += 0.1f * v[i];
               p[i] += 0.1f * m[i];
             }
           });
         });
}

template <class O>
void row(const char* name, O& opt, int64_t n, double bytes, double limit) {
  const double s = best_seconds([&] { opt.step(); });
  const double rate = bytes * static_cast<double>(n) / s * 1e-9;
  std::printf("%-22s %9.3f ms %8.2f GB/s %6.1f %%\n", name, s * 1e3, rate, 100 * rate / limit);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t wanted = static_cast<int64_t>((argc > 1 ? std::atof(argv[1]) : 32) * 1e6);
  if (argc > 2) set_num_threads(std::atoi(argv[2]));
  int64_t n = 0;
  for (const auto& p : make_params(wanted, DType::f32)) n += p.second.numel();
  const double limit = baseline_gb_s(n);
  std::printf("%lld parameters, %d threads; four plain arrays: %.2f GB/s\n", static_cast<long long>(n), num_threads(),
              limit);
  {
    AdamW opt(make_params(wanted, DType::f32));
    row("adamw", opt, n, 28, limit);
    TensorList tensors;
    for (const auto& p : opt.params()) tensors.push_back(p.second);
    const double s = best_seconds([&] { grad_norm(tensors); });
    std::printf("%-22s %9.3f ms %8.2f GB/s\n", "grad_norm", s * 1e3, 4e-9 * static_cast<double>(n) / s);
    const double t = best_seconds([&] { opt.step_clipped(1.0); });
    std::printf("%-22s %9.3f ms %8.2f GB/s\n", "adamw, clipped", t * 1e3, 32e-9 * static_cast<double>(n) / t);
  }
  {
    AdamW opt(make_params(wanted, DType::f32), {.low = {.state_8bit = true}});
    row("adamw, 8 bits", opt, n, 16.06, limit);
  }
  {
    AdamW opt(make_params(wanted, DType::bf16, DType::bf16));
    row("bf16, nearest", opt, n, 22, limit);
  }
  {
    AdamW opt(make_params(wanted, DType::bf16, DType::bf16), {.low = {.compensated_weights = true}});
    row("bf16, compensated", opt, n, 26, limit);
  }
  {
    AdamW opt(make_params(wanted, DType::bf16, DType::bf16), {.low = {.master_weights = true}});
    row("bf16, master weights", opt, n, 28, limit);
  }
  {
    AdamW opt(make_params(wanted, DType::bf16, DType::bf16),
              {.low = {.compensated_weights = true, .state_8bit = true}});
    row("compensated, 8 bits", opt, n, 14.06, limit);
  }
  {
    AdamW opt(make_params(wanted, DType::bf16));
    row("adamw, bf16 gradients", opt, n, 26, limit);
  }
  {
    SGD opt(make_params(wanted, DType::f32), {.momentum = 0.9});
    row("sgd, momentum", opt, n, 20, limit);
  }
  {
    SGD opt(make_params(wanted, DType::f32));
    row("sgd", opt, n, 12, limit);
  }
  {
    Lion opt(make_params(wanted, DType::f32));
    row("lion", opt, n, 20, limit);
  }
  {
    Lion opt(make_params(wanted, DType::f32), {.low = {.state_8bit = true}});
    row("lion, 8 bits", opt, n, 14.03, limit);
  }
  {
    Adafactor opt(make_params(wanted, DType::f32));
    row("adafactor (3 passes)", opt, n, 24, limit);
  }
  return 0;
}
