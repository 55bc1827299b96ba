// An op of one's own: one record, and it has a gradient, works in any network, and can be verified.
// The squared ReLU, max(x, 0)^2 (So et al., Primer, arXiv:2109.08668). docs/guide/own_op.md explains every field.

#include <cstdio>

#include <strata/core/dispatch.h>
#include <strata/core/loops.h>
#include <strata/core/op.h>
#include <strata/core/samples.h>
#include <strata/lab/verify.h>
#include <strata/strata.h>

using namespace strata;

// The kernel writes into a result that is already allocated.
void squared_relu_cpu(Tensor& y, const Tensor& x) {
  const Tensor dense = contiguous(x);
  dispatch_floats(y.dtype(), "squared_relu", [&]<class T>() {
    const T* in = dense.data<T>();
    T* out = y.data<T>();
    parallel_for(0, y.numel(), 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto v = static_cast<compute_t<T>>(in[i]);
        out[i] = static_cast<T>(v < 0 ? v * 0 : v * v);  // NaN stays NaN
      }
    });
  });
}

const Op<Tensor(const Tensor&)> squared_relu_op{{
    .schema = "squared_relu(Tensor x) -> Tensor",
    .shard = "elementwise",
    .doc = "max(x, 0)^2, elementwise.",
    .infer = [](const Tensor& x) { return like(x); },
    .kernels = {.cpu = squared_relu_cpu},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * relu(x) * 2.0); },
    .cost =
        [](const Tensor& x) {
          return Cost{2.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({0, 2}));
        },
    .reference = [](const Tensor& x) { return square(relu(x)); },
}};
Tensor squared_relu(const Tensor& x) {
  return squared_relu_op(x);
}

struct Net : nn::Module {
  nn::Linear hidden = register_module("hidden", nn::Linear(1, 32));
  nn::Linear out = register_module("out", nn::Linear(32, 1));
  Tensor forward(const Tensor& x) { return out(squared_relu(hidden(x))); }
};

int main() {
  // Forward in every dtype, strided and empty input, gradients of first and second order, against the reference.
  const lab::OpReport report = lab::verify(*OpBase::find("squared_relu"));
  std::fputs(lab::table({report}).c_str(), stdout);

  // A network with it learns a parabola.
  manual_seed(1);
  Net net;
  optim::AdamW optimizer(net.named_parameters(), {0.02});
  const Tensor x = uniform({256, 1}, -1.0, 1.0), y = x * x - 0.5;
  double loss_now = 0;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mse_loss(net.forward(x), y);
    loss.backward();
    optimizer.step();
    loss_now = loss.item();
  }
  std::printf("loss %.6f after 200 steps\n", loss_now);
  return report.ok() && loss_now < 1e-3 ? 0 : 1;
}
