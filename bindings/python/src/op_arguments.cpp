// The arguments of a call, by position and name, as Values by the schema.

#include "op_info.h"
#include "strata/core/error.h"
#include "strata/core/rng.h"

namespace strata::python {
namespace {

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

[[noreturn]] void bad_argument(const OpInfo& info, size_t i, PyObject* given) {
  if (PyErr_Occurred()) throw nb::python_error();
  const Arg& a = info.args[i];
  nb::object type = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(given)), "__name__"));
  PyErr_Format(PyExc_TypeError, "%s: argument '%U' is %U, %s is wanted: %s", info.name.c_str(), a.name, type.ptr(),
               std::string(a.type.text()).c_str(), std::string(info.op->schema_text()).c_str());
  throw nb::python_error();
}

// A number where a tensor is wanted becomes one on the device of the tensors beside it, once these are known.
struct Numbers {
  uint32_t mask = 0;
  Scalar values[kMaxArgs];
};

void convert(const OpInfo& info, size_t i, PyObject* o, Value& out, Numbers& numbers) {
  const Arg& a = info.args[i];
  if (o == Py_None && (a.type.optional || a.has_default)) return;  // stays None: the default, where there is one
  switch (a.type.kind) {
    case SchemaType::tensor: {
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
    case SchemaType::tensors: {
      if (!to_tensors(o, out.emplace<TensorList>())) bad_argument(info, i, o);
      return;
    }
    case SchemaType::scalar: {
      Scalar s;
      if (!to_scalar(o, s)) bad_argument(info, i, o);
      out.emplace<Scalar>(s);
      return;
    }
    case SchemaType::integer: {
      int64_t v;
      if (PyBool_Check(o) || !to_int(o, v)) bad_argument(info, i, o);
      out.emplace<int64_t>(v);
      return;
    }
    case SchemaType::number: {
      double v;
      if (!to_double(o, v)) bad_argument(info, i, o);
      out.emplace<double>(v);
      return;
    }
    case SchemaType::boolean: {
      Scalar s;
      if (!to_scalar(o, s) || s.kind() != DType::boolean) bad_argument(info, i, o);
      out.emplace<bool>(s.to_bool());
      return;
    }
    case SchemaType::string: {
      Py_ssize_t n;
      const char* s = PyUnicode_Check(o) ? PyUnicode_AsUTF8AndSize(o, &n) : nullptr;
      if (!s) bad_argument(info, i, o);
      out.emplace<std::string>(s, static_cast<size_t>(n));
      return;
    }
    case SchemaType::integers:
      if (!to_dims(o, out.emplace<Dims>())) bad_argument(info, i, o);
      return;
    case SchemaType::dtype: {
      DType t;
      if (!to_dtype(o, t)) bad_argument(info, i, o);
      out.emplace<DType>(t);
      return;
    }
    case SchemaType::device: {
      Device d;
      if (!to_device(o, d)) bad_argument(info, i, o);
      out.emplace<Device>(d);
      return;
    }
    case SchemaType::key: {
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

}  // namespace

std::vector<Arg> read_arguments(const OpBase& op) {
  const std::vector<SchemaArg>& schema = op.schema().args;
  if (schema.size() > kMaxArgs) throw ValueError(op.name(), "too many arguments for Python");
  std::vector<Arg> args;
  for (const SchemaArg& a : schema) {
    Arg arg{a.type, a.default_value.has_value(), PyUnicode_InternFromString(a.name.c_str()), {}};
    for (const Aliases& aliases : kAliases)
      if (a.name == aliases.name)
        for (const char* other : aliases.others)
          if (other) arg.aliases.push_back(other);
    args.push_back(std::move(arg));
  }
  return args;
}

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
    const SchemaType::Kind kind = info.args[i].type.kind;
    // permute(x, 2, 0, 1) and einsum("ij,jk", a, b): a list's elements as arguments of their own.
    if (kind == SchemaType::integers && is_plain_int(o) && (i + 1 == n || count > n)) {
      Dims d;
      int64_t v;
      for (; at < count && is_plain_int(given[at]); ++at) {
        if (!to_int(given[at], v)) throw nb::python_error();
        d.push_back(v);
      }
      values.at(i).emplace<Dims>(d);
      continue;
    }
    if (kind == SchemaType::tensors && is_tensor(o)) {
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
  bool draws = false;  // a random op's key from the default generator, where none is given
  for (size_t i = 0; i < wanted; ++i) {
    if (i < last && set[i] && !(std::holds_alternative<std::monostate>(values.at(i)) && !(numbers.mask >> i & 1)))
      continue;
    const Arg& a = info.args[i];
    if (!set[i] && a.type.kind == SchemaType::key && !a.type.optional) {
      draws = true;
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
  if (numbers.mask)
    for (size_t i = 0; i < last; ++i)
      if (numbers.mask >> i & 1) values.at(i).emplace<Tensor>(wrap_number(numbers.values[i], device));
  if (draws) draw_missing_keys(*info.op, values.all());
  return true;
}

}  // namespace strata::python
