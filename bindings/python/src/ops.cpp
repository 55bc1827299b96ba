// One generic caller for every op record: the boxed call, and its results as Python's. Where a record's C++ signature
// is one of the commonest, the call goes straight to it instead of through boxes.

#include "named.h"
#include "op_info.h"

#include <structmember.h>

#include <algorithm>

#include "strata/core/describe.h"
#include "strata/core/error.h"
#include "strata/core/saves.h"
#include "strata/ops/elementwise/elementwise.h"

namespace strata::python {
namespace {

struct PyOp {
  PyObject_HEAD vectorcallfunc vectorcall;
  OpInfo* info;
  PyObject* name;  // the record's, or an alias; in place with _
  bool inplace;
  bool whole;  // gives all results, not only those that callers see
};

PyTypeObject *g_op_type, *g_method_type;

PyObject* results_of(const OpInfo& info, std::span<const Value> results, bool whole) {
  if (!whole) results = results.first(std::min(results.size(), info.op->shown()));
  if (results.size() == 1) return from_value(results[0]);
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(results.size()));
  for (size_t i = 0; tuple && i < results.size(); ++i)
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), from_value(results[i]));
  PyObject* type = whole ? info.result_type : info.shown_type;
  if (!tuple || !type) return tuple;
  PyObject* named = PyObject_Call(type, tuple, nullptr);
  Py_DECREF(tuple);
  return named;
}

// Whether backward of an in-place call reads what the call writes over. PyTorch then keeps a copy, and so does
// written_over().
bool reads_what_it_writes(const OpInfo& info, std::span<const Value> args) {
  if (!grad_enabled()) return false;
  uint64_t wanting = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const Tensor* t = std::get_if<Tensor>(&args[i]);
    bool wants = t && t->defined() && t->requires_grad();
    if (const TensorList* list = std::get_if<TensorList>(&args[i]))
      for (const Tensor& e : *list) wants |= e.defined() && e.requires_grad();
    if (wants) wanting |= uint64_t{1} << i;
  }
  const Tensor& x = std::get<Tensor>(args[0]);
  if (!wanting || (x.requires_grad() && x.is_leaf())) return false;  // a leaf is refused where it always was
  return saves_argument(*info.op, 0, wanting);
}
void written_over(const OpInfo& info, Values& values) {
  Tensor x = std::get<Tensor>(values.all()[0]);
  std::vector<Value> args(values.all().begin(), values.all().end());
  args[0] = x.clone();
  x.copy_(std::get<Tensor>(info.op->call_boxed(args)[0]));
}

const NumberForms* number_forms(std::string_view op) {
  static constexpr NumberForms kForms[] = {
      {"add", [](const Tensor& x, Scalar v) { return add(x, v); },
       [](Tensor& x, Scalar v) -> Tensor& { return x.add_(v); }},
      {"sub", [](const Tensor& x, Scalar v) { return sub(x, v); },
       [](Tensor& x, Scalar v) -> Tensor& { return sub_(x, v); }},
      {"mul", [](const Tensor& x, Scalar v) { return mul(x, v); },
       [](Tensor& x, Scalar v) -> Tensor& { return x.mul_(v); }},
      {"div", [](const Tensor& x, Scalar v) { return div(x, v); },
       [](Tensor& x, Scalar v) -> Tensor& { return div_(x, v); }},
  };
  for (const NumberForms& f : kForms)
    if (f.op == op) return &f;
  return nullptr;
}

PyObject* op_call(PyObject* self, PyObject* const* given, size_t nargsf, PyObject* names) {
  const auto* op = reinterpret_cast<PyOp*>(self);
  const OpInfo& info = *op->info;
  const size_t count = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  return guarded(
      [&]() -> PyObject* {
        if (!names && !op->inplace) {
          if (info.unary && count == 1 && is_tensor(given[0])) {
            const Tensor& x = tensor_of(given[0]);
            Tensor y;
            {
              MaybeRelease release(is_heavy(x));
              y = (*info.unary)(x);
            }
            return wrap(std::move(y));
          }
          if ((info.binary || info.scaled) && count == 2 && is_tensor(given[0]) && is_tensor(given[1])) {
            const Tensor &a = tensor_of(given[0]), &b = tensor_of(given[1]);
            Tensor y;
            {
              MaybeRelease release(is_heavy(a) || is_heavy(b));
              y = info.binary ? (*info.binary)(a, b) : (*info.scaled)(a, b, 1);
            }
            return wrap(std::move(y));
          }
        }
        Scalar number;
        const bool may_be_number = !names && count == 2 && info.with_number && is_tensor(given[0]) &&
                                   !is_tensor(given[1]) && is_floating(tensor_of(given[0]).dtype());
        if (may_be_number && !to_scalar(given[1], number)) {
          if (PyErr_Occurred()) return nullptr;
        } else if (may_be_number) {
          Tensor& x = tensor_of(given[0]);
          if (op->inplace) {
            MaybeRelease release(is_heavy(x));
            info.with_number->inplace(x, number);
            Py_INCREF(given[0]);
            return given[0];
          }
          Tensor y;
          {
            MaybeRelease release(is_heavy(x));
            y = info.with_number->fresh(x, number);
          }
          return wrap(std::move(y));
        }
        if (Py_TYPE(self) == g_method_type && (count == 0 || !is_tensor(given[0]))) {
          PyErr_Format(PyExc_TypeError, "Tensor.%s: the first argument is a Tensor", info.name.c_str());
          throw nb::python_error();
        }
        Values values;
        bool heavy = false;
        if (!parse(info, given, count, names, values, heavy)) return call_by_names(self, given, count, names);
        if (op->inplace) {
          if (count == 0 || !is_tensor(given[0])) throw nb::type_error("an in-place op's first argument is a tensor");
          {
            MaybeRelease release(heavy);
            if (reads_what_it_writes(info, values.all())) {
              written_over(info, values);
            } else {
              info.op->inplace_boxed(values.all());
            }
          }
          Py_INCREF(given[0]);
          return given[0];
        }
        std::vector<Value> results;
        {
          MaybeRelease release(heavy);
          results = info.op->call_boxed(values.all());
        }
        return results_of(info, results, op->whole);
      },
      static_cast<PyObject*>(nullptr));
}

// ---- the objects ----------------------------------------------------------------------------------------------------

void op_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);  // the record's info lives as long as the program
  Py_XDECREF(reinterpret_cast<PyOp*>(self)->name);
  PyObject_Free(self);
  Py_DECREF(type);
}
PyObject* op_bind(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return bound_method(self, instance);
}
OpInfo& info_of(PyObject* self) {
  return *reinterpret_cast<PyOp*>(self)->info;
}
PyObject* op_name(PyObject* self, void*) {
  PyObject* name = reinterpret_cast<PyOp*>(self)->name;
  Py_INCREF(name);
  return name;
}
PyObject* op_doc(PyObject* self, void*) {
  return PyUnicode_FromString(info_of(self).doc.c_str());
}
PyObject* op_module(PyObject*, void*) {
  return PyUnicode_FromString("strata");
}
PyObject* op_schema(PyObject* self, void*) {
  const std::string_view s = info_of(self).op->schema_text();
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}
PyObject* op_text_signature(PyObject* self, void*) {
  const OpInfo& info = info_of(self);
  const auto& args = info.op->schema().args;
  std::string s = "(";
  for (size_t i = 0; i < args.size(); ++i) {
    if (i) s += ", ";
    s += args[i].name;
    if (info.args[i].has_default) s += "=None";
  }
  s += ")";
  return PyUnicode_FromString(s.c_str());
}
PyObject* op_repr(PyObject* self) {
  return PyUnicode_FromFormat("<strata op %s>", std::string(info_of(self).op->schema_text()).c_str());
}
PyObject* op_reduce(PyObject* self, PyObject*) {
  return op_name(self, nullptr);
}
// Names of the schema's arguments in its order.
PyObject* op_parameters(PyObject* self, void*) {
  const auto& args = info_of(self).args;
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(args.size()));
  for (size_t i = 0; tuple && i < args.size(); ++i) {
    Py_INCREF(args[i].name);
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), args[i].name);
  }
  return tuple;
}
// op._takes(name): whether a keyword is the schema's, or one of the names that go for it everywhere.
PyObject* op_takes(PyObject* self, PyObject* name) {
  if (!PyUnicode_Check(name)) Py_RETURN_FALSE;
  return PyBool_FromLong(find_keyword(info_of(self), name) != static_cast<size_t>(-1));
}
// op.reference(args): the record's slow double-precision form.
PyObject* op_reference(PyObject* self, PyObject* args) {
  return guarded(
      [&] {
        std::vector<PyObject*> given;
        for (Py_ssize_t i = 0; i < PyTuple_Size(args); ++i) given.push_back(PyTuple_GetItem(args, i));
        Values values;
        bool heavy = false;
        parse(info_of(self), given.data(), given.size(), nullptr, values, heavy);
        return results_of(info_of(self), info_of(self).op->reference_boxed(values.all()), true);
      },
      static_cast<PyObject*>(nullptr));
}

PyGetSetDef g_op_getset[] = {{"__name__", op_name, nullptr, nullptr, nullptr},
                             {"__qualname__", op_name, nullptr, nullptr, nullptr},
                             {"__doc__", op_doc, nullptr, nullptr, nullptr},
                             {"__module__", op_module, nullptr, nullptr, nullptr},
                             {"__text_signature__", op_text_signature, nullptr, nullptr, nullptr},
                             {"schema", op_schema, nullptr, "The record's schema.", nullptr},
                             {"_parameters", op_parameters, nullptr, nullptr, nullptr},
                             {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef g_op_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(PyOp, vectorcall), READONLY, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};
PyMethodDef g_op_methods[] = {
    {"__reduce__", op_reduce, METH_NOARGS, nullptr},
    {"_takes", op_takes, METH_O, nullptr},
    {"reference", op_reference, METH_VARARGS, "The record's slow double-precision form, or its composed one."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject* make_type(const char* name, bool method) {
  std::vector<PyType_Slot> slots = {{Py_tp_dealloc, reinterpret_cast<void*>(op_dealloc)},
                                    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                    {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
                                    {Py_tp_getset, g_op_getset},
                                    {Py_tp_members, g_op_members},
                                    {Py_tp_methods, g_op_methods}};
  if (method) slots.push_back({Py_tp_descr_get, reinterpret_cast<void*>(op_bind)});
  slots.push_back({0, nullptr});
  unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  if (method) flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
  PyType_Spec spec = {name, sizeof(PyOp), 0, flags, slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  return reinterpret_cast<PyTypeObject*>(type);
}

// A named tuple for the first `count` results, where there are several and they have names.
PyObject* tuple_type(const OpBase& op, const std::string& name, size_t count) {
  const std::vector<SchemaArg>& results = op.schema().results;
  if (count < 2 || results[0].name.empty()) return nullptr;
  nb::list fields;
  for (size_t i = 0; i < count; ++i) fields.append(nb::str(results[i].name.c_str()));
  nb::object type = nb::module_::import_("strata._results").attr("make")(nb::str(name.c_str()), fields);
  return type.release().ptr();
}

OpInfo* describe_op(const OpBase& op) {
  auto* info = new OpInfo;
  info->op = &op;
  info->name = op.name();
  info->doc = cat(op.schema_text(), "\n\n", op.doc());
  info->args = read_arguments(op);
  for (size_t i = 0; i < info->args.size(); ++i)
    if (!info->args[i].has_default) info->required = i + 1;
  info->unary = dynamic_cast<const Unary*>(&op);
  info->binary = dynamic_cast<const Binary*>(&op);
  info->with_number = number_forms(op.name());
  const auto* scaled = dynamic_cast<const BinaryScaled*>(&op);
  if (scaled && info->args[2].has_default) {
    const Value& v = *op.schema().args[2].default_value;
    const Scalar* one = std::get_if<Scalar>(&v);
    const int64_t* integer = std::get_if<int64_t>(&v);
    if ((integer && *integer == 1) || (one && one->kind() == DType::i64 && one->to_int() == 1)) info->scaled = scaled;
  }
  const size_t results = op.schema().results.size(), shown = op.shown();
  info->shown_type = tuple_type(op, info->name, shown);
  info->result_type = shown == results ? info->shown_type : tuple_type(op, info->name + "_all", results);
  return info;
}

nb::object make_op(OpInfo* info, PyTypeObject* type, const std::string& name, bool inplace, bool whole = false) {
  PyObject* o = PyType_GenericAlloc(type, 0);
  if (!o) throw nb::python_error();
  auto* op = reinterpret_cast<PyOp*>(o);
  op->vectorcall = op_call;
  op->info = info;
  op->name = PyUnicode_InternFromString((inplace ? name + "_" : name).c_str());
  op->inplace = inplace;
  op->whole = whole;
  return nb::steal(o);
}

// The dictionaries that the module shows.
struct Functions {
  nb::dict ops;       // every record by its name, with all of its results, and in place
  nb::dict shown;     // what callers see, by aliases too; no internal ones
  nb::list internal;  // names of those
};

// Makes the functions and methods of `op`; later plugins' records come through here too.
void add_op(const Functions& to, const OpBase& op) {
  OpInfo* info = describe_op(op);
  const bool hides = op.shown() < op.schema().results.size();
  const bool method = !info->args.empty() && info->args[0].type == SchemaType{SchemaType::tensor};
  const nb::handle tensor(reinterpret_cast<PyObject*>(g_tensor_type));
  nb::list internal = to.internal;
  const auto add = [&](const std::string& name, bool inplace, bool alias) {
    const nb::str key((inplace ? name + "_" : name).c_str());
    const nb::object whole = make_op(info, g_op_type, name, inplace, true);
    if (!alias) to.ops[key] = whole;
    if (op.internal()) {
      internal.append(key);
      return;
    }
    to.shown[key] = hides ? make_op(info, g_op_type, name, inplace) : whole;
    if (method) nb::setattr(tensor, key, make_op(info, g_method_type, name, inplace));
  };
  const auto add_both = [&](const std::string& name, bool alias) {
    add(name, false, alias);
    if (op.has_inplace()) add(name, true, alias);
  };
  add_both(info->name, false);
  for (const std::string_view alias : op.aliases()) add_both(std::string(alias), true);
}

}  // namespace

void bind_ops(nb::module_& m) {
  g_op_type = make_type("strata.Op", false);
  g_method_type = make_type("strata.OpMethod", true);
  m.attr("Op") = nb::handle(reinterpret_cast<PyObject*>(g_op_type));
  const Functions functions;
  for (const OpBase* op : OpBase::all()) add_op(functions, *op);
  m.attr("ops") = functions.ops;
  m.attr("shown_ops") = functions.shown;
  m.attr("internal_ops") = functions.internal;
  m.def(
      "describe_ops", [] { return describe(OpBase::all()); }, "The records as JSON: docs/design/bindings.md.");
  m.def(
      "_add_new_ops",
      [functions] {
        nb::list added;
        for (const OpBase* op : OpBase::all()) {
          const nb::str name(std::string(op->name()).c_str());
          if (functions.ops.contains(name)) continue;
          add_op(functions, *op);
          added.append(name);
        }
        return added;
      },
      "Makes functions for records registered since, those of a plugin; returns their names.");
}

}  // namespace strata::python
