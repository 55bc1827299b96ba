// The addon's entry: one Env for each JavaScript environment that loads it.

#include "bindings/node/src/addon.h"

#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"
#include "strata/c/plugin.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"

namespace strata::node {
namespace {

napi_value seed(Call& c) {
  manual_seed(static_cast<uint64_t>(c.env.whole(c[0], "seed", "seed")));
  return c.env.undefined();
}
napi_value set_threads(Call& c) {
  const int64_t n = c.env.whole(c[0], "setNumThreads", "count");
  check(n >= 1 && n <= 4096, "setNumThreads", "count must be between 1 and 4096, got ", n);
  set_num_threads(static_cast<int>(n));
  return c.env.undefined();
}
napi_value threads(Call& c) {
  return c.env.integer(num_threads());
}
// loadPlugin(path): {name, version, path, ops}
napi_value load_plugin_function(Call& c) {
  const std::string path = c.env.text(c[0], "loadPlugin", "the path");
  const Plugin& p = load_plugin(path);
  napi_value o = c.env.object(), ops = c.env.array(p.ops.size());
  for (size_t i = 0; i < p.ops.size(); ++i) c.env.put(ops, static_cast<uint32_t>(i), c.env.string(p.ops[i]->name()));
  c.env.set(o, "name", c.env.string(p.name));
  c.env.set(o, "version", c.env.string(p.version));
  c.env.set(o, "path", c.env.string(p.path));
  c.env.set(o, "ops", ops);
  return o;
}
napi_value set_errors(Call& c) {
  if (c.env.error_classes) napi_delete_reference(c.env.env, c.env.error_classes);
  c.env.check(napi_create_reference(c.env.env, c[0], 1, &c.env.error_classes));
  return c.env.undefined();
}

}  // namespace
}  // namespace strata::node

using namespace strata::node;

NAPI_MODULE_INIT() {
  auto* e = new Env();
  e->env = env;
  try {
    e->check(napi_set_instance_data(
        env, e, [](napi_env, void* data, void*) { delete static_cast<Env*>(data); }, nullptr));
    e->mail->open(*e);
    e->check(napi_add_env_cleanup_hook(
        env, [](void* data) { static_cast<Env*>(data)->mail->close(); }, e));
    napi_value tensor = define_tensor_class(*e);
    e->check(napi_create_reference(env, tensor, 1, &e->tensor_class));
    e->set(exports, "Tensor", tensor);
    // What hand_over() sets. The array lives as long as the environment.
    void* bytes = nullptr;
    napi_value buffer = e->made(napi_create_arraybuffer, sizeof(int32_t), &bytes);
    e->failed = static_cast<int32_t*>(bytes);
    *e->failed = 0;
    napi_value failed = e->made(napi_create_typedarray, napi_int32_array, size_t{1}, buffer, size_t{0});
    napi_ref keep = nullptr;
    e->check(napi_create_reference(env, failed, 1, &keep));
    e->set(exports, "failed", failed);
    e->add(exports, {{"setErrors", entry<set_errors>},
                     {"seed", entry<seed>},
                     {"setNumThreads", entry<set_threads>},
                     {"numThreads", entry<threads>},
                     {"loadPlugin", entry<load_plugin_function>},
                     {"newCancelFlag", entry<new_cancel_flag>},
                     {"cancel", entry<cancel>}});
    e->set(exports, "version", e->string(STRATA_NODE_VERSION));
    add_tensors(*e, exports);
    add_ops(*e, exports);
    add_autograd(*e, exports);
    add_modes(*e, exports);
    add_cuda(*e, exports);
    add_graphed(*e, exports);
    add_optim(*e, exports);
    add_distributions(*e, exports);
    add_files(*e, exports);
    add_models(*e, exports);
    add_pretrained(*e, exports);
    add_runs(*e, exports);
    add_recordings(*e, exports);
    add_budgets(*e, exports);
    return exports;
  } catch (const std::exception& error) {
    bool pending = false;
    napi_is_exception_pending(env, &pending);
    if (!pending) napi_throw_error(env, nullptr, error.what());
    return nullptr;
  }
}
