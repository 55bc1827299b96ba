// Every record as a function, as methods, as an in-place method and as a promise: one caller for all of them.

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"
#include "strata/cuda/runtime.h"

namespace strata::node {
namespace {

std::vector<Value> call_now(Env& env, const OpInfo& op, std::vector<Value>& args, bool inplace) {
  if (!inplace && !records(args)) return op.op->call_boxed(args);
  const TapeGuard guard(env.mail.get());
  return inplace ? op.op->inplace_boxed(args) : op.op->call_boxed(args);
}

napi_value call_op(Call& c) {
  const OpInfo& op = *static_cast<const OpInfo*>(c.data);
  std::vector<Value> args = to_values(c.env, op, c.args);
  std::vector<Value> results = call_now(c.env, op, args, false);
  bury(args);
  return from_values(c.env, op, std::move(results));
}
napi_value call_method(Call& c) {
  c.args.insert(c.args.begin(), c.self);
  return call_op(c);
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
  napi_value finish(Env& env) override { return from_values(env, op, std::move(results)); }

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

// ops(): what the declarations and lib/ are made from.
napi_value list_ops(Call& c) {
  Env& env = c.env;
  const std::vector<const OpInfo*> infos = op_infos();
  napi_value list = env.array(infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    const OpInfo& info = *infos[i];
    const Schema& schema = info.op->schema();
    auto* data = const_cast<OpInfo*>(&info);
    napi_value o = env.object();
    env.set(o, "name", env.string(info.name));
    env.set(o, "schema", env.string(info.op->schema_text()));
    env.set(o, "doc", env.string(info.op->doc()));
    env.set(o, "family", env.string(info.op->family()));
    env.set(o, "inplace", env.boolean(info.op->can_inplace()));
    env.set(o, "method", env.boolean(info.method()));
    napi_value args = env.array(schema.args.size());
    for (size_t a = 0; a < schema.args.size(); ++a) {
      napi_value arg = env.object();
      env.set(arg, "name", env.string(schema.args[a].name));
      env.set(arg, "type", env.string(schema.args[a].type));
      env.set(arg, "hasDefault", env.boolean(schema.args[a].default_value.has_value()));
      if (schema.args[a].default_value) env.set(arg, "default", from_value(env, Value(*schema.args[a].default_value)));
      env.put(args, static_cast<uint32_t>(a), arg);
    }
    env.set(o, "args", args);
    napi_value results = env.array(schema.results.size());
    for (size_t r = 0; r < schema.results.size(); ++r) {
      napi_value result = env.object();
      env.set(result, "name", env.string(info.results[r]));
      env.set(result, "type", env.string(schema.results[r].type));
      env.put(results, static_cast<uint32_t>(r), result);
    }
    env.set(o, "results", results);
    env.set(o, "call", env.function(info.name.c_str(), entry<call_op>, data));
    env.set(o, "callAsync", env.function(info.name.c_str(), entry<call_async>, data));
    if (info.method()) env.set(o, "callMethod", env.function(info.name.c_str(), entry<call_method>, data));
    if (info.op->can_inplace())
      env.set(o, "callInplace", env.function(info.inplace_name.c_str(), entry<call_inplace>, data));
    env.put(list, static_cast<uint32_t>(i), o);
  }
  return list;
}

}  // namespace

void add_ops(Env& env, napi_value exports) {
  env.set(exports, "ops", env.function("ops", entry<list_ops>));
}

}  // namespace strata::node
