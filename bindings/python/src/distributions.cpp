// The engine's distributions. strata/distributions builds torch's surface on these.

#include <memory>

#include "py.h"
#include "strata/distributions/composed.h"
#include "strata/distributions/transform.h"

namespace strata::python {
namespace {

namespace dist = strata::distributions;
using dist::Bound;
using dist::Constraint;
using dist::Distribution;
using dist::Function;

// A number, a tensor, an array, a list or tuple of numbers, or nothing.
dist::Given given_of(nb::handle o, std::string_view name) {
  if (o.is_none()) return {};
  if (is_tensor(o.ptr())) return {tensor_of(o.ptr())};
  std::vector<double> numbers;
  if ((PyTuple_Check(o.ptr()) || PyList_Check(o.ptr())) && nb::try_cast(o, numbers))
    return {from_span<double>(numbers, {static_cast<int64_t>(numbers.size())})};
  double number = 0;
  Tensor t;
  if (!is_array(o.ptr()) && to_double(o.ptr(), number)) return {number};
  PyErr_Clear();
  if (to_operand(o.ptr(), Device::cpu(), t)) return {t};
  PyErr_Clear();
  throw nb::type_error(cat(name, ": parameters are tensors or numbers").c_str());
}
Tensor value_of(nb::handle o, Device device = Device::cpu()) {
  Tensor t;
  if (is_tensor(o.ptr())) return tensor_of(o.ptr());
  if (to_operand(o.ptr(), device, t)) return t;
  PyErr_Clear();
  throw nb::type_error("The value argument to log_prob must be a Tensor");
}
Bound bound_of(nb::handle o) {
  const dist::Given g = given_of(o, "Constraint");
  return g.number ? Bound(*g.number) : g.tensor.defined() ? Bound(g.tensor) : Bound();
}
nb::object from_bound(const Bound& b) {
  if (b.number) return nb::float_(*b.number);
  return b.tensor.defined() ? wrapped(b.tensor) : nb::none();
}
Shape shape_from(nb::handle sizes) {
  Shape s;
  for (const nb::handle n : nb::tuple(nb::borrow(sizes))) s.push_back(nb::cast<int64_t>(n));
  return s;
}
nb::object shape_tuple(const Shape& s) {
  nb::list sizes;
  for (const int64_t n : s) sizes.append(n);
  return nb::tuple(sizes);
}

// What the engine does not have is Python's NotImplementedError.
template <class F>
auto asked(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const dist::NotDefined& e) {
    PyErr_SetString(PyExc_NotImplementedError, e.what());
    throw nb::python_error();
  }
}

// A distribution that Python defines: its methods are called with the GIL held, as composed ones keep it.
class PyDistribution final : public dist::DistributionBase {
 public:
  explicit PyDistribution(nb::object o) : o_(std::move(o)) {}
  std::string name() const override { return nb::cast<std::string>(nb::str(get().type().attr("__name__"))); }
  Shape batch_shape() const override { return shape("batch_shape"); }
  Shape event_shape() const override { return shape("event_shape"); }
  // Python looks at values itself, where it knows the constraint's class.
  Constraint support() const override { return Constraint::Kind::dependent; }
  bool has(Function f) const override {
    return f == Function::rsample             ? nb::cast<bool>(get().attr("has_rsample"))
           : f == Function::enumerate_support ? nb::cast<bool>(get().attr("has_enumerate_support"))
                                              : true;
  }
  Tensor sample(const Shape& s, Generator&) const override { return call("sample", shape_tuple(s)); }
  Tensor rsample(const Shape& s, Generator&) const override { return call("rsample", shape_tuple(s)); }
  Tensor log_prob(const Tensor& x) const override { return call("log_prob", wrapped(x)); }
  Tensor cdf(const Tensor& x) const override { return call("cdf", wrapped(x)); }
  Tensor icdf(const Tensor& x) const override { return call("icdf", wrapped(x)); }
  Tensor entropy() const override { return nb::cast<Tensor>(get().attr("entropy")()); }
  Tensor mean() const override { return nb::cast<Tensor>(get().attr("mean")); }
  Tensor mode() const override { return nb::cast<Tensor>(get().attr("mode")); }
  Tensor variance() const override { return nb::cast<Tensor>(get().attr("variance")); }
  Tensor enumerate_support(bool expand) const override { return call("enumerate_support", nb::bool_(expand)); }
  std::shared_ptr<const DistributionBase> expand(const Shape& s) const override {
    return std::make_shared<PyDistribution>(get().attr("expand")(shape_tuple(s)));
  }
  Tensor parameter(std::string_view which) const override {
    const nb::object found = nb::getattr(get(), std::string(which).c_str(), nb::none());
    return is_tensor(found.ptr()) ? tensor_of(found.ptr()) : Tensor();
  }

 private:
  nb::handle get() const { return o_.get(); }
  Shape shape(const char* name) const { return shape_from(get().attr(name)); }
  template <class A>
  Tensor call(const char* name, A&& argument) const {
    return nb::cast<Tensor>(get().attr(name)(std::forward<A>(argument)));
  }
  Held o_;
};

// A transform that Python defines, or whose last value Python remembers.
class PyTransform final : public dist::TransformBase {
 public:
  explicit PyTransform(nb::object o) : o_(std::move(o)) {}
  std::string name() const override { return nb::cast<std::string>(nb::str(o_.get().type().attr("__name__"))); }
  Constraint domain() const override { return events("domain"); }
  Constraint codomain() const override { return events("codomain"); }
  bool bijective() const override { return nb::cast<bool>(o_.get().attr("bijective")); }
  dist::Given sign() const override { return given_of(o_.get().attr("sign"), "Transform"); }
  Tensor forward(const Tensor& x) const override { return nb::cast<Tensor>(o_.get()(wrapped(x))); }
  Tensor inverse(const Tensor& y) const override { return nb::cast<Tensor>(o_.get().attr("_inv_call")(wrapped(y))); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return nb::cast<Tensor>(o_.get().attr("log_abs_det_jacobian")(wrapped(x), wrapped(y)));
  }
  Shape forward_shape(const Shape& s) const override {
    return shape_from(o_.get().attr("forward_shape")(shape_tuple(s)));
  }
  Shape inverse_shape(const Shape& s) const override {
    return shape_from(o_.get().attr("inverse_shape")(shape_tuple(s)));
  }
  bool equals(const TransformBase& other) const override {
    const auto* o = dynamic_cast<const PyTransform*>(&other);
    return o && o_.get().equal(o->o_.get());
  }

 private:
  // Python knows the constraint's class; here it is how many dimensions are one event.
  Constraint events(const char* end) const {
    return Constraint(Constraint::Kind::dependent).independent(nb::cast<int64_t>(o_.get().attr(end).attr("event_dim")));
  }
  Held o_;
};

// Long work of the engine alone goes on without the GIL.
bool is_whole(const Distribution& d) {
  return dynamic_cast<const dist::RecordedDistribution*>(&d.base()) != nullptr;
}
// Where the parameters are: numbers as values come there.
Device device_of(const Distribution& d) {
  const TensorList held = d.base().tensors();
  return held.empty() ? Device::cpu() : held[0].device();
}
template <class F>
Tensor computed(const Distribution& d, F&& f) {
  return asked([&] {
    const MaybeRelease release(is_whole(d));
    return f();
  });
}
Distribution unchecked(const Distribution& d) {
  return Distribution(d.shared(), false);
}

nb::tuple constraint_tuple(const Constraint& c) {
  return nb::make_tuple(std::string(name_of(c.kind())), from_bound(c.lower()), from_bound(c.upper()), c.joined());
}

}  // namespace

void bind_distributions(nb::module_& m) {
  nb::class_<Distribution>(m, "Distribution", "A batch of the engine's distributions.")
      .def_static(
          "make",
          [](const std::string& name, const nb::list& values, bool checks) {
            std::vector<std::pair<std::string, dist::Given>> given;
            for (const nb::handle pair : values)
              given.emplace_back(nb::cast<std::string>(pair[0]), given_of(pair[1], name));
            return asked([&] { return unchecked(dist::make(name, given, checks)); });
          },
          nb::arg("name"), nb::arg("values"), nb::arg("checks"), "One of a record, with its parameters by name.")
      .def_static(
          "of", [](nb::object o) { return Distribution(std::make_shared<PyDistribution>(std::move(o)), false); },
          nb::arg("distribution"), "One that Python defines.")
      .def_static(
          "independent", [](const Distribution& d, int64_t n) { return unchecked(dist::independent(d, n)); },
          nb::arg("base"), nb::arg("joined"), "The last dimensions of a batch as one event.")
      .def_static(
          "mixture",
          [](const Distribution& mixture, const Distribution& components) {
            return unchecked(dist::mixture_same_family(mixture, components));
          },
          nb::arg("mixture"), nb::arg("components"), "One of several, chosen by a Categorical.")
      .def_static(
          "transformed",
          [](const Distribution& d, const std::vector<dist::Transform>& transforms) {
            return unchecked(dist::transformed(d, transforms));
          },
          nb::arg("base"), nb::arg("transforms"), "Values that went through transforms.")
      .def_prop_ro(
          "batch_shape", [](const Distribution& d) { return shape_tuple(d.batch_shape()); },
          nb::sig("def batch_shape(self) -> typing.Tuple[int, ...]"))
      .def_prop_ro(
          "event_shape", [](const Distribution& d) { return shape_tuple(d.event_shape()); },
          nb::sig("def event_shape(self) -> typing.Tuple[int, ...]"))
      .def_prop_ro(
          "support", [](const Distribution& d) { return constraint_tuple(d.support()); },
          nb::sig("def support(self) -> typing.Tuple[str, typing.Any, typing.Any, int]"),
          "The constraint of its values: kind, bounds, dimensions joined.")
      .def(
          "parameter",
          [](const Distribution& d, const std::string& name) { return computed(d, [&] { return d.parameter(name); }); },
          nb::arg("name"), "A parameter, given or derived.")
      .def(
          "given",
          [](const Distribution& d, const std::string& name) {
            const auto& r = dynamic_cast<const dist::RecordedDistribution&>(d.base());
            const int64_t i = r.args().record().index(name);
            return i >= 0 && r.args().given(static_cast<size_t>(i));
          },
          nb::arg("name"), "Whether a parameter was given.")
      .def(
          "sample",
          [](const Distribution& d, const Dims& shape) { return computed(d, [&] { return d.sample(shape); }); },
          nb::arg("sample_shape"), "Values drawn, without a gradient.")
      .def(
          "rsample",
          [](const Distribution& d, const Dims& shape) { return computed(d, [&] { return d.rsample(shape); }); },
          nb::arg("sample_shape"), "Values drawn, through which gradients reach the parameters.")
      .def(
          "log_prob",
          [](const Distribution& d, nb::handle value) {
            const Tensor x = value_of(value, device_of(d));
            return computed(d, [&] { return d.log_prob(x); });
          },
          nb::arg("value"), "The logarithm of the density of each value.")
      .def(
          "cdf",
          [](const Distribution& d, nb::handle value) {
            const Tensor x = value_of(value, device_of(d));
            return computed(d, [&] { return d.cdf(x); });
          },
          nb::arg("value"), "The probability of at most each value.")
      .def(
          "icdf",
          [](const Distribution& d, nb::handle value) {
            const Tensor x = value_of(value, device_of(d));
            return computed(d, [&] { return d.icdf(x); });
          },
          nb::arg("value"), "The value below which a share lies.")
      .def("entropy", [](const Distribution& d) { return computed(d, [&] { return d.entropy(); }); })
      .def("mean", [](const Distribution& d) { return computed(d, [&] { return d.mean(); }); })
      .def("mode", [](const Distribution& d) { return computed(d, [&] { return d.mode(); }); })
      .def("variance", [](const Distribution& d) { return computed(d, [&] { return d.variance(); }); })
      .def(
          "enumerate_support",
          [](const Distribution& d, bool expand) { return computed(d, [&] { return d.enumerate_support(expand); }); },
          nb::arg("expand"), "All values, along a first dimension.")
      .def(
          "expand", [](const Distribution& d, const Dims& shape) { return asked([&] { return d.expand(shape); }); },
          nb::arg("batch_shape"), "The same over a larger batch.");
  using dist::Transform;
  nb::class_<Transform>(m, "Transform", "One of the engine's invertible maps.")
      .def_static(
          "make",
          [](const std::string& name, const nb::list& values, const std::vector<Dims>& shapes, int64_t event_dim) {
            dist::TransformArgs args{{}, {shapes.begin(), shapes.end()}, event_dim};
            for (const nb::handle v : values) args.values.push_back(given_of(v, name));
            return dist::make_transform(name, args);
          },
          nb::arg("name"), nb::arg("values"), nb::arg("shapes"), nb::arg("event_dim"), "One of a record.")
      .def_static(
          "of", [](nb::object o) { return Transform(std::make_shared<PyTransform>(std::move(o))); },
          nb::arg("transform"), "One that Python defines.")
      .def_static("compose", &dist::compose, nb::arg("parts"), "One after the other.")
      .def_static("independent", &dist::independent_transform, nb::arg("base"), nb::arg("joined"),
                  "More dimensions in an event.")
      .def_static("cat", &dist::cat_transform, nb::arg("parts"), nb::arg("dim"), nb::arg("lengths"),
                  "One for each piece along a dimension.")
      .def_static("stack", &dist::stack_transform, nb::arg("parts"), nb::arg("dim"),
                  "One for each slice along a dimension.")
      .def_static("cumulative", &dist::cumulative_transform, nb::arg("distribution"), "cdf(x) of a distribution.")
      .def("inv", &Transform::inv, "The inverse map.")
      .def(
          "forward", [](const Transform& t, const Tensor& x) { return asked([&] { return t(x); }); }, nb::arg("x"),
          "y of x.")
      .def(
          "inverse", [](const Transform& t, const Tensor& y) { return asked([&] { return t.inverse(y); }); },
          nb::arg("y"), "x of y.")
      .def(
          "log_abs_det_jacobian",
          [](const Transform& t, const Tensor& x, const Tensor& y) {
            return asked([&] { return t.log_abs_det_jacobian(x, y); });
          },
          nb::arg("x"), nb::arg("y"), "log |dy / dx|, of each event.")
      .def(
          "forward_shape", [](const Transform& t, const Dims& s) { return shape_tuple(t.forward_shape(s)); },
          nb::arg("shape"), nb::sig("def forward_shape(self, shape: Ints) -> typing.Tuple[int, ...]"),
          "The shape of y.")
      .def(
          "inverse_shape", [](const Transform& t, const Dims& s) { return shape_tuple(t.inverse_shape(s)); },
          nb::arg("shape"), nb::sig("def inverse_shape(self, shape: Ints) -> typing.Tuple[int, ...]"),
          "The shape of x.")
      .def_prop_ro(
          "domain", [](const Transform& t) { return constraint_tuple(t.domain()); },
          nb::sig("def domain(self) -> typing.Tuple[str, typing.Any, typing.Any, int]"))
      .def_prop_ro(
          "codomain", [](const Transform& t) { return constraint_tuple(t.codomain()); },
          nb::sig("def codomain(self) -> typing.Tuple[str, typing.Any, typing.Any, int]"))
      .def_prop_ro(
          "event_dims",
          [](const Transform& t) { return nb::make_tuple(t.domain().event_dim(), t.codomain().event_dim()); },
          nb::sig("def event_dims(self) -> typing.Tuple[int, int]"))
      .def_prop_ro("bijective", &Transform::bijective)
      .def(
          "sign",
          [](const Transform& t) {
            const dist::Given g = asked([&] { return t.sign(); });
            return g.number ? nb::object(nb::int_(static_cast<int>(*g.number))) : wrapped(g.tensor);
          },
          nb::sig("def sign(self) -> typing.Any"), "1 where it rises, -1 where it falls.")
      .def(
          "equals", [](const Transform& a, const Transform& b) { return a == b; }, nb::arg("other"),
          "Whether both are the same map.");
  m.def(
      "_same_tensor", [](const Tensor& a, const Tensor& b) { return a.same_as(b); }, nb::arg("a"), nb::arg("b"),
      "Whether two handles are of one tensor.");
  m.def("_distribution_records", &dist::distributions_json, "The distributions' records, as JSON.");
  m.def(
      "_kl_divergence",
      [](const Distribution& p, const Distribution& q) { return asked([&] { return dist::kl_divergence(p, q); }); },
      nb::arg("p"), nb::arg("q"), "The divergence of two of them.");
  m.def(
      "_check_constraint",
      [](const std::string& kind, nb::handle lower, nb::handle upper, nb::handle value) {
        return Constraint(dist::constraint_kind(kind), bound_of(lower), bound_of(upper)).check(value_of(value));
      },
      nb::arg("kind"), nb::arg("lower").none(), nb::arg("upper").none(), nb::arg("value"),
      "Whether each event of a value lies inside.");
  m.def("_all_right", &dist::all_right, nb::arg("inside"), nb::arg("n"), "all() over the last n dimensions.");
  m.def("_sum_right", &dist::sum_right, nb::arg("x"), nb::arg("n"), "The sum over the last n dimensions.");
}

}  // namespace strata::python
