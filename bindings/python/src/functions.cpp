// Functions of the engine that are no records: factories, random numbers, and those whose C++ form does more than its
// record (a key drawn, a statistic kept, a choice between records).

#include "py.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/activation/leaky_relu_kernel.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata::python {
namespace {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptTensor = std::optional<Tensor>;

// Where a new tensor is to be made; its gradient switched on afterwards.
template <class F>
Tensor made(OptDevice device, bool requires_grad, F&& f) {
  std::optional<DeviceScope> scope;
  if (device) scope.emplace(*device);
  Tensor t = f();
  if (requires_grad) t.set_requires_grad();
  return t;
}
// f(2, 3, dtype=..., device=..., requires_grad=..., memory_format=...), the size also by name. What PyTorch's layout and
// pin_memory ask for there is only one of here.
template <class F>
auto sized(const char* name, F f) {
  return [name, f](nb::args size, nb::kwargs options) {
    OptDType dtype;
    OptDevice device;
    bool requires_grad = false;
    nb::object given = std::move(size);
    MemoryFormat format;
    for (auto [key, value] : options) {
      const std::string option = nb::cast<std::string>(key);
      bool fits = true;
      if (option == "dtype") {
        fits = nb::try_cast(value, dtype);
      } else if (option == "device") {
        fits = nb::try_cast(value, device);
      } else if (option == "requires_grad") {
        fits = nb::try_cast(value, requires_grad);
      } else if (option == "size") {
        given = nb::make_tuple(value);
      } else if (option == "memory_format") {
        format = memory_format_of(value);
      } else if (option != "layout" && option != "pin_memory") {
        throw nb::type_error(cat(name, "() got an unexpected keyword argument '", option, "'").c_str());
      }
      if (!fits) throw nb::type_error(cat(name, "(): ", option, " has a value of the wrong type").c_str());
    }
    const Shape shape = shape_of(nb::borrow<nb::args>(given));
    return made(device, requires_grad, [&] { return in_memory_format(f(shape, dtype), format); });
  };
}
template <class F>
auto liked(F f) {
  return [f](const Tensor& x, OptDType dtype, OptDevice device, bool requires_grad, nb::handle, nb::handle format,
             bool) {
    const MemoryFormat order = memory_format_of(format);
    return made(device, requires_grad, [&] {
      if (device && !(*device == x.device()))
        return in_memory_format(f(empty({x.shape(), x.dtype(), *device, std::nullopt}), dtype), order);
      return in_memory_format(f(x, dtype), order);
    });
  };
}

}  // namespace

void bind_functions(nb::module_& m) {
#define STRATA_SIZED(name, ...) m.def(name, sized(name, [](const Shape& s, OptDType t) { return __VA_ARGS__(s, t); }))
#define STRATA_LIKE(name, ...)                                                                                       \
  m.def(name, liked([](const Tensor& x, OptDType t) { return __VA_ARGS__(x, t); }), nb::arg("input"), nb::kw_only(), \
        nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(), nb::arg("requires_grad") = false,             \
        nb::arg("layout") = nb::none(), nb::arg("memory_format") = nb::none(), nb::arg("pin_memory") = false)
  STRATA_SIZED("zeros", zeros);
  STRATA_SIZED("ones", ones);
  STRATA_SIZED("empty", empty);
  STRATA_SIZED("rand", rand);
  STRATA_SIZED("randn", randn);
  STRATA_LIKE("zeros_like", zeros_like);
  STRATA_LIKE("ones_like", ones_like);
  STRATA_LIKE("empty_like", empty_like);
  STRATA_LIKE("rand_like", rand_like);
  STRATA_LIKE("randn_like", randn_like);
  m.def("full", [](const Dims& size, Scalar value, OptDType dtype, OptDevice device, bool requires_grad) {
          return made(device, requires_grad, [&] { return full(size, value, dtype); });
        },
        nb::arg("size"), nb::arg("fill_value"), nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none(), nb::arg("requires_grad") = false, "A tensor of one value.");
  m.def("full_like", [](const Tensor& x, Scalar value, OptDType dtype, OptDevice device, bool requires_grad) {
          return made(device, requires_grad, [&] {
            if (device && !(*device == x.device())) return full(x.shape(), value, dtype.value_or(x.dtype()));
            return full_like(x, value, dtype);
          });
        },
        nb::arg("input"), nb::arg("fill_value"), nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none(), nb::arg("requires_grad") = false);
  m.def("arange", [](Scalar start, std::optional<Scalar> end, Scalar step, OptDType dtype, OptDevice device, bool requires_grad) {
          return made(device, requires_grad, [&] { return arange(end ? start : Scalar(0), end.value_or(start), step, dtype); });
        },
        nb::arg("start"), nb::arg("end") = nb::none(), nb::arg("step") = 1, nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none(), nb::arg("requires_grad") = false,
        "start, start + step, ... before end; arange(end) starts at 0.");
  m.def("linspace", [](Scalar start, Scalar end, int64_t steps, OptDType dtype, OptDevice device, bool requires_grad) {
          return made(device, requires_grad, [&] { return linspace(start, end, steps, dtype); });
        },
        nb::arg("start"), nb::arg("end"), nb::arg("steps"), nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none(), nb::arg("requires_grad") = false);
  m.def("logspace", [](Scalar start, Scalar end, int64_t steps, double base, OptDType dtype, OptDevice device, bool requires_grad) {
          return made(device, requires_grad, [&] { return logspace(start, end, steps, base, dtype); });
        },
        nb::arg("start"), nb::arg("end"), nb::arg("steps"), nb::arg("base") = 10.0, nb::kw_only(),
        nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(), nb::arg("requires_grad") = false);
  m.def("eye", [](int64_t n, std::optional<int64_t> columns, OptDType dtype, OptDevice device, bool requires_grad) {
          return made(device, requires_grad, [&] { return eye(n, columns, dtype); });
        },
        nb::arg("n"), nb::arg("m") = nb::none(), nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none(), nb::arg("requires_grad") = false);
  m.def("tril_indices", [](int64_t rows, int64_t cols, int64_t offset, OptDevice device) {
          return made(device, false, [&] { return tril_indices(rows, cols, offset); });
        },
        nb::arg("row"), nb::arg("col"), nb::arg("offset") = 0, nb::kw_only(), nb::arg("device") = nb::none());
  m.def("triu_indices", [](int64_t rows, int64_t cols, int64_t offset, OptDevice device) {
          return made(device, false, [&] { return triu_indices(rows, cols, offset); });
        },
        nb::arg("row"), nb::arg("col"), nb::arg("offset") = 0, nb::kw_only(), nb::arg("device") = nb::none());
  m.def("randint", [](int64_t low, int64_t high, const Dims& size, OptDType dtype, OptDevice device) {
          return made(device, false, [&] { return randint(low, high, size, dtype.value_or(DType::i64)); });
        },
        nb::arg("low"), nb::arg("high"), nb::arg("size"), nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none(), "Integers uniform in [low, high).");
  m.def("randint", [](int64_t high, const Dims& size, OptDType dtype, OptDevice device) {
          return made(device, false, [&] { return randint(0, high, size, dtype.value_or(DType::i64)); });
        },
        nb::arg("high"), nb::arg("size"), nb::kw_only(), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none());
  m.def("randint_like", [](const Tensor& x, int64_t low, std::optional<int64_t> high, OptDType dtype) {
          return high ? randint_like(x, low, *high, dtype) : randint_like(x, 0, low, dtype);
        },
        nb::arg("input"), nb::arg("low"), nb::arg("high") = nb::none(), nb::kw_only(), nb::arg("dtype") = nb::none());
  m.def("randperm", [](int64_t n, OptDevice device) { return made(device, false, [&] { return randperm(n); }); },
        nb::arg("n"), nb::kw_only(), nb::arg("device") = nb::none(), "A random order of 0 .. n-1.");
  m.def("uniform", [](const Dims& size, double low, double high, OptDType dtype, OptDevice device) {
          return made(device, false, [&] { return uniform(size, low, high, dtype); });
        },
        nb::arg("size"), nb::arg("low") = 0.0, nb::arg("high") = 1.0, nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none());
  m.def("normal", [](double mean, double std, const Dims& size, OptDType dtype, OptDevice device) {
          return made(device, false, [&] { return normal(size, mean, std, dtype); });
        },
        nb::arg("mean"), nb::arg("std"), nb::arg("size"), nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none());
  m.def("dropout", [](const Tensor& x, double p, bool training) { return dropout(x, p, training); }, nb::arg("input"),
        nb::arg("p") = 0.5, nb::arg("training") = true, nb::call_guard<Released>());

  // ---- functions that choose between records
  m.def("_max", [](const Tensor& x) { return max(x); });
  m.def("_min", [](const Tensor& x) { return min(x); });
  m.def("prod", [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) { return dim ? prod(x, *dim, keepdim) : prod(x); },
        nb::arg("input"), nb::arg("dim") = nb::none(), nb::arg("keepdim") = false);
  m.def("clamp", [](const Tensor& x, std::optional<Tensor> lo, std::optional<Tensor> hi) {
          return clamp(x, lo.value_or(Tensor()), hi.value_or(Tensor()));
        },
        nb::arg("input"), nb::arg("min") = nb::none(), nb::arg("max") = nb::none());
  m.def("clamp", [](const Tensor& x, std::optional<Scalar> lo, std::optional<Scalar> hi) { return clamp(x, lo, hi); },
        nb::arg("input"), nb::arg("min") = nb::none(), nb::arg("max") = nb::none());
  m.def("_div_mode", [](const Tensor& a, const Tensor& b, std::string_view mode) { return div(a, b, mode); });
  m.def("_where_scalars", [](const Tensor& c, Scalar a, Scalar b) { return where(c, a, b); });
  m.def("_scatter_scalar", [](const Tensor& x, int64_t dim, const Tensor& index, Scalar v) { return scatter(x, dim, index, v); });
  m.def("_repeat_interleave", [](const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim) {
    return repeat_interleave(x, repeats, dim);
  }, nb::arg("input"), nb::arg("repeats"), nb::arg("dim") = nb::none());
  m.def("_tensor_split_at", [](const Tensor& x, const Tensor& indices, int64_t dim) {
    return nb::steal(from_value(Value(tensor_split(x, indices, dim))));
  });
  m.def("_index_put_", [](Tensor& x, nb::handle key, nb::handle value, bool accumulate) {
    set_item(x, key.ptr(), value.ptr(), accumulate);
  });
  m.def("one_hot", [](const Tensor& x, int64_t n) { return one_hot(x, n); }, nb::arg("input"), nb::arg("num_classes") = -1);
  m.def("allclose", [](const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
          return allclose(a, b, rtol, atol, equal_nan);
        },
        nb::arg("input"), nb::arg("other"), nb::arg("rtol") = 1e-5, nb::arg("atol") = 1e-8, nb::arg("equal_nan") = false);
  m.def("equal", [](const Tensor& a, const Tensor& b) { return equal(a, b); }, nb::arg("input"), nb::arg("other"));
  m.def("_leaky_relu_over", [](nb::object x, double negative_slope) {
    leaky_relu_over(own_tensor(x, "leaky_relu"), negative_slope);
    return x;
  });
  m.def("swiglu", [](const Tensor& a, OptTensor b) { return b ? swiglu(a, *b) : swiglu(a); }, nb::arg("a"), nb::arg("b") = nb::none());
  m.def("unflatten", [](const Tensor& x, int64_t dim, const Dims& sizes) { return unflatten(x, dim, sizes); },
        nb::arg("input"), nb::arg("dim"), nb::arg("sizes"));

  // ---- layers' functions
  const auto release = nb::call_guard<Released>();
  m.def("batch_norm", [](const Tensor& x, OptTensor mean, OptTensor var, OptTensor w, OptTensor b, bool training,
                         double momentum, double eps) {
          return batch_norm(x, mean.value_or(Tensor()), var.value_or(Tensor()), w.value_or(Tensor()), b.value_or(Tensor()),
                            training, momentum, eps);
        },
        nb::arg("input"), nb::arg("running_mean").none(), nb::arg("running_var").none(), nb::arg("weight") = nb::none(),
        nb::arg("bias") = nb::none(), nb::arg("training") = false, nb::arg("momentum") = 0.1, nb::arg("eps") = 1e-5, release);
  m.def("scaled_dot_product_attention",
        [](const Tensor& q, const Tensor& k, const Tensor& v, OptTensor mask, double dropout_p, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t query_offset, OptTensor alibi_slopes,
           double logit_soft_cap, OptTensor sinks, OptTensor key_lengths) {
          AttentionOptions o;
          o.is_causal = is_causal;
          o.scale = scale;
          o.window = window;
          o.query_offset = query_offset;
          o.dropout_p = dropout_p;
          o.alibi_slopes = alibi_slopes.value_or(Tensor());
          o.logit_soft_cap = logit_soft_cap;
          o.sinks = sinks.value_or(Tensor());
          o.key_lengths = key_lengths.value_or(Tensor());
          return scaled_dot_product_attention(q, k, v, mask.value_or(Tensor()), o);
        },
        nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("attn_mask") = nb::none(), nb::arg("dropout_p") = 0.0,
        nb::arg("is_causal") = false, nb::arg("scale") = nb::none(), nb::arg("window") = 0, nb::arg("query_offset") = 0,
        nb::arg("alibi_slopes") = nb::none(), nb::arg("logit_soft_cap") = 0.0, nb::arg("sinks") = nb::none(),
        nb::arg("key_lengths") = nb::none(), release);
  m.def("rotary_tables", [](int64_t time, int64_t dim, double base, int64_t offset, DType dtype) {
          return rotary_tables(time, dim, base, offset, dtype);
        },
        nb::arg("time"), nb::arg("dim"), nb::arg("base") = 10000.0, nb::arg("offset") = 0, nb::arg("dtype") = DType::f32);

  // ---- settings
  m.def("manual_seed", [](uint64_t seed) { manual_seed(seed); }, nb::arg("seed"));
  m.def("_rng_key", [] { return default_generator().state(); }, "(seed, offset) of the default generator.");
  m.def("_set_rng_key", [](RngKey key) { default_generator().set_state(key); }, nb::arg("key"));
  m.def("initial_seed", [] { return default_generator().state().seed; });
  m.def("get_default_dtype", [] { return default_dtype(); });
  m.def("set_default_dtype", [](DType t) { set_default_dtype(t); }, nb::arg("dtype"));
  m.def("get_default_device", [] { return default_device(); });
  m.def("promote_types", [](DType a, DType b) { return promote_types(a, b); }, nb::arg("type1"), nb::arg("type2"));
  m.def("result_type_of_tensors", [](const Tensor& a, const Tensor& b) { return result_type(a, b); });
  m.def("wrap_number", [](Scalar v, Device d) { return wrap_number(v, d); }, nb::arg("value"), nb::arg("device") = Device::cpu());
  m.def("broadcast_shapes", [](const Dims& a, const Dims& b) {
    return nb::steal(from_shape(broadcast_shapes(a, b, "broadcast_shapes")));
  });
  m.def("get_num_threads", [] { return num_threads(); });
  m.def("set_num_threads", [](int n) { set_num_threads(n); }, nb::arg("count"));
  m.def("parse_dtype", [](std::string_view text) { return parse_dtype(text); });
}

}  // namespace strata::python
