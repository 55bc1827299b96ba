// Steps as graphs: lib/graphed.js takes arguments and results apart, the rest is the engine's.

#include "strata/optim/graphed.h"

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/late.h"
#include "bindings/node/src/tape_lock.h"

namespace strata::node {
namespace {

using strata::detail::GraphedCall;
using strata::detail::GraphedResult;
using strata::detail::GraphedSteps;

// graphedNew(warmup, most, fallback)
napi_value graphed_new(Call& c) {
  const GraphedOptions options{.warmup = static_cast<int>(c.env.whole(c[0], "graphed", "warmup")),
                               .most = static_cast<int>(c.env.whole(c[1], "graphed", "most")),
                               .fallback = c.env.truth(c[2], "graphed", "fallback")};
  return boxed_late(c.env, std::make_shared<GraphedSteps>(options));
}

// graphedCall(steps, tensors, rest, fn): fn(tensors) gives [tensors, what else there is], and so does this.
napi_value graphed_call(Call& c) {
  Env& env = c.env;
  auto& steps = late<GraphedSteps>(c, "graphed");
  const TensorList inputs = tensors_of(env, c[1], "graphed", "the tensors", true);
  const std::string rest = env.text(c[2], "graphed", "the plain arguments");
  const napi_value fn = c[3];
  auto step = [&](const TensorList& in) {
    napi_value given = wrap_list(env, TensorList(in));
    napi_value made = env.made(napi_call_function, env.undefined(), fn, size_t{1}, &given);
    return GraphedResult{tensors_of(env, env.made(napi_get_element, made, uint32_t{0}), "graphed", "the results", true),
                         std::make_shared<JsRef>(env, env.made(napi_get_element, made, uint32_t{1}))};
  };
  const TapeGuard guard(env.mail.get());
  GraphedResult result = steps.call(inputs, rest, GraphedCall(step));
  napi_value pair = env.array(2);
  env.put(pair, 0, wrap_list(env, std::move(result.tensors)));
  env.put(pair, 1, static_cast<JsRef*>(result.rest.get())->get(env));
  return pair;
}

// graphedInfo(steps): {graphs, captures, replays, note}
napi_value graphed_info(Call& c) {
  const auto& steps = late<GraphedSteps>(c, "graphed");
  napi_value o = c.env.object();
  c.env.set(o, "graphs", c.env.integer(steps.graphs()));
  c.env.set(o, "captures", c.env.integer(steps.captures()));
  c.env.set(o, "replays", c.env.integer(steps.replays()));
  c.env.set(o, "note", c.env.string(steps.note()));
  return o;
}
napi_value graphed_clear(Call& c) {
  const TapeGuard guard(c.env.mail.get());
  late<GraphedSteps>(c, "graphed").clear();
  return c.env.undefined();
}

}  // namespace

void add_graphed(Env& env, napi_value exports) {
  env.add(exports, {{"graphedNew", entry<graphed_new>},
                    {"graphedCall", entry<graphed_call>},
                    {"graphedInfo", entry<graphed_info>},
                    {"graphedClear", entry<graphed_clear>}});
}

}  // namespace strata::node
