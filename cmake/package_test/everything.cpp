#include <cstdio>

#include <strata/strata.h>

int main() {
  using namespace strata;
  manual_seed(1);
  const Tensor x = randn({64, 3}), y = matmul(x, full({3, 1}, 0.5));
  Tensor w = zeros({3, 1}).set_requires_grad();
  optim::SGD sgd({w}, {.lr = 0.1});
  double loss = 0;
  for (int step = 0; step < 100; ++step) {
    sgd.zero_grad();
    const Tensor l = mse_loss(matmul(x, w), y);
    l.backward();
    sgd.step();
    loss = l.item();
  }
  std::printf("%g\n", loss);
  // Of the rooms beside the modules.
  data::Sampler in_order(3, /*seed=*/1, /*shuffle=*/false);
  text::ByteTokenizer bytes;
  if (bytes.encode("hi").size() != 2 || in_order.next().index != 0) return 1;
  return loss < 1e-4 ? 0 : 1;
}
