// Steps as graphs: strata/_graphed.py takes arguments and results apart, the rest is the engine's.

#include <memory>

#include "py.h"
#include "strata/core/error.h"
#include "strata/cuda/graph.h"
#include "strata/optim/graphed.h"

namespace strata::python {
namespace {

// Not an error of the step's: nothing runs again after it.
struct Stop {
  nb::python_error error;
};

TensorList tensors_in(nb::handle o) {
  TensorList list;
  if (to_tensors(o.ptr(), list)) return list;
  if (PyErr_Occurred()) throw nb::python_error();
  throw nb::type_error("graphed: a list of tensors is wanted");
}

nb::tuple call_graphed(detail::GraphedSteps& steps, nb::handle tensors, nb::bytes rest, nb::object fn) {
  auto step = [&](const TensorList& in) {
    nb::object given = nb::steal(from_value(in));
    nb::object made = nb::steal(PyObject_CallFunctionObjArgs(fn.ptr(), given.ptr(), nullptr));
    if (!made.is_valid()) {
      if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_SystemExit))
        throw Stop{nb::python_error()};
      throw_python();
    }
    return detail::GraphedResult{tensors_in(made[0]), std::make_shared<Held>(nb::object(made[1]))};
  };
  const TensorList in = tensors_in(tensors);
  try {
    const detail::GraphedResult r =
        steps.call(in, {static_cast<const char*>(rest.data()), rest.size()}, detail::GraphedCall(step));
    return nb::make_tuple(nb::steal(from_value(r.tensors)), nb::borrow(static_cast<Held*>(r.rest.get())->get()));
  } catch (Stop& s) {
    throw nb::python_error(std::move(s.error));
  }
}

}  // namespace

void bind_graphed(nb::module_& m) {
  using detail::GraphedSteps;
  nb::class_<GraphedSteps>(m, "GraphedSteps", "The graphs of one step.")
      .def(
          "__init__",
          [](GraphedSteps* self, int warmup, int most, bool fallback) {
            new (self) GraphedSteps({.warmup = warmup, .most = most, .fallback = fallback});
          },
          nb::arg("warmup"), nb::arg("most"), nb::arg("fallback"))
      .def("call", &call_graphed, nb::arg("tensors"), nb::arg("rest"), nb::arg("step"),
           "The step's tensors and the rest of its result.")
      .def_prop_ro("graphs", &GraphedSteps::graphs)
      .def_prop_ro("captures", &GraphedSteps::captures)
      .def_prop_ro("replays", &GraphedSteps::replays)
      .def_prop_ro("note", &GraphedSteps::note)
      .def("clear", &GraphedSteps::clear);
  m.def(
      "cuda_before_replays",
      [](nb::object fn) {
        const auto held = std::make_shared<Held>(std::move(fn));
        cuda::before_replays(held, [held] {
          const nb::gil_scoped_acquire gil;
          const nb::object done = nb::steal(PyObject_CallFunctionObjArgs(held->get().ptr(), nullptr));
          if (!done.is_valid()) throw_python();
        });
      },
      nb::arg("function"), "Has the graph that this thread captures call the function before each replay.");
}

}  // namespace strata::python
