#include "strata/nn/transformer.h"

#include "strata/autograd/made_again.h"
#include "strata/dist/collectives/later_inl.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/position_dropout_inl.h"
#include "strata/nn/tiled.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/mlp.h"

namespace strata::nn {
namespace {

AttentionSpec attention_of(const BlockOptions& o, bool bias) {
  check(o.dim > 0 && o.heads > 0 && o.dim % o.heads == 0, "BlockOptions", o.heads, " heads do not divide ", o.dim,
        " dimensions");
  return {.heads = o.heads,
          .kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads,
          .head_size = o.dim / o.heads,
          .value_size = o.dim / o.heads,
          .bias = bias,
          .out_bias = bias,
          .dropout = o.dropout};
}

bool has_norm2(NormPlacement placement) {
  return placement != NormPlacement::parallel;
}

// With `drop` between its products.
template <class Drop>
Tensor dropping(const FeedForward& f, const Tensor& x, const Drop& drop) {
  const Activation act = f.spec().activation;
  return (*f.down)(drop(f.gate_up ? activate_gated((*f.gate_up)(x), act) : activate((*f.up)(x), act)));
}

}  // namespace

LayerSpec gpt_layer(const BlockOptions& o) {
  return {.attention = attention_of(o, true),
          .feed_forward = {.width = o.ffn_dim > 0 ? o.ffn_dim : 4 * o.dim},
          .norm = {.kind = NormSpec::Kind::layer, .eps = o.norm_eps},
          .dropout = o.dropout};
}

LayerSpec llama_layer(const BlockOptions& o) {
  AttentionSpec attention = attention_of(o, false);
  attention.rotary = 0;
  const int64_t width = o.ffn_dim > 0 ? o.ffn_dim : (8 * o.dim / 3 + 63) / 64 * 64;
  return {.attention = attention,
          .feed_forward = {.width = width, .activation = Activation::silu, .gated = true, .bias = false},
          .norm = {.kind = NormSpec::Kind::rms, .eps = o.norm_eps},
          .dropout = o.dropout};
}

Residual Residual::settled() const {
  if (arriving) arriving->wait();
  return {branch, stream, loss};
}

Tensor Residual::sum() const {
  if (arriving) arriving->wait();
  return stream.defined() ? stream + branch : branch;
}

std::pair<Tensor, Tensor> add_norm(const Norm& norm, const Residual& r) {
  if (r.arriving) r.arriving->wait();
  if (!r.stream.defined()) return {norm(r.branch), r.branch};
  return norm.add(r.branch, r.stream);
}

FeedForward::FeedForward(int64_t dim, const FeedForwardSpec& spec) : Module("FeedForward"), spec_(spec) {
  if (spec.experts) {
    experts = register_module("experts", Experts(dim, *spec.experts, spec.activation));
    return;
  }
  if (spec.gated)
    gate_up = register_module("gate_up", Linear(dim, 2 * spec.width, spec.bias));
  else
    up = register_module("up", Linear(dim, spec.width, spec.bias));
  down = register_module("down", Linear(spec.width, dim, spec.bias));
}

Tensor FeedForward::forward(const Tensor& x, Tensor* loss) const {
  if (experts) return (*experts)(x, loss);
  const bool drops = is_training() && spec_.dropout > 0;
  if (tile_ == 0 || x.dim() < 2 || x.numel() <= tile_ * x.size(-1))
    return drops ? dropping(*this, x, [&](const Tensor& t) { return detail::dropped(t, spec_.dropout); }) : compute(x);
  const Tensor rows = x.reshape({x.numel() / x.size(-1), x.size(-1)});
  // By copies: backward may come when this object has gone.
  if (!drops)
    return tiled(
               0, tile_, [own = *this](const Tensor& part) { return own.compute(part); }, rows)
        .view(x.shape());
  Shape inner = x.shape();
  inner[x.dim() - 1] = spec_.width;
  const auto tile = [own = *this, numbers = detail::DropNumbers(inner)](int64_t first, const Tensor& part) {
    const FeedForwardSpec& s = own.spec();
    return dropping(own, part, [&](const Tensor& t) { return numbers.drop(t, s.dropout, first * s.width); });
  };
  return tiled(0, tile_, tile, rows).view(x.shape());
}

Tensor FeedForward::compute(const Tensor& x) const {
  // The fused pair reads weights by itself. Layers that hooks watch, or that are packed, are called.
  if (spec_.gated) {
    const auto gate = [act = spec_.activation](const Tensor& both) { return activate_gated(both, act); };
    const Tensor both = (*gate_up)(x), inner = gate(both);
    if (!gate_again_) return (*down)(inner);
    const MadeAgain again(inner, gate, both);
    return (*down)(inner);
  }
  if (spec_.activation == Activation::gelu_tanh && !has_forward_hooks(*up) && !has_forward_hooks(*down))
    return gelu_feed_forward(x, up->weight, up->bias, down->weight, down->bias);
  return (*down)(activate((*up)(x), spec_.activation));
}

TransformerBlock::TransformerBlock(int64_t dim, const LayerSpec& spec)
    : Module("TransformerBlock"),
      norm1(register_module("norm1", Norm(dim, spec.norm))),
      attn(register_module("attn", SelfAttention(dim, spec.attention))),
      norm2(has_norm2(spec.placement) ? std::optional<Norm>(register_module("norm2", Norm(dim, spec.norm)))
                                      : std::nullopt),
      mlp(register_module("mlp", FeedForward(dim, spec.feed_forward))),
      dropout(register_module("dropout", Dropout(spec.dropout))),
      spec_(spec) {
  if (spec.placement == NormPlacement::sandwich) {
    norm3 = register_module("norm3", Norm(dim, spec.norm));
    norm4 = register_module("norm4", Norm(dim, spec.norm));
  }
  if (spec.layer_scale) {
    scale1 = init::ones_(new_parameter("scale1", {dim}));
    scale2 = init::ones_(new_parameter("scale2", {dim}));
  }
}

// Each half reads what was before the last one's sum, which travels meanwhile.
Residual TransformerBlock::ladder(const Residual& r, const Places& places, KvCache* cache) const {
  Tensor loss = r.loss;
  const bool drops = is_training() && spec_.dropout > 0;
  const auto half = [&](const Residual& in, const Norm& norm, const Tensor& scale, auto&& branch) {
    distributed::detail::LaterScope later;
    Tensor y = branch(norm(in.stream.defined() ? in.stream : in.branch));
    Residual out{y, in.sum(), {}, later.take()};
    if (!scale.defined() && !drops) return out;
    out = out.settled();
    out.branch = dropout(scale.defined() ? out.branch * scale : out.branch);
    return out;
  };
  const Residual middle = half(r, norm1, scale1, [&](const Tensor& x) { return attn(x, places, cache); });
  Residual out = half(middle, *norm2, scale2, [&](const Tensor& x) { return mlp(x, &loss); });
  out.loss = loss;
  return out;
}

Residual TransformerBlock::step(const Residual& from, const Places& places, KvCache* cache) const {
  if (spec_.placement == NormPlacement::ladder) return ladder(from, places, cache);
  const Residual r = from.settled();
  const auto scaled = [](const Tensor& branch, const Tensor& scale) {
    return scale.defined() ? branch * scale : branch;
  };
  const auto attend = [&](const Tensor& x) { return dropout(scaled(attn(x, places, cache), scale1)); };
  Tensor loss = r.loss;
  const auto feed = [&](const Tensor& x) { return dropout(scaled(mlp(x, &loss), scale2)); };
  switch (spec_.placement) {
    case NormPlacement::before: {
      const auto [normed, stream] = add_norm(norm1, r);
      const auto [normed2, stream2] = add_norm(*norm2, {attend(normed), stream});
      return {feed(normed2), stream2, loss};
    }
    case NormPlacement::sandwich: {
      const auto [normed, stream] = add_norm(norm1, r);
      const auto [normed2, stream2] = add_norm(*norm2, {(*norm3)(attend(normed)), stream});
      const Tensor fed = (*norm4)(feed(normed2));
      return {fed, stream2, loss};
    }
    case NormPlacement::branch: {
      const Tensor x = r.sum();
      const Tensor y = x + norm1(attend(x));
      const Tensor fed = (*norm2)(feed(y));
      return {fed, y, loss};
    }
    case NormPlacement::after: {
      const Tensor x = r.sum();
      const Tensor y = norm1.add(attend(x), x).first;
      const Tensor fed = norm2->add(feed(y), y).first;
      return {fed, {}, loss};
    }
    case NormPlacement::ladder:
      break;  // above
    case NormPlacement::parallel: {
      const auto [normed, stream] = add_norm(norm1, r);
      const Tensor attended = attend(normed);
      const Tensor fed = attended + feed(normed);
      return {fed, stream, loss};
    }
    case NormPlacement::parallel_norms: {
      const auto [normed, stream] = add_norm(norm1, r);
      const Tensor attended = attend(normed);
      const Tensor fed = attended + feed((*norm2)(stream));
      return {fed, stream, loss};
    }
  }
  throw ValueError("TransformerBlock", "there is no such placement of norms");
}

Tensor TransformerBlock::forward(const Tensor& x, const Places& places, KvCache* cache) const {
  return step({x, {}}, places, cache).sum();
}

}  // namespace strata::nn
