// The records of the sLSTM: one step behind its products, the gradient of that, and whole sequences.

#include "strata/ops/rnn/slstm.h"

#include <array>
#include <cmath>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/rnn/records.h"
#include "strata/ops/rnn/slstm_kernel.h"
#include "strata/ops/rnn/slstm_records.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace recurrent;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

DType wide(DType t) {
  return slstm_wide(t);
}
Tensor gate(const Tensor& all, int64_t index) {
  const int64_t hidden = all.size(1) / 4;
  return all.narrow(1, index * hidden, hidden);
}

// ---- one step -------------------------------------------------------------------------------------------------------

void check_step(std::string_view op, const Tensor& sums, const Tensor& c, const Tensor& l) {
  check<DTypeError>(is_floating(sums.dtype()), op, "needs a floating dtype, got ", sums.dtype());
  check<ShapeError>(sums.dim() == 2 && sums.size(1) % 4 == 0, op, "the gates are [B, 4 hidden], got ", sums);
  const Shape shape{sums.size(0), sums.size(1) / 4};
  for (const Tensor* t : {&c, &l}) {
    check<ShapeError>(t->shape() == shape, op, "a state is ", *t, ", wanted ", shape);
    check<DTypeError>(t->dtype() == wide(sums.dtype()), op, "a state is ", *t, ", the gates ", sums);
  }
}

constexpr double kFar = 700;  // from where softplus is taken to be its argument: e^-700 is no more than nothing

// The old normaliser's part in the new one, as a logarithm.
Tensor log_kept_of(const Tensor& sums, const Tensor& l) {
  return l - softplus(-gate(sums, 1), 1, kFar);
}

}  // namespace

Three recurrent::slstm_step_gradients(const Tensor& gh, const Tensor& gc, const Tensor& gl, const Tensor& sums,
                                      const Tensor& c, const Tensor& l) {
  const Tensor s = sums.to(c.dtype()), dh = gh.to(c.dtype());
  const Tensor a = sigmoid(gate(s, 0) - log_kept_of(s, l)), z = tanh(gate(s, 2)), o = sigmoid(gate(s, 3));
  const Tensor all = gc + dh * o, d = all * (z - c) * a * (1 - a), p = gl * (1 - a) - d, next = c + a * (z - c);
  return {
      cat({d + gl * a, p * sigmoid(-gate(s, 1)), all * a * (1 - z * z), dh * next * o * (1 - o)}, 1).to(sums.dtype()),
      all * (1 - a), p};
}

namespace {

const Op<Three(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)> backward_op{{
    .schema = "slstm_step_backward(Tensor gh, Tensor gc, Tensor gl, Tensor sums, Tensor c, Tensor l) -> (Tensor gsums, "
              "Tensor gc_before, Tensor gl_before)",
    .shard = "whole",
    .internal = true,
    .doc = "The gradients of slstm_step for the sums of its gates, c and l, from those of h, c_next and l_next. "
           "ShapeError, DTypeError.",
    .infer =
        [](const Tensor& gh, const Tensor& gc, const Tensor& gl, const Tensor& sums, const Tensor& c, const Tensor& l) {
          constexpr std::string_view op = "slstm_step_backward";
          check_step(op, sums, c, l);
          check_step(op, sums, gc, gl);
          check<ShapeError>(gh.shape() == c.shape() && gh.dtype() == sums.dtype(), op, "gh is ", gh, ", sums ", sums);
          return std::array<TensorMeta, 3>{sums.meta(), c.meta(), c.meta()};
        },
    .kernels = {.cpu = slstm_step_backward_cpu, .cuda = STRATA_CUDA_KERNEL(slstm_step_backward_cuda)},
    .composed = slstm_step_gradients,
    .cost =
        [](const Tensor&, const Tensor&, const Tensor&, const Tensor& sums, const Tensor& c, const Tensor&) {
          return Cost{15.0 * sums.numel(), 2.25 * sums.nbytes() + 6.0 * c.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const auto own = [&](const Tensor& t) { return t.to(wide(s.dtype())); };
          const auto add = [&](int64_t batch, int64_t hidden, const char* name) {
            const Shape shape{batch, hidden};
            s.add(s.tensor(shape), own(s.tensor(shape)), own(s.tensor(shape)), s.uniform({batch, 4 * hidden}, -2, 2),
                  own(s.uniform(shape, -1, 1)), own(s.uniform(shape, -1, 1)))
                .not_differentiable()
                .named(name);
          };
          add(3, 5, "small");
          add(37, 130, "several blocks");
          add(0, 4, "empty");
          const Tensor t = s.tensor({2, 3}), w = own(t);
          s.invalid<ShapeError>("a state is", t, w, w, s.tensor({2, 8}), w, w);
          s.invalid<ShapeError>("gh is", s.tensor({2, 2}), w, w, s.tensor({2, 12}), w, w);
        },
    .tolerance = 4,
    .tolerance_reason = "products of four rounded factors",
}};

Four step_composed(const Tensor& from_x, const Tensor& from_h, const Tensor& c, const Tensor& l) {
  const Tensor sums = from_x.to(c.dtype()) + from_h.to(c.dtype()), i = gate(sums, 0), p = log_kept_of(sums, l);
  const Tensor next = c + sigmoid(i - p) * (tanh(gate(sums, 2)) - c);
  return {(sigmoid(gate(sums, 3)) * next).to(from_x.dtype()), next, p + softplus(i - p, 1, kFar),
          sums.to(from_x.dtype())};
}

const Op<Four(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> step_op{{
    .schema = "slstm_step(Tensor from_x, Tensor from_h, Tensor c, Tensor l) -> (Tensor h, Tensor c_next, Tensor "
              "l_next, Tensor sums)",
    .shard = "whole",
    .shown = 3,
    .internal = true,
    .doc = "A step of slstm: from_x and from_h [B, 4 hidden] are what input and state give the gates i, f, z, o; c "
           "[B, hidden] is the cell divided by its normaliser, l the normaliser's logarithm, both of the gates' dtype, "
           "f32 for 16 bits. sums is from_x + from_h. ShapeError, DTypeError.",
    .infer =
        [](const Tensor& from_x, const Tensor& from_h, const Tensor& c, const Tensor& l) {
          check_step("slstm_step", from_x, c, l);
          check<ShapeError>(from_h.shape() == from_x.shape(), "slstm_step", "from_h is ", from_h, ", from_x ", from_x);
          check<DTypeError>(from_h.dtype() == from_x.dtype(), "slstm_step", "from_h is ", from_h, ", from_x ", from_x);
          return std::array<TensorMeta, 4>{from_x.meta().with_shape(c.shape()), c.meta(), c.meta(), from_x.meta()};
        },
    .kernels = {.cpu = slstm_step_cpu, .cuda = STRATA_CUDA_KERNEL(slstm_step_cuda)},
    .composed = step_composed,
    .saves = "c l sums",
    .backward =
        [](Backward& b, const Tensor&, const Tensor&, const Tensor& c, const Tensor& l) {
          const Tensor sums = b.y(3);
          const auto or_zero = [&](int i) { return b.has_gy(i) ? b.gy(i) : zeros_like(c); };
          const auto [of_sums, gc, gl] =
              backward_op(b.has_gy(0) ? b.gy(0) : zeros_like(c).to(sums.dtype()), or_zero(1), or_zero(2), sums, c, l);
          const Tensor g = b.has_gy(3) ? of_sums + b.gy(3) : of_sums;
          if (b.needs(0)) b.set(0, g);
          if (b.needs(1)) b.set(1, g);
          if (b.needs(2)) b.set(2, gc);
          if (b.needs(3)) b.set(3, gl);
        },
    .cost =
        [](const Tensor& from_x, const Tensor&, const Tensor& c, const Tensor&) {
          return Cost{15.0 * from_x.numel(), 3.25 * from_x.nbytes() + 4.0 * c.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const auto own = [&](const Tensor& t) { return t.to(wide(s.dtype())); };
          const auto add = [&](int64_t batch, int64_t hidden, double size, const char* name) {
            s.add(s.uniform({batch, 4 * hidden}, -size, size), s.uniform({batch, 4 * hidden}, -size, size),
                  own(s.uniform({batch, hidden}, -1, 1)), own(s.uniform({batch, hidden}, -2, 2)))
                .not_differentiable()  // slstm's samples are, through this
                .named(name);
          };
          add(3, 5, 1, "small");
          add(2, 3, 20, "gates at their ends");
          add(37, 130, 1, "several blocks");
          add(0, 4, 1, "empty");
          const Tensor x = s.tensor({2, 8}), c = own(s.tensor({2, 2}));
          s.invalid<ShapeError>("the gates are", s.tensor({2, 7}), x, c, c);
          s.invalid<ShapeError>("a state is", x, x, own(s.tensor({2, 3})), c);
          s.invalid<ShapeError>("from_h is", x, s.tensor({3, 8}), c, c);
        },
    .tolerance = 4,
    .tolerance_reason = "the logarithm of the normaliser is a difference of numbers of its own size",
}};

// ---- whole sequences ------------------------------------------------------------------------------------------------

Four sequence(const Tensor& input, const TensorList& hx, const TensorList& params, bool has_biases, int64_t num_layers,
              bool batch_first) {
  constexpr std::string_view op = "slstm";
  const size_t each = has_biases ? 4 : 2;
  check(num_layers >= 1 && num_layers <= int64_t{1} << 32, op, "num_layers must be at least 1, got ", num_layers);
  check<DTypeError>(is_floating(input.dtype()), op, "needs a floating dtype, got ", input.dtype());
  check<ShapeError>(input.dim() == 3 && input.size(batch_first ? 1 : 0) > 0, op,
                    "the input must be [T, B, in] of at least one step, got ", input);
  check<ShapeError>(params.size() == each * static_cast<size_t>(num_layers), op, "params must hold ",
                    static_cast<int64_t>(each) * num_layers, " tensors, got ", static_cast<int64_t>(params.size()));
  check<ShapeError>(hx.empty() || hx.size() == 3, op, "hx must be {h, c, l} or empty, got ",
                    static_cast<int64_t>(hx.size()), " tensors");
  check<ShapeError>(params[1].dim() == 2 && params[1].size(0) == 4 * params[1].size(1), op, "W_hh is ", params[1],
                    ", wanted [4 hidden, hidden]");
  const int64_t hidden = params[1].size(1), batch = input.size(batch_first ? 0 : 1);
  const Shape states{num_layers, batch, hidden};
  for (const Tensor& t : hx)
    check<ShapeError>(t.defined() && t.shape() == states, op, "a state is ", t, ", wanted ", states);
  const DeviceScope there(input.device());
  Tensor x = batch_first ? input.transpose(0, 1) : input;
  TensorList last_h, last_c, last_l;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const Tensor* p = params.data() + static_cast<size_t>(layer) * each;
    const Tensor b_ih = has_biases ? p[2] : Tensor(), b_hh = has_biases ? p[3] : Tensor();
    check<ShapeError>(p[0].shape() == Shape{4 * hidden, x.size(2)}, op, "W_ih of layer ", layer, " is ", p[0],
                      ", wanted ", Shape{4 * hidden, x.size(2)});
    check<ShapeError>(p[1].shape() == params[1].shape(), op, "W_hh of layer ", layer, " is ", p[1]);
    for (const Tensor* b : {&b_ih, &b_hh})
      check<ShapeError>(!b->defined() || b->shape() == Shape{4 * hidden}, op, "a bias of layer ", layer, " is ", *b);
    const Tensor from_x = input_product(x, p[0], b_ih);  // one product for all steps
    const DType low = from_x.dtype(), t = wide(low);
    Tensor h = hx.empty() ? no_state(x, {batch, hidden}) : hx[0].select(0, layer);
    Tensor c = hx.empty() ? zeros({batch, hidden}, t) : hx[1].select(0, layer).to(t);
    Tensor l = hx.empty() ? full({batch, hidden}, kNothing, t) : hx[2].select(0, layer).to(t);
    if (has_slstm_recurrence(low, x.device(), batch, hidden)) {
      const auto [y, c_each, l_each] =
          slstm_recurrence(from_x, h.to(low), c, l, p[1].to(low), b_hh.defined() ? b_hh.to(low) : b_hh);
      const int64_t last = y.size(0) - 1;
      x = y.to(input.dtype());
      last_h.push_back(x.select(0, last));
      last_c.push_back(c_each.select(0, last));
      last_l.push_back(l_each.select(0, last));
      continue;
    }
    TensorList outputs;
    for (const Tensor& of_step : unbind(from_x, 0)) {
      auto [after, c_next, l_next, sums] = step_op(of_step, linear(h, p[1], b_hh).to(low), c, l);
      h = after, c = c_next, l = l_next;
      outputs.push_back(h);
    }
    x = stack(outputs, 0).to(input.dtype());
    last_h.push_back(h.to(input.dtype()));
    last_c.push_back(c);
    last_l.push_back(l);
  }
  return {batch_first ? x.transpose(0, 1) : x, stack(last_h, 0), stack(last_c, 0), stack(last_l, 0)};
}

Four by_hand(const Tensor& input, const TensorList& hx, const TensorList& params, bool has_biases, int64_t num_layers,
             bool batch_first) {
  const int64_t steps = input.size(batch_first ? 1 : 0), batch = input.size(batch_first ? 0 : 1);
  const int64_t hidden = params[1].size(1);
  int64_t width = input.size(2);
  Numbers x = (batch_first ? input.transpose(0, 1).contiguous() : input).to_vector<double>(), hs, cs, ls;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const size_t first = static_cast<size_t>(layer) * (has_biases ? 4 : 2);
    const auto numbers = [&](size_t i) { return params[first + i].to_vector<double>(); };
    const Numbers wi = numbers(0), bi = has_biases ? numbers(2) : Numbers();
    Numbers from_x;
    for (int64_t row = 0; row < steps * batch; ++row) {
      const auto at = x.begin() + row * width;
      const Numbers one = naive_product(wi, bi, Numbers(at, at + width), 4 * hidden);
      from_x.insert(from_x.end(), one.begin(), one.end());
    }
    const auto start = [&](size_t i) {
      if (hx.empty()) return Numbers(static_cast<size_t>(batch * hidden), i == 2 ? kNothing : 0.0);
      return hx[i].select(0, layer).contiguous().to_vector<double>();
    };
    const NaiveSlstm all = naive_slstm(from_x, {start(0), start(1), start(2)}, numbers(1),
                                       has_biases ? numbers(3) : Numbers(), batch, hidden);
    const auto append_last = [&](Numbers& to, const Numbers& from) {
      to.insert(to.end(), from.end() - batch * hidden, from.end());
    };
    append_last(hs, all.h), append_last(cs, all.c), append_last(ls, all.l);
    x = all.h;
    width = hidden;
  }
  const Tensor y = from_span<double>(x, {steps, batch, hidden});
  const auto made = [&](const Numbers& v) { return from_span<double>(v, {num_layers, batch, hidden}); };
  return {batch_first ? y.transpose(0, 1).contiguous() : y, made(hs), made(cs), made(ls)};
}

const Op<Four(const Tensor&, const TensorList&, const TensorList&, bool, int64_t, bool)> slstm_op{{
    .schema = "slstm(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases=true, int num_layers=1, bool "
              "batch_first=false) -> (Tensor output, Tensor h, Tensor c, Tensor l)",
    .doc = "Layers of the sLSTM (Beck et al., xLSTM, arXiv:2405.04517, section 2.2) over [T, B, in] ([B, T, in] with "
           "batch_first): gates i, f, z, o = W_ih x + b_ih + W_hh h + b_hh, c' = f c + i z, n' = f n + i, h' = "
           "sigmoid(o) c' / n', i being exp of its gate, f sigmoid and z tanh of theirs. hx is {h, c / n, log n} of "
           "[layers, B, hidden] each, or empty for a cell that has seen nothing; params as lstm's. A step is a product "
           "and one kernel, on a card all steps are one. ShapeError, DTypeError, ValueError.",
    .example = "auto [y, h, c, l] = slstm(zeros({5, 2, 3}), {}, {ones({16, 3}), ones({16, 4})}, false); "
               "assert(y.shape() == Shape({5, 2, 4}) && c.abs().sum().item() < 4);",
    .composed = sequence,
    .cost =
        [](const Tensor& input, const TensorList&, const TensorList& params, bool, int64_t, bool) {
          double weights = 0, bytes = static_cast<double>(input.nbytes());
          for (const Tensor& p : params) weights += static_cast<double>(p.numel()), bytes += p.nbytes();
          return Cost{2 * weights * static_cast<double>(input.size(0) * input.size(1)), bytes};
        },
    .samples =
        [](Samples& s) {
          const auto params = [&](int64_t layers, bool biases) {
            TensorList all;
            for (int64_t i = 0; i < layers; ++i) {
              all.push_back(s.uniform({20, i == 0 ? 3 : 5}, -0.5, 0.5));
              all.push_back(s.uniform({20, 5}, -0.5, 0.5));
              for (int k = 0; biases && k < 2; ++k) all.push_back(s.uniform({20}, -0.5, 0.5));
            }
            return all;
          };
          const auto states = [&](int64_t layers, int64_t batch) {
            const Shape shape{layers, batch, 5};
            return TensorList{s.uniform(shape, -1, 1), s.uniform(shape, -1, 1), s.uniform(shape, -1, 1)};
          };
          s.add(s.tensor({3, 2, 3}), states(1, 2), params(1, true));
          s.add(s.tensor({2, 3, 3}), states(2, 2), params(2, true), true, 2, true).named("two layers, batch first");
          s.add(s.tensor({4, 1, 3}), TensorList(), params(1, false), false).named("from nothing, no biases");
          s.invalid<ShapeError>("params must hold", s.tensor({3, 2, 3}), TensorList(), params(1, true), true, 2);
          s.invalid<ShapeError>("[T, B, in]", s.tensor({3, 3}), TensorList(), params(1, true));
          s.invalid<ShapeError>("hx must be", s.tensor({3, 2, 3}), TensorList{s.tensor({1, 2, 5})}, params(1, true));
          s.invalid<ShapeError>("a state is", s.tensor({3, 2, 3}), states(1, 3), params(1, true));
          s.invalid<ShapeError>("W_ih of layer", s.tensor({3, 2, 4}), TensorList(), params(1, true));
          s.invalid<ValueError>("num_layers", s.tensor({3, 2, 3}), TensorList(), params(1, true), true, 0);
        },
    .reference = by_hand,
    .tolerance = 4,
    .tolerance_reason = "each step rounds its state, and the next multiplies it",
}};

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> recurrent::slstm_step(const Tensor& from_x, const Tensor& from_h,
                                                                 const Tensor& c, const Tensor& l) {
  return step_op(from_x, from_h, c, l);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> slstm(const Tensor& input, const TensorList& hx, const TensorList& params,
                                                 bool has_biases, int64_t num_layers, bool batch_first) {
  return slstm_op(input, hx, params, has_biases, num_layers, batch_first);
}

}  // namespace strata
