#pragma once
#include "bindings/node/src/env.h"

namespace strata::node {

// Each puts its functions into the addon's exports, which lib/ makes the public modules of.
void add_ops(Env& env, napi_value exports);
void add_tensors(Env& env, napi_value exports);
void add_autograd(Env& env, napi_value exports);
void add_modes(Env& env, napi_value exports);
void add_cuda(Env& env, napi_value exports);
void add_graphed(Env& env, napi_value exports);
void add_optim(Env& env, napi_value exports);
void add_distributions(Env& env, napi_value exports);
void add_files(Env& env, napi_value exports);
void add_models(Env& env, napi_value exports);
void add_pretrained(Env& env, napi_value exports);
void add_runs(Env& env, napi_value exports);
void add_recordings(Env& env, napi_value exports);
void add_budgets(Env& env, napi_value exports);

}  // namespace strata::node
