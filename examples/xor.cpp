// A network with one hidden layer learns the exclusive or: tensors, a model, an optimizer, a loop.

#include <cstdio>

#include <strata/strata.h>

using namespace strata;

int main() {
  manual_seed(1);
  const Tensor x = from_span<float>(std::vector<float>{0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor y = from_span<float>(std::vector<float>{0, 1, 1, 0}, {4, 1});

  nn::Sequential net(nn::Linear(2, 8), nn::Tanh(), nn::Linear(8, 1));
  optim::AdamW optimizer(net.named_parameters(), {0.05});

  double loss_now = 0;
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    const Tensor loss = binary_cross_entropy_with_logits(net(x), y);
    loss.backward();
    optimizer.step();
    loss_now = loss.item();
    if (step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss_now);
  }
  std::printf("%s\n", net(x).sigmoid().to_string().c_str());
  return loss_now < 0.05 ? 0 : 1;
}
