// The engine's distributions; lib/distributions.js makes a class of each record.

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "strata/distributions/composed.h"
#include "strata/distributions/transform.h"

namespace strata::node {
namespace {

namespace dist = strata::distributions;
using dist::Distribution;

// A handle for JavaScript. What it holds outlives it for a moment, so that the collector frees no part of a graph while
// another thread is on the tape.
template <class T>
napi_value boxed(Env& env, T value) {
  auto made = std::make_unique<T>(std::move(value));
  napi_value handle = env.external(made.get(), [](FinalEnv, void* p, void*) {
    auto* one = static_cast<T*>(p);
    TensorList held = one->base().tensors();
    delete one;
    for (Tensor& t : held) bury(std::move(t));
  });
  (void)made.release();
  return handle;
}
const Distribution& distribution(Call& c, size_t i = 0) {
  return *c.env.handle<Distribution>(c[i]);
}

// newDistribution(name, names, values, checks): values are tensors, numbers or null.
napi_value new_distribution(Call& c) {
  const std::string name = c.env.text(c[0], "distributions", "the name");
  const std::vector<std::string> names = c.env.texts(c[1], name, "a parameter's name");
  std::vector<std::pair<std::string, dist::Given>> given;
  c.env.for_each(c[2], [&](napi_value v, uint32_t i) {
    dist::Given g;
    bool list = false;
    c.env.check(napi_is_array(c.env.env, v, &list));
    if (box_of(c.env, v) != nullptr) {
      g = dist::Given(tensor_of(c.env, v, name, names[i]));
    } else if (list) {
      std::vector<double> numbers;
      c.env.for_each(v, [&](napi_value n, uint32_t) { numbers.push_back(c.env.real(n, name, names[i])); });
      g = dist::Given(from_span<double>(numbers, {static_cast<int64_t>(numbers.size())}));
    } else if (!c.env.missing(v)) {
      g = dist::Given(c.env.real(v, name, names[i]));
    }
    given.emplace_back(names[i], g);
  });
  const TapeGuard guard(c.env.mail.get());
  return boxed(c.env, dist::make(name, given, c.env.truth(c[3], name, "validateArgs")));
}
napi_value new_independent(Call& c) {
  return boxed(c.env, dist::independent(distribution(c), c.env.whole(c[1], "Independent", "reinterpretedBatchNdims")));
}
napi_value new_mixture(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  return boxed(c.env, dist::mixture_same_family(distribution(c), distribution(c, 1)));
}
napi_value shapes(Call& c) {
  napi_value object = c.env.object();
  c.env.set(object, "batchShape", c.env.dims(distribution(c).batch_shape()));
  c.env.set(object, "eventShape", c.env.dims(distribution(c).event_shape()));
  return object;
}
napi_value bound(Env& env, const dist::Bound& b) {
  return b.number ? env.number(*b.number) : wrap_or_null(env, b.tensor);
}
napi_value constraint(Env& env, const dist::Constraint& s) {
  napi_value object = env.object();
  env.set(object, "kind", env.string(name_of(s.kind())));
  env.set(object, "lower", bound(env, s.lower()));
  env.set(object, "upper", bound(env, s.upper()));
  env.set(object, "eventDim", env.number(static_cast<double>(s.event_dim())));
  env.set(object, "text", env.string(s.text()));
  return object;
}
napi_value support(Call& c) {
  return constraint(c.env, distribution(c).support());
}
napi_value parameter(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, distribution(c).parameter(c.env.text(c[1], "distributions", "the parameter")));
}
napi_value expand(Call& c) {
  const Distribution& d = distribution(c);
  const Dims shape = c.env.list(c[1], d.name(), "the batch's shape");
  const TapeGuard guard(c.env.mail.get());
  return boxed(c.env, d.expand(shape));
}
napi_value sample(Call& c) {
  const Distribution& d = distribution(c);
  const Dims shape = c.env.list(c[1], d.name(), "the sample's shape");
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, c.env.truth(c[2], d.name(), "gradients") ? d.rsample(shape) : d.sample(shape));
}
// distributionOf(d, "logProb", value): a function of a value.
napi_value of_value(Call& c) {
  const Distribution& d = distribution(c);
  const std::string which = c.env.text(c[1], d.name(), "the function");
  Tensor x = box_of(c.env, c[2]) ? tensor_of(c.env, c[2], d.name(), "the value")
                                 : wrap_number(c.env.real(c[2], d.name(), "the value"), Device::cpu());
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, which == "logProb" ? d.log_prob(x) : which == "cdf" ? d.cdf(x) : d.icdf(x));
}
// distributionMoment(d, "mean"): one of its own numbers.
napi_value moment(Call& c) {
  const Distribution& d = distribution(c);
  const std::string which = c.env.text(c[1], d.name(), "the function");
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, which == "mean"         ? d.mean()
                     : which == "mode"       ? d.mode()
                     : which == "variance"   ? d.variance()
                     : which == "stddev"     ? d.stddev()
                     : which == "perplexity" ? d.perplexity()
                                             : d.entropy());
}
napi_value enumerate(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, distribution(c).enumerate_support(c.env.truth(c[1], "enumerateSupport", "expand")));
}
napi_value divergence(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, dist::kl_divergence(distribution(c), distribution(c, 1)));
}
// ---- transforms ----

using dist::Transform;

Transform& transform(Call& c, size_t i = 0) {
  return *c.env.handle<Transform>(c[i]);
}
std::vector<Transform> transforms(Call& c, size_t i) {
  std::vector<Transform> all;
  c.env.for_each(c[i], [&](napi_value v, uint32_t) { all.push_back(*c.env.handle<Transform>(v)); });
  return all;
}
// newTransform(name, values, shapes, eventDim)
napi_value new_transform(Call& c) {
  const std::string name = c.env.text(c[0], "distributions", "the name");
  dist::TransformArgs args;
  c.env.for_each(c[1], [&](napi_value v, uint32_t) {
    args.values.push_back(box_of(c.env, v)   ? dist::Given(tensor_of(c.env, v, name, "a parameter"))
                          : c.env.missing(v) ? dist::Given()
                                             : dist::Given(c.env.real(v, name, "a parameter")));
  });
  c.env.for_each(c[2], [&](napi_value v, uint32_t) { args.shapes.push_back(c.env.list(v, name, "a shape")); });
  args.event_dim = c.env.whole(c[3], name, "eventDim");
  return boxed(c.env, dist::make_transform(name, args));
}
napi_value new_compose(Call& c) {
  return boxed(c.env, dist::compose(transforms(c, 0)));
}
napi_value new_pieces(Call& c) {
  const int64_t dim = c.env.whole(c[1], "CatTransform", "dim");
  if (!c.has(2)) return boxed(c.env, dist::stack_transform(transforms(c, 0), dim));
  return boxed(c.env, dist::cat_transform(transforms(c, 0), dim, c.env.list(c[2], "CatTransform", "lengths").vec()));
}
napi_value new_independent_transform(Call& c) {
  return boxed(c.env, dist::independent_transform(
                          transform(c), c.env.whole(c[1], "IndependentTransform", "reinterpretedBatchNdims")));
}
napi_value new_cumulative(Call& c) {
  return boxed(c.env, dist::cumulative_transform(distribution(c)));
}
napi_value inverse_of(Call& c) {
  return boxed(c.env, transform(c).inv());
}
napi_value new_transformed(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  return boxed(c.env, dist::transformed(distribution(c), transforms(c, 1)));
}
// transformValue(t, "forward", x)
napi_value transform_value(Call& c) {
  const bool forward = c.env.text(c[1], "Transform", "the function") == "forward";
  const Tensor x = tensor_of(c.env, c[2], transform(c).name(), "the value");
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, forward ? transform(c)(x) : transform(c).inverse(x));
}
napi_value transform_log_det(Call& c) {
  const Tensor x = tensor_of(c.env, c[1], transform(c).name(), "x"),
               y = tensor_of(c.env, c[2], transform(c).name(), "y");
  const TapeGuard guard(c.env.mail.get());
  return wrap(c.env, transform(c).log_abs_det_jacobian(x, y));
}
napi_value transform_shape(Call& c) {
  const Dims shape = c.env.list(c[2], transform(c).name(), "the shape");
  return c.env.dims(c.env.truth(c[1], "Transform", "forward") ? transform(c).forward_shape(shape)
                                                              : transform(c).inverse_shape(shape));
}
napi_value transform_about(Call& c) {
  const Transform& t = transform(c);
  napi_value object = c.env.object();
  c.env.set(object, "domain", constraint(c.env, t.domain()));
  c.env.set(object, "codomain", constraint(c.env, t.codomain()));
  c.env.set(object, "bijective", c.env.boolean(t.bijective()));
  return object;
}
napi_value transform_sign(Call& c) {
  const dist::Given sign = transform(c).sign();
  return sign.number ? c.env.number(*sign.number) : wrap(c.env, sign.tensor);
}
napi_value records_json(Call& c) {
  return c.env.string(dist::distributions_json());
}

}  // namespace

void add_distributions(Env& env, napi_value exports) {
  env.add(exports, {{"newDistribution", entry<new_distribution>},
                    {"newIndependent", entry<new_independent>},
                    {"newMixture", entry<new_mixture>},
                    {"distributionShapes", entry<shapes>},
                    {"distributionSupport", entry<support>},
                    {"distributionParameter", entry<parameter>},
                    {"distributionExpand", entry<expand>},
                    {"distributionSample", entry<sample>},
                    {"distributionOf", entry<of_value>},
                    {"distributionMoment", entry<moment>},
                    {"distributionValues", entry<enumerate>},
                    {"klDivergence", entry<divergence>},
                    {"newTransform", entry<new_transform>},
                    {"newCompose", entry<new_compose>},
                    {"newPieces", entry<new_pieces>},
                    {"newIndependentTransform", entry<new_independent_transform>},
                    {"newCumulative", entry<new_cumulative>},
                    {"newInverse", entry<inverse_of>},
                    {"newTransformed", entry<new_transformed>},
                    {"transformValue", entry<transform_value>},
                    {"transformLogDet", entry<transform_log_det>},
                    {"transformShape", entry<transform_shape>},
                    {"transformAbout", entry<transform_about>},
                    {"transformSign", entry<transform_sign>},
                    {"distributionRecords", entry<records_json>}});
}

}  // namespace strata::node
