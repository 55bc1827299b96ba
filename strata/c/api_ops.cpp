// Ops by name, and plugins.

#include <map>
#include <mutex>
#include <string>

#include "strata/c/handles.h"
#include "strata/c/plugin.h"
#include "strata/core/describe.h"

using namespace strata;
using namespace strata::c;

namespace {

const OpBase& need_op(const strata_op* op, const char* function) {
  need(op, function, "the op");
  return *op_of(op);
}

// The records' texts are views, without a final 0.
struct Texts {
  std::string name, schema, doc;
};
const Texts& texts(const strata_op* handle) {
  static std::mutex mutex;
  static std::map<const strata_op*, Texts> all;
  const std::lock_guard lock(mutex);
  const auto found = all.find(handle);
  if (found != all.end()) return found->second;
  const OpBase& op = *op_of(handle);
  return all[handle] = {std::string(op.name()), std::string(op.schema_text()), std::string(op.doc())};
}

void call(const OpBase& op, const strata_value* args, size_t num_args, strata_value* results, size_t* num_results) {
  need(num_results, op.name(), "num_results");
  const size_t room = *num_results, wanted = op.schema().results.size();
  check(room >= wanted, op.name(), "gives ", wanted, " results, there is room for ", room);
  need(results, op.name(), "results");
  const std::vector<Value> got = op.call_boxed(values_of(args, num_args, op.name()));
  for (size_t i = 0; i < got.size(); ++i) results[i] = give(got[i]);
  *num_results = got.size();
}

}  // namespace

size_t strata_op_count(void) {
  return guarded_or<size_t>(0, [] { return OpBase::all().size(); });
}

const strata_op* strata_op_at(size_t index) {
  return guarded_or<const strata_op*>(nullptr, [&]() -> const strata_op* {
    const std::vector<const OpBase*> all = OpBase::all();
    return index < all.size() ? handle_of(all[index]) : nullptr;
  });
}

const strata_op* strata_op_find(const char* name) {
  return guarded_or<const strata_op*>(nullptr, [&]() { return name ? handle_of(OpBase::find(name)) : nullptr; });
}

const char* strata_op_name(const strata_op* op) {
  return guarded_or<const char*>("", [&] { return op ? texts(op).name.c_str() : ""; });
}
const char* strata_op_schema(const strata_op* op) {
  return guarded_or<const char*>("", [&] { return op ? texts(op).schema.c_str() : ""; });
}
const char* strata_op_doc(const strata_op* op) {
  return guarded_or<const char*>("", [&] { return op ? texts(op).doc.c_str() : ""; });
}

const char* strata_describe_ops(void) {
  return guarded_or<const char*>("", [] {
    thread_local std::string text;
    text = describe(OpBase::all());
    return text.c_str();
  });
}

strata_status strata_op_call(const strata_op* op, const strata_value* args, size_t num_args, strata_value* results,
                             size_t* num_results) {
  return guarded([&] { call(need_op(op, "strata_op_call"), args, num_args, results, num_results); });
}

strata_status strata_op_call_inplace(const strata_op* op, const strata_value* args, size_t num_args) {
  return guarded([&] {
    const OpBase& o = need_op(op, "strata_op_call_inplace");
    o.inplace_boxed(values_of(args, num_args, o.name()));
  });
}

strata_status strata_call(const char* name, const strata_value* args, size_t num_args, strata_value* results,
                          size_t* num_results) {
  return guarded([&] {
    need(name, "strata_call", "the op's name");
    const OpBase* op = OpBase::find(name);
    check(op != nullptr, "strata_call", "there is no op '", name, "'");
    call(*op, args, num_args, results, num_results);
  });
}

strata_status strata_plugin_load(const char* path) {
  return guarded([&] {
    need(path, "strata_plugin_load", "the path");
    load_plugin(path);
  });
}
