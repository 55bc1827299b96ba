// The module strata._core.

#include "features.h"
#include "py.h"
#include "tiers.h"

namespace strata::python {
void bind_distributions(nb::module_& m);  // distributions.cpp
}

NB_MODULE(_core, m) {
  using namespace strata::python;
  nb::set_leak_warnings(false);
  m.doc() = "Strata's engine: everything that the package strata is made of.";
  bind_errors(m);
  bind_types(m);
  bind_size(m);
  bind_tensor(m);
  bind_named(m);
  bind_ops(m);
  bind_tensor_methods(m);
  bind_exchange(m);
  bind_functions(m);
  bind_autograd(m);
  bind_cuda(m);
  bind_graphed(m);
  bind_io(m);
  bind_optim(m);
  bind_distributions(m);
  bind_profile(m);
  bind_text(m);
  bind_data(m);
  bind_features(m);
  bind_train(m);
  bind_pretrained(m);
  bind_tiers(m);
  bind_recording(m);
}
