// The tape from Python: modes, backward, functions with a gradient written in Python, hooks, checkpoint, gradcheck.

#include <memory>

#include "py.h"
#include "strata/autograd/anomaly.h"
#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/autograd/function.h"
#include "strata/autograd/gradcheck.h"
#include "strata/autograd/over_argument.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/derivatives/derivatives.h"

namespace strata::python {
namespace {

// Tensors of a Python result: a tensor, or a tuple or list of tensors and None.
TensorList tensors_of(nb::handle o, std::string_view who) {
  TensorList list;
  if (is_tensor(o.ptr())) {
    list.push_back(tensor_of(o.ptr()));
  } else if (!to_tensors(o.ptr(), list)) {
    if (PyErr_Occurred()) throw nb::python_error();
    throw nb::type_error((std::string(who) + ": a Tensor, or a tuple of Tensors, is wanted").c_str());
  }
  return list;
}
nb::object tuple_of(const TensorList& list) {
  return nb::steal(from_value(list));
}

// ---- scopes ---------------------------------------------------------------------------------------------------------

// A C++ scope as an object with enter and exit. It ends on the thread that began it.
template <class Scope>
struct Held1 {
  std::unique_ptr<Scope> scope;
};

// ---- functions ------------------------------------------------------------------------------------------------------

struct PyContext : FunctionCtx {
  nb::object needs;  // for every argument of forward, tensors or not
};

class PyFunctionNode final : public FunctionNode {
 public:
  PyFunctionNode(nb::object cls, nb::object context, std::string_view name, std::vector<int> positions, size_t arguments)
      : FunctionNode(name), ctx_(*nb::inst_ptr<PyContext>(context)), cls_(std::move(cls)), context_(std::move(context)),
        positions_(std::move(positions)), arguments_(arguments) {}

 protected:
  FunctionCtx& ctx() override { return ctx_; }
  TensorList call_backward(const TensorList& gy) override {
    nb::gil_scoped_acquire gil;
    nb::list args;
    args.append(context_.get());
    for (const Tensor& g : gy) args.append(wrapped(g));
    nb::object result = cls_.get().attr("backward")(*args);
    if (!PyTuple_Check(result.ptr()) && !PyList_Check(result.ptr())) result = nb::make_tuple(result);
    nb::object all = nb::steal(PySequence_Tuple(result.ptr()));
    const size_t n = nb::len(all);
    // Trailing None may be left out, and more of them given.
    for (size_t i = arguments_; i < n; ++i)
      if (!nb::handle(PyTuple_GetItem(all.ptr(), static_cast<Py_ssize_t>(i))).is_none())
        throw AutogradError(name(), cat("backward gave ", n, " gradients, forward took ", arguments_, " arguments"));
    if (n < arguments_)
      throw AutogradError(name(), cat("backward gave ", n, " gradients, forward took ", arguments_, " arguments"));
    TensorList grads;
    for (const int position : positions_) {
      PyObject* g = PyTuple_GetItem(all.ptr(), position);
      if (g == Py_None) {
        grads.emplace_back();
      } else if (is_tensor(g)) {
        grads.push_back(tensor_of(g));
      } else {
        PyErr_Format(PyExc_TypeError, "%s: backward gives Tensors or None, not %R", std::string(name()).c_str(), Py_TYPE(g));
        throw nb::python_error();
      }
    }
    return grads;
  }

 private:
  FunctionCtx& ctx_;
  Held cls_, context_;
  std::vector<int> positions_;
  size_t arguments_;
};

// Names of functions live as long as the program: nodes hold views of them.
std::string_view lasting_name(const std::string& name) {
  static std::vector<std::unique_ptr<std::string>>& all = *new std::vector<std::unique_ptr<std::string>>();
  for (const auto& s : all)
    if (*s == name) return *s;
  all.push_back(std::make_unique<std::string>(name));
  return *all.back();
}

nb::object apply_function(nb::object cls, nb::args args) {
  nb::object context = nb::type<PyContext>()();
  auto& ctx = *nb::inst_ptr<PyContext>(context);
  TensorList inputs;
  std::vector<int> positions;
  nb::list needs;
  for (size_t i = 0; i < args.size(); ++i) {
    PyObject* o = args[i].ptr();
    bool wants = false;
    if (is_tensor(o)) {
      inputs.push_back(tensor_of(o));
      positions.push_back(static_cast<int>(i));
      wants = grad_enabled() && inputs.back().requires_grad();
    }
    needs.append(nb::bool_(wants));
  }
  ctx.needs = nb::steal(PySequence_Tuple(needs.ptr()));
  const std::string_view name = lasting_name(nb::cast<std::string>(cls.attr("__name__")));
  auto* node = new PyFunctionNode(cls, context, name, std::move(positions), args.size());
  const Ref<Node> owner(node);
  node->begin(ctx, inputs);
  nb::object result;
  {
    NoGrad guard;
    result = cls.attr("forward")(context, *args);
  }
  const bool single = is_tensor(result.ptr());
  nb::object all = single ? nb::object(nb::make_tuple(result)) : nb::steal(PySequence_Tuple(result.ptr()));
  if (!all.is_valid()) throw nb::python_error();
  TensorList results;
  results.reserve(nb::len(all));
  for (nb::handle o : all)
    if (is_tensor(o.ptr())) results.push_back(tensor_of(o.ptr()));
  if (results.empty()) throw nb::type_error((std::string(name) + ": forward must return a Tensor or a tuple of them").c_str());
  std::vector<Tensor*> out;
  for (Tensor& t : results) out.push_back(&t);
  node->record(ctx, inputs, out);
  if (single) return results[0].same_as(tensor_of(result.ptr())) ? result : wrapped(results[0]);
  nb::list final;
  size_t at = 0;
  for (nb::handle o : all) {
    if (!is_tensor(o.ptr())) {
      final.append(o);
      continue;
    }
    final.append(results[at].same_as(tensor_of(o.ptr())) ? nb::borrow(o) : wrapped(results[at]));
    ++at;
  }
  return nb::steal(PySequence_Tuple(final.ptr()));
}

// ---- checkpoint and saved-tensor hooks ------------------------------------------------------------------------------

// A Python function over tensors among other arguments, in C++'s form. Copies share the Python objects.
struct Rerun {
  std::shared_ptr<Held> fn, args, kwargs;
  std::vector<int> positions;
  std::shared_ptr<Held> first;  // what the first call returned, whatever it was

  TensorList operator()(const TensorList& tensors) const {
    nb::gil_scoped_acquire gil;
    nb::list all = nb::steal<nb::list>(PySequence_List(args->get().ptr()));
    for (size_t i = 0; i < positions.size(); ++i)
      PyList_SetItem(all.ptr(), positions[i], wrap(tensors[i]));
    nb::object tuple = nb::steal(PyList_AsTuple(all.ptr()));
    nb::object result = nb::steal(PyObject_Call(fn->get().ptr(), tuple.ptr(), kwargs->get().ptr()));
    if (!result.is_valid()) throw_python();
    return tensors_of(result, "checkpoint");
  }
};

nb::object run_checkpoint(nb::object fn, nb::args args, nb::kwargs kwargs) {
  TensorList tensors;
  Rerun rerun{std::make_shared<Held>(std::move(fn)), std::make_shared<Held>(nb::object(args)),
              std::make_shared<Held>(nb::object(kwargs)), {}, {}};
  nb::list blank;
  for (size_t i = 0; i < args.size(); ++i) {
    PyObject* o = args[i].ptr();
    if (is_tensor(o)) {
      tensors.push_back(tensor_of(o));
      rerun.positions.push_back(static_cast<int>(i));
      blank.append(nb::none());  // kept by the engine, as any saved tensor
    } else {
      blank.append(nb::borrow(o));
    }
  }
  rerun.args = std::make_shared<Held>(nb::object(blank));
  const TensorList results = checkpoint(std::move(rerun), tensors);
  return results.size() == 1 ? wrapped(results[0]) : tuple_of(results);
}

// A Python function of so many tensors.
Rerun function_of(nb::object fn, size_t count) {
  Rerun f{std::make_shared<Held>(std::move(fn)), {}, std::make_shared<Held>(nb::object(nb::dict())), {}, {}};
  nb::list blank;
  for (size_t i = 0; i < count; ++i) {
    f.positions.push_back(static_cast<int>(i));
    blank.append(nb::none());
  }
  f.args = std::make_shared<Held>(nb::object(blank));
  return f;
}
// Of vjp, jvp and hvp: (outputs, products), tuples.
template <auto Derive>
nb::object products(nb::object fn, nb::handle inputs, nb::handle v, bool create_graph, bool strict) {
  const TensorList x = tensors_of(inputs, "derivatives"), ways = tensors_of(v, "derivatives");
  const Rerun f = function_of(std::move(fn), x.size());
  detail::Products found;
  {
    Released release;
    found = Derive(detail::tensor_fn_ref(f), x, ways, create_graph, strict);
  }
  return nb::make_tuple(tuple_of(found.first), tuple_of(found.second));
}
// Of jacobian and hessian: a tuple of tuples.
template <auto Derive>
nb::object matrix(nb::object fn, nb::handle inputs, bool create_graph, bool strict) {
  const TensorList x = tensors_of(inputs, "derivatives");
  const Rerun f = function_of(std::move(fn), x.size());
  std::vector<TensorList> found;
  {
    Released release;
    found = Derive(detail::tensor_fn_ref(f), x, create_graph, strict);
  }
  nb::list rows;
  for (const TensorList& row : found) rows.append(tuple_of(row));
  return nb::steal(PyList_AsTuple(rows.ptr()));
}

struct PySavedHooks final : SavedTensorHooks {
  PySavedHooks(nb::object p, nb::object u) : pack_fn(std::move(p)), unpack_fn(std::move(u)) {}
  std::shared_ptr<void> pack(const Tensor& t) override {
    nb::gil_scoped_acquire gil;
    return std::make_shared<Held>(pack_fn.get()(wrapped(t)));
  }
  Tensor unpack(const std::shared_ptr<void>& packed) override {
    nb::gil_scoped_acquire gil;
    nb::object o = unpack_fn.get()(static_cast<Held*>(packed.get())->get());
    if (!is_tensor(o.ptr())) throw nb::type_error("saved_tensors_hooks: unpack must return a Tensor");
    return tensor_of(o.ptr());
  }
  Held pack_fn, unpack_fn;
};

struct PyNode {
  Ref<Node> node;
};

}  // namespace

void bind_autograd(nb::module_& m) {
  m.def("_vjp", &products<detail::vjp>);
  m.def("_jvp", &products<detail::jvp>);
  m.def("_hvp", &products<detail::hvp>);
  m.def("_jacobian", &matrix<detail::jacobian>);
  m.def("_hessian", &matrix<detail::hessian>);
  m.def("_set_aside", [](nb::handle x) -> nb::object {
    const Tensor same = set_aside(own_tensor(x, "set_aside"));
    return same.defined() ? wrapped(same) : nb::none();
  });
  m.def("_put_over", [](nb::object x, const Tensor& y) {
    put_over(own_tensor(x, "put_over"), y);
    return x;
  });
  m.def("is_grad_enabled", [] { return grad_enabled(); });
  m.def("_set_grad_enabled", [](bool on) { return std::exchange(t_mode.grad_enabled, on); });
  m.def("backward", [](nb::handle outputs, nb::handle grads, std::optional<bool> retain, bool create_graph) {
          const TensorList ys = tensors_of(outputs, "backward");
          const TensorList gs = grads.is_none() ? TensorList() : tensors_of(grads, "backward");
          Released release;
          backward(ys, gs, retain.value_or(create_graph), create_graph);
        },
        nb::arg("tensors"), nb::arg("grad_tensors") = nb::none(), nb::arg("retain_graph") = nb::none(),
        nb::arg("create_graph") = false, "Adds the gradients of the tensors' weighted sum to every leaf's grad.");
  m.def("grad", [](nb::handle outputs, nb::handle inputs, nb::handle grads, std::optional<bool> retain, bool create_graph,
                   bool allow_unused) {
          const TensorList ys = tensors_of(outputs, "grad"), xs = tensors_of(inputs, "grad");
          const TensorList gs = grads.is_none() ? TensorList() : tensors_of(grads, "grad");
          TensorList result;
          {
            Released release;
            result = grad(ys, xs, gs, create_graph, retain.value_or(create_graph), allow_unused);
          }
          return tuple_of(result);
        },
        nb::arg("outputs"), nb::arg("inputs"), nb::arg("grad_outputs") = nb::none(), nb::arg("retain_graph") = nb::none(),
        nb::arg("create_graph") = false, nb::arg("allow_unused") = false,
        "The gradients of the outputs' weighted sum for the inputs.");

  nb::class_<PyContext>(m, "FunctionCtx", nb::dynamic_attr(), "What forward() leaves for backward().")
      .def(nb::init<>())
      .def("save_for_backward", [](PyContext& c, nb::args tensors) { c.save_for_backward(tensors_of(tensors, "save_for_backward")); },
           "Keeps tensors (or None) for backward.")
      .def_prop_ro("saved_tensors", [](PyContext& c) { return tuple_of(c.saved_tensors()); }, "What save_for_backward kept.")
      .def("mark_non_differentiable", [](PyContext& c, nb::args tensors) {
        for (const Tensor& t : tensors_of(tensors, "mark_non_differentiable")) c.mark_non_differentiable(t);
      })
      .def("set_materialize_grads", &PyContext::set_materialize_grads, nb::arg("value"))
      .def_prop_ro("needs_input_grad", [](const PyContext& c) { return c.needs; },
                   "For each argument of forward whether it wants a gradient.");
  m.def("apply_function", apply_function, nb::arg("cls"), nb::arg("args"),
        "Calls cls.forward(ctx, *args) unrecorded and makes cls.backward(ctx, *grads) its gradient.");
  m.def("checkpoint", run_checkpoint, nb::arg("function"), nb::arg("args"), nb::arg("kwargs"),
        "function(*args), keeping only the arguments; what backward needs is computed again.");

  nb::class_<PyNode>(m, "Node", "The recorded op behind a tensor.")
      .def("name", [](const PyNode& n) { return std::string(n.node->name()); })
      .def_prop_ro("next_functions", [](const PyNode& n) {
        nb::list all;
        for (const Edge& e : n.node->edges) {
          nb::object node = e.node ? nb::cast(PyNode{e.node}) : nb::none();
          all.append(nb::make_tuple(node, e.index));
        }
        return nb::steal(PySequence_Tuple(all.ptr()));
      })
      .def("__repr__", [](const PyNode& n) { return "<" + std::string(n.node->name()) + ">"; });
  m.def("_grad_fn", [](const Tensor& t) -> nb::object {
    const Ref<Node> node = t.grad_fn();
    return node ? nb::cast(PyNode{node}) : nb::none();
  });

  nb::class_<Held1<AutocastScope>>(m, "AutocastScope")
      .def(nb::init<>())
      .def("enter", [](Held1<AutocastScope>& s, DType t, bool on, bool low) { s.scope = std::make_unique<AutocastScope>(t, on, low); },
           nb::arg("dtype"), nb::arg("enabled") = true, nb::arg("low_gradients") = false)
      .def("enter_fp8", [](Held1<AutocastScope>& s, const std::string& scaling, const TensorList& exclude, bool on, bool low) {
             s.scope = std::make_unique<AutocastScope>(Fp8Options{.scaling = scaling, .exclude = exclude}, on, low);
           }, nb::arg("scaling"), nb::arg("exclude"), nb::arg("enabled") = true, nb::arg("low_gradients") = false)
      .def("exit", [](Held1<AutocastScope>& s) { s.scope.reset(); });
  m.def("is_autocast_enabled", [] { return autocast_enabled(); });
  m.def("get_autocast_dtype", [] { return autocast_dtype(); });
  nb::class_<Held1<AnomalyScope>>(m, "AnomalyScope")
      .def(nb::init<>())
      .def("enter", [](Held1<AnomalyScope>& s) { s.scope = std::make_unique<AnomalyScope>(); })
      .def("exit", [](Held1<AnomalyScope>& s) { s.scope.reset(); });
  nb::class_<Held1<DeviceScope>>(m, "DeviceScope")
      .def(nb::init<>())
      .def("enter", [](Held1<DeviceScope>& s, Device d) { s.scope = std::make_unique<DeviceScope>(d); })
      .def("exit", [](Held1<DeviceScope>& s) { s.scope.reset(); });
  nb::class_<Held1<SavedTensorHooksScope>>(m, "SavedTensorHooksScope")
      .def(nb::init<>())
      .def("enter", [](Held1<SavedTensorHooksScope>& s, nb::object pack, nb::object unpack) {
        s.scope = std::make_unique<SavedTensorHooksScope>(std::make_shared<PySavedHooks>(std::move(pack), std::move(unpack)));
      })
      .def("exit", [](Held1<SavedTensorHooksScope>& s) { s.scope.reset(); });

  const auto check = [](bool second, nb::object fn, nb::handle inputs, double eps, double atol, double rtol) {
    const TensorList xs = tensors_of(inputs, "gradcheck");
    auto call = [&](const TensorList& in) {
      nb::gil_scoped_acquire gil;
      nb::list args;
      for (const Tensor& t : in) args.append(wrapped(t));
      return tensors_of(fn(*args), "gradcheck");
    };
    GradcheckResult r;
    {
      Released release;
      const GradcheckOptions options{eps, atol, rtol};
      r = second ? gradgradcheck(call, xs, options) : gradcheck(call, xs, options);
    }
    return nb::make_tuple(r.ok, r.worst_error, r.report);
  };
  m.def("_gradcheck", [check](nb::object fn, nb::handle inputs, double eps, double atol, double rtol) {
    return check(false, std::move(fn), inputs, eps, atol, rtol);
  });
  m.def("_gradgradcheck", [check](nb::object fn, nb::handle inputs, double eps, double atol, double rtol) {
    return check(true, std::move(fn), inputs, eps, atol, rtol);
  });
}

}  // namespace strata::python
