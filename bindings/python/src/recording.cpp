// Recordings: st.record.

#include "strata/core/recording.h"

#include <memory>

#include "py.h"
#include "strata/core/dtype.h"
#include "strata/lab/step_costs.h"

namespace strata::python {
namespace {

// A Recording that Python objects share; a Replay keeps its own alive.
using Shared = std::shared_ptr<const Recording>;

struct PyRecording {
  Shared r;
};
struct PyReplay {
  explicit PyReplay(Shared recording) : r(std::move(recording)), replay(*r) {}
  Shared r;
  Replay replay;
};

nb::dict value_dict(const Recording& r, ValueIndex v) {
  const RecordedValue& value = r.values[static_cast<size_t>(v.at)];
  nb::dict d;
  d["value"] = v.at;
  d["storage"] = value.storage;
  d["shape"] = nb::steal(from_shape(value.shape));
  d["dtype"] = nb::steal(from_dtype(value.dtype));
  d["stride"] = nb::steal(from_dims(value.strides));
  d["offset"] = value.offset;
  return d;
}
nb::object optional_value(const Recording& r, ValueIndex v) {
  return v.at < 0 ? nb::none() : nb::object(value_dict(r, v));
}
nb::object list_of(const Recording& r, const std::vector<ValueIndex>& all) {
  nb::list l;
  for (const ValueIndex v : all) l.append(optional_value(r, v));
  return l;
}

nb::object arg_object(const Recording& r, const RecordedArg& arg) {
  if (const auto* v = std::get_if<ValueIndex>(&arg)) return optional_value(r, *v);
  if (const auto* l = std::get_if<std::vector<ValueIndex>>(&arg)) return list_of(r, *l);
  return std::visit(
      [](const auto& a) -> nb::object {
        using T = std::remove_cvref_t<decltype(a)>;
        if constexpr (std::is_same_v<T, ValueIndex> || std::is_same_v<T, std::vector<ValueIndex>>) {
          return nb::none();
        } else {
          return nb::steal(from_value(a));
        }
      },
      arg);
}

nb::dict call_dict(const Recording& r, size_t i) {
  constexpr const char* kForms[] = {"fresh", "inplace", "out"};
  const RecordedCall& c = r.calls[i];
  nb::dict d, args;
  d["op"] = nb::str(c.op->name().data(), c.op->name().size());
  d["form"] = kForms[static_cast<int>(c.form)];
  const std::string_view phase = name_of(c.phase);
  d["phase"] = nb::str(phase.data(), phase.size());
  d["module"] = c.module ? nb::object(nb::str(c.module->c_str(), c.module->size())) : nb::none();
  d["composed"] = c.composed;
  d["work"] = r.is_work(i);
  d["parent"] = c.parent < 0 ? nb::none() : nb::object(nb::int_(c.parent));
  d["autocast"] = c.autocast ? nb::steal(from_dtype(c.autocast_dtype)) : nb::none();
  d["stream"] = c.stream;
  const std::vector<SchemaArg>& names = c.op->schema().args;
  for (size_t k = 0; k < c.args.size() && k < names.size(); ++k) args[names[k].name.c_str()] = arg_object(r, c.args[k]);
  d["args"] = args;
  d["targets"] = list_of(r, c.targets);
  d["results"] = list_of(r, c.results);
  d["flops"] = c.cost.flops;
  d["bytes"] = c.cost.bytes;
  d["seconds"] = c.seconds;
  return d;
}

nb::dict storage_dict(const RecordedStorage& s) {
  nb::dict d;
  const std::string_view tag = memory::name_of(s.tag);
  d["nbytes"] = s.nbytes;
  d["device"] = nb::steal(from_device(s.device));
  d["tag"] = nb::str(tag.data(), tag.size());
  d["born"] = s.born;
  d["freed"] = s.freed;
  d["kept"] = s.given.defined();
  return d;
}

lab::CostBy by_name(const std::string& by) {
  if (by == "op") return lab::CostBy::op;
  if (by == "module") return lab::CostBy::module;
  check(by == "phase", "Recording.table", "by is 'op', 'module' or 'phase', got '", by, "'");
  return lab::CostBy::phase;
}

int32_t index_in(int64_t i, size_t n, const char* what) {
  if (i < 0) i += static_cast<int64_t>(n);
  check<IndexError>(i >= 0 && i < static_cast<int64_t>(n), "Recording", what, " ", i, " of ", n);
  return static_cast<int32_t>(i);
}

}  // namespace

void bind_recording(nb::module_& m) {
  nb::class_<PyReplay>(m, "Replay", "A Recording that is run again: the same kernels, the same bits.")
      .def("give", [](PyReplay& p, int32_t storage, const Tensor& tensor) { p.replay.give(storage, tensor); }, nb::arg("storage"), nb::arg("tensor"), "The bytes of a storage that no call made.")
      .def("run", [](PyReplay& p) {
        const Released release;
        p.replay.run();
      }, "Runs all calls.")
      .def("value", [](const PyReplay& p, int64_t index) {
        return wrapped(p.replay.value({index_in(index, p.r->values.size(), "value")}));
      }, nb::arg("index"), "A value whose storage outlived the last call.");
  nb::class_<PyRecording>(m, "Recording", "The calls of a step with their values; st.record makes one.")
      .def("__len__", [](const PyRecording& p) { return p.r->calls.size(); })
      .def("__getitem__", [](const PyRecording& p, int64_t i) {
        return call_dict(*p.r, static_cast<size_t>(index_in(i, p.r->calls.size(), "call")));
      })
      .def("__str__", [](const PyRecording& p) { return p.r->to_string(); })
      .def("storages", [](const PyRecording& p) {
        nb::list all;
        for (const RecordedStorage& s : p.r->storages) all.append(storage_dict(s));
        return all;
      }, "Every storage: bytes, device, tag, the calls that it lived through.")
      .def("to_text", [](const PyRecording& p) { return p.r->to_text(); }, "The whole of it, for a file.")
      .def_static("from_text", [](const std::string& text) {
        return PyRecording{std::make_shared<const Recording>(Recording::from_text(text))};
      }, nb::arg("text"), "What to_text() wrote.")
      .def("peak_bytes", [](const PyRecording& p) { return p.r->peak_bytes().first; },
           "The most that storages take at once.")
      .def("live_bytes", [](const PyRecording& p) { return p.r->live_bytes(); }, "What they take while each call runs.")
      .def("table", [](const PyRecording& p, const std::string& by, double gb_s, double gflops, double matmul_f32,
                       double matmul_bf16, size_t rows) {
        return lab::step_cost_table(*p.r, by_name(by), {gb_s, gflops, matmul_f32, matmul_bf16}, rows);
      }, nb::arg("by") = "op", nb::kw_only(), nb::arg("gb_s") = 0.0, nb::arg("gflops") = 0.0, nb::arg("matmul_f32") = 0.0,
           nb::arg("matmul_bf16") = 0.0, nb::arg("rows") = size_t{20},
           "Time and bytes by op, module or phase, beside the limits that are given.")
      .def("replay", [](const PyRecording& p) { return PyReplay(p.r); }, "The same calls, to run again.");
  m.def("_record", [](const nb::object& fn, bool values) {
    Recorder recorder({.values = values});
    fn();
    return PyRecording{std::make_shared<const Recording>(recorder.finish())};
  }, nb::arg("fn"), nb::arg("values"));
  m.def("_enter_module", [](const std::string& path) -> uintptr_t {
    const std::string* before = memory::detail::t_caller.module;
    memory::detail::t_caller.module = memory::detail::module_name(path);
    return reinterpret_cast<uintptr_t>(before);
  });
  m.def("_leave_module", [](uintptr_t before) {
    memory::detail::t_caller.module = reinterpret_cast<const std::string*>(before);
  });
}

}  // namespace strata::python
