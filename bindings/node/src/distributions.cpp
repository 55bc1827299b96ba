// The engine's distributions; lib/distributions.js makes a class of each record.

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "strata/distributions/composed.h"

namespace strata::node {
namespace {

namespace dist = strata::distributions;
using dist::Distribution;

// What a distribution holds, so that no part of a graph is freed by the collector while another thread is on the tape.
void collect(const Distribution& d, TensorList& all) {
  if (const auto* r = dynamic_cast<const dist::RecordedDistribution*>(&d.base())) {
    for (const Tensor& t : r->args().values())
      if (t.defined()) all.push_back(t);
  } else if (const auto* i = dynamic_cast<const dist::IndependentDistribution*>(&d.base())) {
    collect(i->inner(), all);
  } else if (const auto* m = dynamic_cast<const dist::MixtureDistribution*>(&d.base())) {
    collect(m->mixture(), all);
    collect(m->components(), all);
  }
}

napi_value boxed(Env& env, Distribution d) {
  auto made = std::make_unique<Distribution>(std::move(d));
  napi_value handle = env.external(made.get(), [](FinalEnv, void* p, void*) {
    auto* d = static_cast<Distribution*>(p);
    TensorList held;
    collect(*d, held);
    delete d;
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
    if (box_of(c.env, v) != nullptr) {
      g = dist::Given(tensor_of(c.env, v, name, names[i]));
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
napi_value support(Call& c) {
  const dist::Constraint s = distribution(c).support();
  napi_value object = c.env.object();
  c.env.set(object, "kind", c.env.string(name_of(s.kind())));
  c.env.set(object, "lower", bound(c.env, s.lower()));
  c.env.set(object, "upper", bound(c.env, s.upper()));
  c.env.set(object, "eventDim", c.env.number(static_cast<double>(s.event_dim())));
  c.env.set(object, "text", c.env.string(s.text()));
  return object;
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
                    {"distributionRecords", entry<records_json>}});
}

}  // namespace strata::node
