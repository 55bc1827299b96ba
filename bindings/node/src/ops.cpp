// Every record as a function, as methods, as an in-place method and as a promise: one caller for all of them.

#include <iterator>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"
#include "strata/core/describe.h"
#include "strata/cuda/runtime.h"

namespace strata::node {
namespace {

std::vector<Value> call_now(Env& env, const OpInfo& op, std::vector<Value>& args, bool inplace) {
  if (!inplace && !records(args)) return op.op->call_boxed(args);
  const TapeGuard guard(env.mail.get());
  return inplace ? op.op->inplace_boxed(args) : op.op->call_boxed(args);
}

// The results after those that callers see are for gradient rules alone.
void hide(const OpInfo& op, std::vector<Value>& results) {
  const size_t shown = op.op->shown();
  if (results.size() <= shown) return;
  std::vector<Value> hidden(std::make_move_iterator(results.begin() + static_cast<ptrdiff_t>(shown)),
                            std::make_move_iterator(results.end()));
  results.resize(shown);
  bury(hidden);
}

template <bool whole>
napi_value call_op(Call& c) {
  const OpInfo& op = *static_cast<const OpInfo*>(c.data);
  std::vector<Value> args = to_values(c.env, op, c.args);
  std::vector<Value> results = call_now(c.env, op, args, false);
  bury(args);
  if (!whole) hide(op, results);
  return from_values(c.env, op, std::move(results));
}
napi_value call_method(Call& c) {
  c.args.insert(c.args.begin(), c.self);
  return call_op<false>(c);
}
napi_value call_inplace(Call& c) {
  const OpInfo& op = *static_cast<const OpInfo*>(c.data);
  c.args.insert(c.args.begin(), c.self);
  std::vector<Value> args = to_values(c.env, op, c.args);
  std::vector<Value> results = call_now(c.env, op, args, true);
  bury(args);
  bury(results);
  return c.self;
}

struct OpTask final : Task {
  OpTask(const OpInfo& o, std::vector<Value> a) : op(o), args(std::move(a)) { tape = records(args); }
  ~OpTask() override {
    bury(args);
    bury(results);
  }
  void run() override {
    results = op.op->call_boxed(args);
    for (const Value& v : results)
      if (const Tensor* t = std::get_if<Tensor>(&v); t && t->defined() && t->device().is_cuda())
        cuda::current_stream(t->device().index).synchronize();
  }
  napi_value finish(Env& env) override {
    hide(op, results);
    return from_values(env, op, std::move(results));
  }

  const OpInfo& op;
  std::vector<Value> args, results;
};
napi_value call_async(Call& c) {
  const OpInfo& op = *static_cast<const OpInfo*>(c.data);
  // The last argument is the cancel flag that lib/ops.js made of the signal, or null.
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  auto task = std::make_unique<OpTask>(op, to_values(c.env, op, std::span(c.args).subspan(1)));
  task->cancelled = std::move(flag);
  return Task::start(c.env, std::move(task));
}

// ops(): what lib/ops.js makes the functions from. `call` gives all results, the others those that callers see.
napi_value list_ops(Call& c) {
  Env& env = c.env;
  const std::vector<const OpInfo*> infos = op_infos();
  napi_value list = env.array(infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    const OpInfo& info = *infos[i];
    auto* data = const_cast<OpInfo*>(&info);
    napi_value o = env.object();
    const auto function = [&](const char* key, const std::string& name, auto* f) {
      env.set(o, key, env.function(name.c_str(), f, data));
    };
    env.set(o, "name", env.string(info.name));
    env.set(o, "internal", env.boolean(info.op->internal()));
    const std::vector<std::string_view> aliases = info.op->aliases();
    napi_value names = env.array(aliases.size());
    for (size_t a = 0; a < aliases.size(); ++a) env.put(names, static_cast<uint32_t>(a), env.string(aliases[a]));
    env.set(o, "aliases", names);
    function("call", info.name, entry<call_op<true>>);
    function("callAsync", info.name, entry<call_async>);
    if (info.op->shown() < info.results.size()) function("callShown", info.name, entry<call_op<false>>);
    if (info.method()) function("callMethod", info.name, entry<call_method>);
    if (info.op->has_inplace()) function("callInplace", info.inplace_name, entry<call_inplace>);
    env.put(list, static_cast<uint32_t>(i), o);
  }
  return list;
}

// The records as JSON.
napi_value describe_ops(Call& c) {
  return c.env.string(describe(OpBase::all()));
}

}  // namespace

void add_ops(Env& env, napi_value exports) {
  env.set(exports, "ops", env.function("ops", entry<list_ops>));
  env.set(exports, "describeOps", env.function("describeOps", entry<describe_ops>));
}

}  // namespace strata::node
