#include "strata/ops/derivatives/derivatives.h"

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::detail {
namespace {

// Inputs to differentiate by; with create_graph still part of their graph.
TensorList leaves_of(const TensorList& inputs, bool create_graph) {
  TensorList leaves;
  for (const Tensor& t : inputs) {
    if (create_graph && t.requires_grad()) {
      leaves.push_back(t.view(t.shape()));
    } else {
      Tensor leaf = t.detach();
      leaf.set_requires_grad();
      leaves.push_back(leaf);
    }
  }
  return leaves;
}

TensorList finished(TensorList results, bool create_graph) {
  if (!create_graph)
    for (Tensor& t : results) t = t.detach();
  return results;
}

// Gradients of <output, weight> for each input, zeros where there is none.
TensorList gradients(const Tensor& output, const TensorList& inputs, const Tensor& weight, bool create_graph,
                     bool strict) {
  TensorList found(inputs.size());
  if (output.requires_grad()) found = grad({output}, inputs, {weight}, create_graph, true, true);
  for (size_t i = 0; i < found.size(); ++i) {
    check<AutogradError>(!strict || found[i].defined(), "derivatives",
                         "the function's result does not depend on all of its inputs (strict)");
    if (!found[i].defined()) found[i] = zeros_like(inputs[i]);
  }
  return found;
}

TensorList directions(std::string_view op, const TensorList& v, const TensorList& like) {
  TensorList all = v;
  if (all.empty())
    for (const Tensor& t : like) all.push_back(ones_like(t));
  check<ShapeError>(all.size() == like.size(), op, "v has ", static_cast<int64_t>(all.size()), " tensors, wanted ",
                    static_cast<int64_t>(like.size()));
  for (size_t i = 0; i < all.size(); ++i)
    check<ShapeError>(all[i].shape() == like[i].shape(), op, "v is ", all[i], ", wanted ", like[i].shape());
  return all;
}

Tensor inner_product(const TensorList& a, const TensorList& b) {
  Tensor total;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor part = sum(a[i] * b[i]);
    total = total.defined() ? total + part : part;
  }
  return total;
}

Tensor one_number(std::string_view op, const TensorList& outputs) {
  check<ShapeError>(outputs.size() == 1 && outputs[0].numel() == 1, op, "the function must return one number");
  return outputs[0].reshape({});
}

}  // namespace

Products vjp(TensorFnRef fn, const TensorList& inputs, const TensorList& v, bool create_graph, bool strict) {
  const GradMode on(true);
  const TensorList x = leaves_of(inputs, create_graph);
  TensorList outputs = fn.call(fn.fn, x);
  if (!v.empty()) directions("vjp", v, outputs);
  TensorList total;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorList found = gradients(outputs[i], x, v.empty() ? Tensor() : v[i], create_graph, strict);
    if (total.empty()) {
      total = found;
    } else {
      for (size_t k = 0; k < total.size(); ++k) total[k] = total[k] + found[k];
    }
  }
  return {finished(std::move(outputs), create_graph), finished(std::move(total), create_graph)};
}

// The gradient of <u, J> for x is linear in u: its derivative by u in the direction v is J v.
Products jvp(TensorFnRef fn, const TensorList& inputs, const TensorList& v, bool create_graph, bool strict) {
  const GradMode on(true);
  const TensorList x = leaves_of(inputs, create_graph);
  const TensorList ways = directions("jvp", v, x);
  TensorList outputs = fn.call(fn.fn, x), products;
  for (const Tensor& y : outputs) {
    Tensor u = zeros_like(y);
    u.set_requires_grad();
    const Tensor total = inner_product(gradients(y, x, u, true, strict), ways);
    products.push_back(gradients(total, {u}, {}, create_graph, false)[0]);
  }
  return {finished(std::move(outputs), create_graph), finished(std::move(products), create_graph)};
}

Products hvp(TensorFnRef fn, const TensorList& inputs, const TensorList& v, bool create_graph, bool strict) {
  const GradMode on(true);
  const TensorList x = leaves_of(inputs, create_graph);
  const TensorList ways = directions("hvp", v, x);
  TensorList outputs = fn.call(fn.fn, x);
  const Tensor total = inner_product(gradients(one_number("hvp", outputs), x, {}, true, strict), ways);
  TensorList products = gradients(total, x, {}, create_graph, false);
  return {finished(std::move(outputs), create_graph), finished(std::move(products), create_graph)};
}

std::vector<TensorList> jacobian(TensorFnRef fn, const TensorList& inputs, bool create_graph, bool strict) {
  const GradMode on(true);
  const TensorList x = leaves_of(inputs, create_graph);
  std::vector<TensorList> all;
  for (const Tensor& y : fn.call(fn.fn, x)) {
    const Tensor flat = y.reshape({-1});
    std::vector<TensorList> rows(x.size());
    for (int64_t i = 0; i < flat.size(0); ++i) {
      const TensorList found = gradients(flat.select(0, i), x, {}, create_graph, strict);
      for (size_t k = 0; k < x.size(); ++k) rows[k].push_back(found[k]);
    }
    TensorList made;
    for (size_t k = 0; k < x.size(); ++k) {
      Shape shape = y.shape();
      for (const int64_t n : x[k].shape()) shape.push_back(n);
      made.push_back(rows[k].empty() ? zeros_like(x[k].reshape({-1}).narrow(0, 0, 0)).reshape(shape)
                                     : stack(rows[k], 0).reshape(shape));
    }
    all.push_back(finished(std::move(made), create_graph));
  }
  return all;
}

std::vector<TensorList> hessian(TensorFnRef fn, const TensorList& inputs, bool create_graph, bool strict) {
  const auto first = [&](const TensorList& x) {
    const GradMode on(true);
    return gradients(one_number("hessian", fn.call(fn.fn, x)), x, {}, true, strict);
  };
  return jacobian(tensor_fn_ref(first), inputs, create_graph, strict);
}

}  // namespace strata::detail
