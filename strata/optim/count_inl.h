#pragma once
// Constants that change with the number of the update: the same lines on the host and on a device.

#include <cmath>
#include <concepts>

#include "strata/optim/kernels.h"

namespace strata::optim {

/// Completes `k` for update number t >= 1. constexpr so that it compiles for devices, a template because compilers
/// check a plain constexpr function for calls that cannot be.
template <std::same_as<double> D>
constexpr void complete(FromCount what, D* k, D t) {
  switch (what) {
    case FromCount::nothing:
      return;
    case FromCount::adam:
      k[5] /= 1 - ::pow(k[1], t);
      k[6] = 1 / ::sqrt(1 - ::pow(k[3], t));
      return;
    case FromCount::nadam: {
      // mu_t = beta1 (1 - 0.96^(t d) / 2), and the product of all up to t by the series of log(1 - x / 2): a sum over
      // powers of x of geometric sums, of which 52 terms are enough for f64.
      const D lr = k[5], ratio = ::pow(D(0.96), k[10]), all = ::pow(ratio, t);
      const D mu = k[1] * (1 - all / 2), next = k[1] * (1 - all * ratio / 2);
      D log_product = t * ::log(k[1]), power = 1, of_all = 1, half = 1;
      for (int n = 1; n <= 52; ++n) {
        power *= ratio;
        of_all *= all;
        half /= 2;
        log_product -= half / n * power * (power < 1 ? (1 - of_all) / (1 - power) : t);
      }
      const D product = ::exp(log_product);
      k[5] = lr * (1 - mu) / (1 - product);
      k[10] = lr * next / (1 - product * next);
      k[6] = 1 / ::sqrt(1 - ::pow(k[3], t));
      return;
    }
    case FromCount::radam: {
      const D b = ::pow(k[3], t), most = 2 / (1 - k[3]) - 1, now = most - 2 * t * b / (1 - b);
      k[5] /= 1 - ::pow(k[1], t);
      k[6] = now > 5 ? 1 : 0;
      if (now > 5) k[5] *= ::sqrt((1 - b) * ((now - 4) * (now - 2) * most) / ((most - 4) * (most - 2) * now));
      return;
    }
    case FromCount::adamax:
      k[5] /= 1 - ::pow(k[1], t);
      return;
    case FromCount::adagrad:
      k[1] /= 1 + (t - 1) * k[4];
      return;
    case FromCount::adafactor:
      k[5] = ::pow(t, -k[9]);
      k[4] = 1 - k[5];
      k[6] = k[8] * ::fmin(k[7], 1 / ::sqrt(t));
      return;
  }
}

}  // namespace strata::optim
