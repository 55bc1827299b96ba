// Recordings: st.record.

#include "strata/core/recording.h"

#include <iterator>
#include <memory>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "strata/core/dtype.h"
#include "strata/lab/step_costs.h"

namespace strata::node {
namespace {

using Shared = std::shared_ptr<const Recording>;

const Recording& recording_of(Call& c) {
  return **c.env.handle<Shared>(c[0]);
}
napi_value boxed(Env& env, Recording&& r) {
  return env.boxed(Shared(std::make_shared<const Recording>(std::move(r))));
}

// record(fn, values)
napi_value record_calls(Call& c) {
  Env& env = c.env;
  Recorder recorder({.values = env.truth(c[1], "record", "values")});
  env.made(napi_call_function, env.undefined(), c[0], size_t{0}, static_cast<const napi_value*>(nullptr));
  return boxed(env, recorder.finish());
}
napi_value read_recording(Call& c) {
  return boxed(c.env, Recording::from_text(c.env.text(c[0], "Recording", "the text")));
}
napi_value recording_text(Call& c) {
  return c.env.string(recording_of(c).to_text());
}
napi_value recording_string(Call& c) {
  return c.env.string(recording_of(c).to_string());
}
napi_value recording_size(Call& c) {
  return c.env.integer(static_cast<int64_t>(recording_of(c).calls.size()));
}
napi_value recording_peak(Call& c) {
  return c.env.integer(recording_of(c).peak_bytes().first);
}

napi_value value_object(Env& env, const Recording& r, ValueIndex v) {
  if (v.at < 0) return env.null();
  const RecordedValue& value = r.values[static_cast<size_t>(v.at)];
  napi_value o = env.object();
  env.set(o, "value", env.integer(v.at));
  env.set(o, "storage", env.integer(value.storage));
  env.set(o, "shape", env.dims(value.shape));
  env.set(o, "dtype", env.string(name_of(value.dtype)));
  env.set(o, "stride", env.dims(value.strides));
  env.set(o, "offset", env.integer(value.offset));
  return o;
}
napi_value value_list(Env& env, const Recording& r, const std::vector<ValueIndex>& all) {
  napi_value list = env.array(all.size());
  for (size_t i = 0; i < all.size(); ++i) env.put(list, static_cast<uint32_t>(i), value_object(env, r, all[i]));
  return list;
}
napi_value arg_object(Env& env, const Recording& r, const RecordedArg& arg) {
  return std::visit(
      [&](const auto& a) -> napi_value {
        using T = std::remove_cvref_t<decltype(a)>;
        if constexpr (std::is_same_v<T, ValueIndex>) {
          return value_object(env, r, a);
        } else if constexpr (std::is_same_v<T, std::vector<ValueIndex>>) {
          return value_list(env, r, a);
        } else {
          return from_value(env, Value(a));
        }
      },
      arg);
}

// recordingCall(recording, i)
napi_value recorded_call(Call& c) {
  constexpr std::string_view kForms[] = {"fresh", "inplace", "out"};
  Env& env = c.env;
  const Recording& r = recording_of(c);
  const int64_t i = env.whole(c[1], "Recording", "the call");
  check<IndexError>(i >= 0 && i < std::ssize(r.calls), "Recording", "call ", i, " of ", std::ssize(r.calls));
  const RecordedCall& call = r.calls[static_cast<size_t>(i)];
  napi_value o = env.object(), args = env.object();
  env.set(o, "op", env.string(call.op->name()));
  env.set(o, "form", env.string(kForms[static_cast<size_t>(call.form)]));
  env.set(o, "phase", env.string(name_of(call.phase)));
  env.set(o, "module", call.module ? env.string(*call.module) : env.null());
  env.set(o, "composed", env.boolean(call.composed));
  env.set(o, "work", env.boolean(r.is_work(static_cast<size_t>(i))));
  env.set(o, "parent", call.parent < 0 ? env.null() : env.integer(call.parent));
  env.set(o, "autocast", call.autocast ? env.string(name_of(call.autocast_dtype)) : env.null());
  env.set(o, "stream", env.integer(call.stream));
  const std::vector<SchemaArg>& names = call.op->schema().args;
  for (size_t k = 0; k < call.args.size() && k < names.size(); ++k)
    env.set(args, names[k].name.c_str(), arg_object(env, r, call.args[k]));
  env.set(o, "args", args);
  env.set(o, "targets", value_list(env, r, call.targets));
  env.set(o, "results", value_list(env, r, call.results));
  env.set(o, "flops", env.number(call.cost.flops));
  env.set(o, "bytes", env.number(call.cost.bytes));
  env.set(o, "seconds", env.number(call.seconds));
  return o;
}

napi_value recorded_storages(Call& c) {
  Env& env = c.env;
  const Recording& r = recording_of(c);
  napi_value list = env.array(r.storages.size());
  for (size_t i = 0; i < r.storages.size(); ++i) {
    const RecordedStorage& s = r.storages[i];
    napi_value o = env.object();
    env.set(o, "nbytes", env.integer(s.nbytes));
    env.set(o, "device", env.string(to_string(s.device)));
    env.set(o, "tag", env.string(memory::name_of(s.tag)));
    env.set(o, "born", env.integer(s.born));
    env.set(o, "freed", env.integer(s.freed));
    env.set(o, "kept", env.boolean(s.given.defined()));
    env.put(list, static_cast<uint32_t>(i), o);
  }
  return list;
}

// recordingTable(recording, by, {gb_s, gflops, matmul_f32, matmul_bf16}, rows)
napi_value recording_table(Call& c) {
  Env& env = c.env;
  const std::string by = env.text(c[1], "Recording.table", "by");
  size_t k = 0;
  while (k < std::size(lab::kCostBy) && lab::kCostBy[k] != by) ++k;
  check(k < std::size(lab::kCostBy), "Recording.table", "by is 'op', 'module' or 'phase', got '", by, "'");
  const auto limit = [&](const char* name) {
    napi_value v = env.get(c[2], name);
    return env.missing(v) ? 0.0 : env.real(v, "Recording.table", name);
  };
  const lab::Limits limits{limit("gb_s"), limit("gflops"), limit("matmul_f32"), limit("matmul_bf16")};
  const int64_t rows = env.whole(c[3], "Recording.table", "rows");
  check(rows >= 0, "Recording.table", "rows must not be negative, got ", rows);
  return env.string(
      lab::step_cost_table(recording_of(c), static_cast<lab::CostBy>(k), limits, static_cast<size_t>(rows)));
}

}  // namespace

void add_recordings(Env& env, napi_value exports) {
  env.add(exports, {{"record", entry<record_calls>},
                    {"readRecording", entry<read_recording>},
                    {"recordingText", entry<recording_text>},
                    {"recordingString", entry<recording_string>},
                    {"recordingSize", entry<recording_size>},
                    {"recordingPeak", entry<recording_peak>},
                    {"recordingCall", entry<recorded_call>},
                    {"recordingStorages", entry<recorded_storages>},
                    {"recordingTable", entry<recording_table>}});
}

}  // namespace strata::node
