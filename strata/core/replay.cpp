#include <algorithm>

#include "strata/core/recording.h"

namespace strata {
namespace {

std::string name_of_call(const Recording& r, size_t i) {
  return cat("call ", i, " (", r.calls[i].op->name(), ")");
}

TensorMeta bytes_meta(int64_t n, Device device) {
  return {{n}, DType::u8, device, std::nullopt};
}

}  // namespace

Replay::Replay(const Recording& recording) : recording_(recording), storages_(recording.storages.size()) {
  for (size_t i = 0; i < storages_.size(); ++i) {
    const RecordedStorage& s = recording.storages[i];
    if (s.given.defined()) storages_[i] = s.given.clone();
    if (s.born < 0 && s.device.is_meta()) storages_[i] = empty(bytes_meta(s.nbytes, s.device));
  }
}

void Replay::give(int32_t storage, const Tensor& bytes) {
  check(storage >= 0 && static_cast<size_t>(storage) < storages_.size(), "Replay", "there is no storage ", storage,
        ": the recording has ", storages_.size());
  const RecordedStorage& s = recording_.storages[static_cast<size_t>(storage)];
  check(s.born < 0, "Replay", "storage ", storage, " is made by call ", s.born, ": only what no call makes is given");
  check(bytes.defined() && bytes.nbytes() == s.nbytes && bytes.device() == s.device, "Replay", "storage ", storage,
        " takes ", s.nbytes, " bytes on ", s.device, ", got ", bytes);
  const NoGrad guard;
  const Tensor own = bytes.detach().contiguous().clone();
  storages_[static_cast<size_t>(storage)] = detail::storage_bytes(own.storage());
}

Tensor Replay::value(ValueIndex v) const {
  if (v.at < 0) return {};
  check(static_cast<size_t>(v.at) < recording_.values.size(), "Replay", "there is no value ", v.at);
  const RecordedValue& value = recording_.values[static_cast<size_t>(v.at)];
  const Tensor& bytes = storages_[static_cast<size_t>(value.storage)];
  check(bytes.defined(), "Replay", "value ", v.at, " is in storage ", value.storage,
        ", whose bytes are not there: they were not kept, or it is not made yet, or was freed");
  Tensor t = alias(bytes, value.shape, value.strides, value.offset);
  t.impl().dtype = value.dtype;
  t.impl().wrapped_number = value.number;
  return t;
}

Value Replay::value_of(const RecordedArg& arg, size_t call) const {
  try {
    return std::visit(
        [&](const auto& a) -> Value {
          using T = std::remove_cvref_t<decltype(a)>;
          if constexpr (std::is_same_v<T, ValueIndex>) {
            return a.at < 0 ? Value() : Value(value(a));
          } else if constexpr (std::is_same_v<T, std::vector<ValueIndex>>) {
            TensorList all;
            for (const ValueIndex v : a) all.push_back(value(v));
            return all;
          } else {
            return a;
          }
        },
        arg);
  } catch (const ValueError& e) {
    throw ValueError("Replay", cat(name_of_call(recording_, call), ": ", e.what()));
  }
}

void Replay::run_call(size_t i) {
  const RecordedCall& c = recording_.calls[i];
  std::vector<Value> args;
  args.reserve(c.args.size());
  for (const RecordedArg& a : c.args) args.push_back(value_of(a, i));
  std::vector<Value> given;
  if (c.form == Form::out) {
    const std::vector<Value> fresh = c.op->call_boxed(args);
    Tensor target = value(c.targets.at(0));
    target.copy_(std::get<Tensor>(fresh.at(0)));
    given = {target};
  } else {
    given = c.form == Form::inplace ? c.op->inplace_boxed(args) : c.op->call_boxed(args);
  }
  TensorList results;
  for (Value& v : given) {
    if (auto* list = std::get_if<TensorList>(&v)) {
      for (Tensor& t : *list) results.push_back(std::move(t));
    } else {
      results.push_back(std::holds_alternative<Tensor>(v) ? std::get<Tensor>(v) : Tensor());
    }
  }
  check(results.size() == c.results.size(), "Replay", name_of_call(recording_, i), " gave ", results.size(),
        " results, the recording has ", c.results.size());
  for (size_t k = 0; k < results.size(); ++k) {
    const Tensor& t = results[k];
    check((c.results[k].at >= 0) == t.defined(), "Replay", name_of_call(recording_, i), ": result ", k,
          " is undefined here or there");
    if (!t.defined()) continue;
    const RecordedValue& v = recording_.values[static_cast<size_t>(c.results[k].at)];
    const bool same =
        t.shape() == v.shape && t.dtype() == v.dtype && t.strides() == v.strides && t.storage_offset() == v.offset;
    check(same, "Replay", name_of_call(recording_, i), ": result ", k, " is ", t, " with strides ", t.strides(), " at ",
          t.storage_offset(), ", recorded was ", v.shape, " ", v.dtype, " with strides ", v.strides, " at ", v.offset);
    Tensor& bytes = storages_[static_cast<size_t>(v.storage)];
    if (bytes.defined()) {
      check(bytes.storage().get() == t.storage().get(), "Replay", name_of_call(recording_, i), ": result ", k,
            " has memory of its own here, and shared another value's in the recording");
      continue;
    }
    bytes = detail::storage_bytes(t.storage());
  }
}

void Replay::run() {
  const detail::ThreadModeScope mode({false, t_mode.unusual & kObserved});  // what was cast is cast by calls
  // What ends before a call is let go there.
  std::vector<std::vector<int32_t>> ends(recording_.calls.size() + 1);
  for (size_t s = 0; s < storages_.size(); ++s) {
    const auto freed = static_cast<size_t>(std::max(recording_.storages[s].freed, 0));
    if (freed < recording_.calls.size()) ends[freed].push_back(static_cast<int32_t>(s));
  }
  size_t write = 0;
  for (size_t i = 0; i < recording_.calls.size(); ++i) {
    for (const int32_t s : ends[i]) storages_[static_cast<size_t>(s)] = {};
    for (; write < recording_.writes.size() && recording_.writes[write].call <= static_cast<int32_t>(i); ++write) {
      const RecordedWrite& w = recording_.writes[write];
      check(w.given.defined(), "Replay", "storage ", w.storage, " was written before ", name_of_call(recording_, i),
            " by no call, and the bytes were not kept: record with values = true");
      storages_[static_cast<size_t>(w.storage)].copy_(w.given);
    }
    if (recording_.is_work(i)) run_call(i);
  }
}

}  // namespace strata
