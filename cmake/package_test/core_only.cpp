#include <cstdio>

#include <strata/autograd/autograd.h>
#include <strata/ops/elementwise/elementwise.h>
#include <strata/ops/factory/factory.h>
#include <strata/ops/reduce/reduce.h>

int main() {
  using namespace strata;
  Tensor x = full({3}, 2.0);
  x.set_requires_grad();
  sum(x * x).backward();
  std::printf("%g\n", sum(x.grad()).item());
  return sum(x.grad()).item() == 12 ? 0 : 1;
}
