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
    case FromCount::adafactor:
      k[5] = ::pow(t, -k[9]);
      k[4] = 1 - k[5];
      k[6] = k[8] * ::fmin(k[7], 1 / ::sqrt(t));
      return;
  }
}

}  // namespace strata::optim
