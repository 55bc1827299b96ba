// One generic caller for every op record: arguments by position and name to Values by the schema, the boxed call, results
// back. Where a record's C++ signature is one of the commonest, the call goes straight to it instead of through boxes.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>

#include "named.h"
#include <structmember.h>
#include "strata/core/error.h"
#include "strata/core/op.h"
#include "strata/core/rng.h"
#include "strata/core/saves.h"
#include "strata/ops/random/random_kernels.h"

namespace strata::python {
namespace {

enum class Kind : uint8_t { tensor, tensors, scalar, integer, number, boolean, text, ints, dtype, device, key };

constexpr size_t kMaxArgs = 32;

struct Arg {
  Kind kind;
  bool nullable;
  bool has_default;
  PyObject* name;  // interned
  std::vector<const char*> aliases;
  std::string type;
};

using Unary = Op<Tensor(const Tensor&)>;
using Binary = Op<Tensor(const Tensor&, const Tensor&)>;
using BinaryScaled = Op<Tensor(const Tensor&, const Tensor&, Scalar)>;

struct OpInfo {
  const OpBase* op;
  std::vector<Arg> args;
  size_t required = 0;
  PyObject* result_type = nullptr;  // a named tuple for several results
  const Unary* unary = nullptr;
  const Binary* binary = nullptr;
  const BinaryScaled* scaled = nullptr;
  std::string name, doc;
};

struct PyOp {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  OpInfo* info;
  bool inplace;
};

PyTypeObject *g_op_type, *g_method_type;

// What PyTorch, NumPy and the array API standard call the schema's arguments.
struct Aliases {
  const char* name;
  const char* others[3];
};
constexpr Aliases kAliases[] = {
    {"x", {"input", "self"}},
    {"A", {"input", "self", "x"}},
    {"a", {"input", "dim0", "self"}},
    {"b", {"other", "dim1"}},
    {"dims", {"dim", "axis", "axes"}},
    {"dim", {"axis"}},
    {"keepdim", {"keepdims"}},
    {"kernel", {"kernel_size"}},
    {"shape", {"size"}},
    {"sorted", {"sorted_sequence"}},
    {"values", {"input"}},
    {"q", {"query"}},
    {"k", {"key"}},
    {"v", {"value"}},
    {"indices", {"input"}},
    {"index", {"indices"}},
    {"pads", {"pad"}},
    {"size", {"split_size"}},
    {"sizes", {"split_size_or_sections"}},
    {"tensors", {"arrays"}},
};

Kind kind_of(std::string_view type, const OpBase& op) {
  if (type.ends_with('?')) type.remove_suffix(1);
  constexpr std::pair<std::string_view, Kind> kinds[] = {
      {"Tensor", Kind::tensor}, {"Tensor[]", Kind::tensors}, {"Scalar", Kind::scalar}, {"int", Kind::integer},
      {"float", Kind::number},  {"bool", Kind::boolean},     {"str", Kind::text},      {"int[]", Kind::ints},
      {"DType", Kind::dtype},   {"Device", Kind::device},    {"RngKey", Kind::key}};
  for (const auto& [name, kind] : kinds)
    if (name == type) return kind;
  throw ValueError(op.name(), cat("an argument of type ", type, " is not known to Python"));
}

// Slots for the arguments of one call, made and ended by hand: most calls use two or three of them.
class Values {
 public:
  Values() = default;
  Values(const Values&) = delete;
  ~Values() {
    for (size_t i = 0; i < size_; ++i) at(i).~Value();
  }
  void resize(size_t n) {
    for (; size_ < n; ++size_) new (bytes_ + size_ * sizeof(Value)) Value();
  }
  Value& at(size_t i) { return *std::launder(reinterpret_cast<Value*>(bytes_ + i * sizeof(Value))); }
  std::span<const Value> all() { return {&at(0), size_}; }

 private:
  alignas(Value) std::byte bytes_[kMaxArgs * sizeof(Value)];
  size_t size_ = 0;
};

[[noreturn]] void bad_argument(const OpInfo& info, size_t i, PyObject* given) {
  if (PyErr_Occurred()) throw nb::python_error();
  const Arg& a = info.args[i];
  nb::object type = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(given)), "__name__"));
  PyErr_Format(PyExc_TypeError, "%s: argument '%U' is %U, %s is wanted: %s", info.name.c_str(), a.name, type.ptr(),
               a.type.c_str(), std::string(info.op->schema_text()).c_str());
  throw nb::python_error();
}

// A number where a tensor is wanted becomes one on the device of the tensors beside it, once these are known.
struct Numbers {
  uint32_t mask = 0;
  Scalar values[kMaxArgs];
};

void convert(const OpInfo& info, size_t i, PyObject* o, Value& out, Numbers& numbers) {
  const Arg& a = info.args[i];
  if (o == Py_None && (a.nullable || a.has_default)) return;  // stays None: the default, where there is one
  switch (a.kind) {
    case Kind::tensor: {
      if (is_tensor(o)) {
        out.emplace<Tensor>(tensor_of(o));
        return;
      }
      Scalar s;
      if (!to_scalar(o, s)) bad_argument(info, i, o);
      numbers.mask |= 1u << i;
      numbers.values[i] = s;
      return;
    }
    case Kind::tensors: {
      if (!to_tensors(o, out.emplace<TensorList>())) bad_argument(info, i, o);
      return;
    }
    case Kind::scalar: {
      Scalar s;
      if (!to_scalar(o, s)) bad_argument(info, i, o);
      out.emplace<Scalar>(s);
      return;
    }
    case Kind::integer: {
      int64_t v;
      if (PyBool_Check(o) || !to_int(o, v)) bad_argument(info, i, o);
      out.emplace<int64_t>(v);
      return;
    }
    case Kind::number: {
      double v;
      if (!to_double(o, v)) bad_argument(info, i, o);
      out.emplace<double>(v);
      return;
    }
    case Kind::boolean: {
      Scalar s;
      if (!to_scalar(o, s) || s.kind() != DType::boolean) bad_argument(info, i, o);
      out.emplace<bool>(s.to_bool());
      return;
    }
    case Kind::text: {
      Py_ssize_t n;
      const char* s = PyUnicode_Check(o) ? PyUnicode_AsUTF8AndSize(o, &n) : nullptr;
      if (!s) bad_argument(info, i, o);
      out.emplace<std::string>(s, static_cast<size_t>(n));
      return;
    }
    case Kind::ints:
      if (!to_dims(o, out.emplace<Dims>())) bad_argument(info, i, o);
      return;
    case Kind::dtype: {
      DType t;
      if (!to_dtype(o, t)) bad_argument(info, i, o);
      out.emplace<DType>(t);
      return;
    }
    case Kind::device: {
      Device d;
      if (!to_device(o, d)) bad_argument(info, i, o);
      out.emplace<Device>(d);
      return;
    }
    case Kind::key: {
      RngKey k;
      if (!to_key(o, k)) bad_argument(info, i, o);
      out.emplace<RngKey>(k);
      return;
    }
  }
}

bool is_plain_int(PyObject* o) {
  return PyLong_Check(o) && !PyBool_Check(o);
}

// The place of an argument by its name, or size_t(-1): strata/_signatures.py may know the name.
size_t find_keyword(const OpInfo& info, PyObject* name) {
  const size_t n = info.args.size();
  for (size_t i = 0; i < n; ++i)
    if (info.args[i].name == name) return i;
  for (size_t i = 0; i < n; ++i)
    if (PyUnicode_Compare(info.args[i].name, name) == 0) return i;
  for (size_t i = 0; i < n; ++i)
    for (const char* alias : info.args[i].aliases)
      if (PyUnicode_CompareWithASCIIString(name, alias) == 0) return i;
  return static_cast<size_t>(-1);
}

// As many blocks as the numbers of the result can take: what the C++ functions draw.
RngKey draw_key(std::span<const Value> values) {
  int64_t n = 0;
  DType dtype = DType::f32;
  bool sized = false;
  for (const Value& v : values) {
    if (const Tensor* t = std::get_if<Tensor>(&v)) n = std::max(n, t->defined() ? t->numel() : 0), sized = true;
    if (const Dims* d = std::get_if<Dims>(&v)) n = std::max(n, d->product()), sized = true;
    if (const DType* t = std::get_if<DType>(&v)) dtype = *t;
  }
  for (const Value& v : values)
    if (const int64_t* i = std::get_if<int64_t>(&v)) n = sized ? n : std::max(n, *i);
  return default_generator().next(random_blocks(std::max<int64_t>(n, 0), dtype));
}

// Arguments in the schema's order; those that are not given stay None. False where a name is none of the schema's.
bool parse(const OpInfo& info, PyObject* const* given, size_t count, PyObject* names, Values& values, bool& heavy) {
  const size_t n = info.args.size();
  Numbers numbers;
  std::array<bool, kMaxArgs> set{};
  size_t last = 0, at = 0;
  for (size_t i = 0; at < count; ++i) {
    if (i >= n) {
      PyErr_Format(PyExc_TypeError, "%s: takes %zu arguments, %zu were given: %s", info.name.c_str(), n, count,
                   std::string(info.op->schema_text()).c_str());
      throw nb::python_error();
    }
    values.resize(i + 1);
    set[i] = true;
    last = i + 1;
    PyObject* o = given[at];
    const Kind kind = info.args[i].kind;
    // permute(x, 2, 0, 1) and einsum("ij,jk", a, b): a list's elements as arguments of their own.
    if (kind == Kind::ints && is_plain_int(o) && (i + 1 == n || count > n)) {
      Dims d;
      int64_t v;
      for (; at < count && is_plain_int(given[at]); ++at) {
        if (!to_int(given[at], v)) throw nb::python_error();
        d.push_back(v);
      }
      values.at(i).emplace<Dims>(d);
      continue;
    }
    if (kind == Kind::tensors && is_tensor(o)) {
      TensorList list;
      for (; at < count && is_tensor(given[at]); ++at) list.push_back(tensor_of(given[at]));
      values.at(i).emplace<TensorList>(std::move(list));
      continue;
    }
    convert(info, i, o, values.at(i), numbers);
    ++at;
  }
  if (names) {
    const Py_ssize_t keywords = PyTuple_Size(names);
    for (Py_ssize_t k = 0; k < keywords; ++k) {
      PyObject* name = PyTuple_GetItem(names, k);
      const size_t i = find_keyword(info, name);
      if (i == static_cast<size_t>(-1)) return false;
      if (set[i]) {
        PyErr_Format(PyExc_TypeError, "%s: argument '%U' was given twice", info.name.c_str(), info.args[i].name);
        throw nb::python_error();
      }
      values.resize(i + 1);
      last = std::max(last, i + 1);
      set[i] = true;
      convert(info, i, given[count + static_cast<size_t>(k)], values.at(i), numbers);
    }
  }
  const size_t wanted = std::max(last, info.required);
  size_t draws = kMaxArgs;  // a random op's key, drawn from the default generator where none is given
  for (size_t i = 0; i < wanted; ++i) {
    if (i < last && set[i] && !(std::holds_alternative<std::monostate>(values.at(i)) && !(numbers.mask >> i & 1))) continue;
    const Arg& a = info.args[i];
    if (!set[i] && a.kind == Kind::key && !a.nullable) {
      draws = i;
      values.resize(i + 1);
      continue;
    }
    if (!set[i] && !a.has_default) {
      PyErr_Format(PyExc_TypeError, "%s: argument '%U' is missing: %s", info.name.c_str(), a.name,
                   std::string(info.op->schema_text()).c_str());
      throw nb::python_error();
    }
    if (a.has_default) {
      values.resize(i + 1);
      values.at(i) = *info.op->schema().args[i].default_value;
    }
  }
  Device device = Device::cpu();
  bool found = false;
  for (size_t i = 0; i < last; ++i) {
    const Tensor* t = std::get_if<Tensor>(&values.at(i));
    if (!t) {
      if (const TensorList* l = std::get_if<TensorList>(&values.at(i)))
        for (const Tensor& e : *l) heavy = heavy || is_heavy(e);
      continue;
    }
    if (!t->defined()) continue;
    heavy = heavy || is_heavy(*t);
    if (!found) device = t->device();
    found = true;
  }
  if (draws < kMaxArgs) values.at(draws).emplace<RngKey>(draw_key(values.all()));
  if (numbers.mask)
    for (size_t i = 0; i < last; ++i)
      if (numbers.mask >> i & 1) values.at(i).emplace<Tensor>(wrap_number(numbers.values[i], device));
  return true;
}

PyObject* results_of(const OpInfo& info, const std::vector<Value>& results) {
  if (results.size() == 1) return from_value(results[0]);
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(results.size()));
  for (size_t i = 0; tuple && i < results.size(); ++i)
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), from_value(results[i]));
  if (!tuple || !info.result_type) return tuple;
  PyObject* named = PyObject_Call(info.result_type, tuple, nullptr);
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
        return results_of(info, results);
      },
      static_cast<PyObject*>(nullptr));
}

// ---- the objects ----------------------------------------------------------------------------------------------------

void op_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);  // the record's info lives as long as the program
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
  return PyUnicode_FromString((info_of(self).name + (reinterpret_cast<PyOp*>(self)->inplace ? "_" : "")).c_str());
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
        return results_of(info_of(self), info_of(self).op->reference_boxed(values.all()));
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
  std::vector<PyType_Slot> slots = {
      {Py_tp_dealloc, reinterpret_cast<void*>(op_dealloc)}, {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_repr, reinterpret_cast<void*>(op_repr)},       {Py_tp_getset, g_op_getset},
      {Py_tp_members, g_op_members},                        {Py_tp_methods, g_op_methods}};
  if (method) slots.push_back({Py_tp_descr_get, reinterpret_cast<void*>(op_bind)});
  slots.push_back({0, nullptr});
  unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  if (method) flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
  PyType_Spec spec = {name, sizeof(PyOp), 0, flags, slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  return reinterpret_cast<PyTypeObject*>(type);
}

OpInfo* describe_op(const OpBase& op) {
  const Schema& schema = op.schema();
  if (schema.args.size() > kMaxArgs) throw ValueError(op.name(), "too many arguments for Python");
  auto* info = new OpInfo{&op, {}, 0, nullptr, nullptr, nullptr, nullptr, std::string(op.name()), {}};
  info->doc = cat(op.schema_text(), "\n\n", op.doc());
  for (const SchemaArg& a : schema.args) {
    Arg arg{kind_of(a.type, op), a.type.ends_with('?'), a.default_value.has_value(),
            PyUnicode_InternFromString(a.name.c_str()), {}, a.type};
    for (const Aliases& aliases : kAliases)
      if (a.name == aliases.name)
        for (const char* other : aliases.others)
          if (other) arg.aliases.push_back(other);
    info->args.push_back(std::move(arg));
    if (!a.default_value) info->required = info->args.size();
  }
  info->unary = dynamic_cast<const Unary*>(&op);
  info->binary = dynamic_cast<const Binary*>(&op);
  const auto* scaled = dynamic_cast<const BinaryScaled*>(&op);
  if (scaled && schema.args[2].default_value) {
    const Value& v = *schema.args[2].default_value;
    const Scalar* one = std::get_if<Scalar>(&v);
    const int64_t* integer = std::get_if<int64_t>(&v);
    if ((integer && *integer == 1) || (one && one->kind() == DType::i64 && one->to_int() == 1)) info->scaled = scaled;
  }
  if (schema.results.size() > 1 && !schema.results[0].name.empty()) {
    nb::list fields;
    for (const SchemaArg& r : schema.results) fields.append(nb::str(r.name.c_str()));
    nb::object type = nb::module_::import_("strata._results").attr("make")(nb::str(info->name.c_str()), fields);
    info->result_type = type.release().ptr();
  }
  return info;
}

nb::object make_op(OpInfo* info, PyTypeObject* type, bool inplace) {
  PyObject* o = PyType_GenericAlloc(type, 0);
  if (!o) throw nb::python_error();
  auto* op = reinterpret_cast<PyOp*>(o);
  op->vectorcall = op_call;
  op->info = info;
  op->inplace = inplace;
  return nb::steal(o);
}

}  // namespace

/// Makes the functions and methods of `op`; later plugins' records come through here too.
static void add_op(nb::dict functions, const OpBase& op) {
  OpInfo* info = describe_op(op);
  const std::string name(op.name());
  functions[nb::str(name.c_str())] = make_op(info, g_op_type, false);
  nb::handle type(reinterpret_cast<PyObject*>(g_tensor_type));
  if (op.can_inplace()) functions[nb::str((name + "_").c_str())] = make_op(info, g_op_type, true);
  if (info->args.empty() || info->args[0].kind != Kind::tensor || info->args[0].nullable) return;
  nb::setattr(type, name.c_str(), make_op(info, g_method_type, false));
  if (op.can_inplace()) nb::setattr(type, (name + "_").c_str(), make_op(info, g_method_type, true));
}

void bind_ops(nb::module_& m) {
  g_op_type = make_type("strata.Op", false);
  g_method_type = make_type("strata.OpMethod", true);
  m.attr("Op") = nb::handle(reinterpret_cast<PyObject*>(g_op_type));
  nb::dict functions;
  for (const OpBase* op : OpBase::all()) add_op(functions, *op);
  m.attr("ops") = functions;
  m.def("_add_new_ops", [functions] {
    nb::list added;
    for (const OpBase* op : OpBase::all()) {
      const nb::str name(std::string(op->name()).c_str());
      if (functions.contains(name)) continue;
      add_op(functions, *op);
      added.append(name);
    }
    return added;
  }, "Makes functions for records registered since, those of a plugin; returns their names.");
}

}  // namespace strata::python
