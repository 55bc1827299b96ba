// einsum: diagonals, sums and permutations around pairwise products, by matmul where labels are summed.

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "einsum";
// A dimension's name: its letter, or kEllipsis + i for the i-th dimension of "..." counted from its end.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 256;

bool has(const Labels& l, Label x) {
  return std::find(l.begin(), l.end(), x) != l.end();
}
int64_t position(const Labels& l, Label x) {
  return std::find(l.begin(), l.end(), x) - l.begin();
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct Operand {
  Tensor t;
  Labels labels;  // one for each dimension of t
};

// The parts of "ab,bc->ac", spaces dropped; `arrow` says whether a result was given.
struct Equation {
  std::vector<std::string> inputs;
  std::string result;
  bool arrow = false;
};

Equation split(const std::string& text) {
  Equation e;
  std::string s;
  for (char c : text) {
    if (c != ' ') s += c;
  }
  const size_t at = s.find("->");
  e.arrow = at != std::string::npos;
  if (e.arrow) e.result = s.substr(at + 2);
  s = s.substr(0, at);
  for (size_t begin = 0; begin <= s.size();) {
    const size_t end = std::min(s.find(',', begin), s.size());
    e.inputs.push_back(s.substr(begin, end - begin));
    begin = end + 1;
  }
  return e;
}

// Labels of one term; `dots` dimensions stand for "...".
Labels read_term(const std::string& equation, const std::string& term, int64_t dots) {
  Labels labels;
  bool seen_dots = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (is_letter(term[i])) {
      labels.push_back(term[i]);
      continue;
    }
    check(term.compare(i, 3, "...") == 0 && !seen_dots, kOp, "unexpected '", term[i], "' in \"", equation,
          "\"; a term is letters and at most one \"...\"");
    seen_dots = true;
    i += 2;
    for (int64_t d = dots - 1; d >= 0; --d) labels.push_back(kEllipsis + static_cast<Label>(d));
  }
  return labels;
}

int64_t count_letters(const std::string& term) {
  return std::count_if(term.begin(), term.end(), is_letter);
}
bool has_dots(const std::string& term) {
  return term.find("...") != std::string::npos;
}

// A repeated label becomes the diagonal of its dimensions.
void take_diagonals(Operand& o) {
  for (size_t i = 0; i < o.labels.size();) {
    const Label l = o.labels[i];
    const auto a = static_cast<int64_t>(i);
    const int64_t b = std::find(o.labels.begin() + a + 1, o.labels.end(), l) - o.labels.begin();
    if (b == static_cast<int64_t>(o.labels.size())) {
      ++i;
      continue;
    }
    o.t = diagonal(o.t, 0, a, b);
    o.labels.erase(o.labels.begin() + b);
    o.labels.erase(o.labels.begin() + a);
    o.labels.push_back(l);
  }
}

// Sums over the labels for which keep(label) is false.
template <class Keep>
void sum_out(Operand& o, Keep&& keep) {
  Dims dims;
  Labels left;
  for (size_t i = 0; i < o.labels.size(); ++i) {
    if (keep(o.labels[i])) {
      left.push_back(o.labels[i]);
    } else {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  if (dims.empty()) return;
  o.t = o.t.sum(dims).to(o.t.dtype());  // sum alone would widen integers
  o.labels = left;
}

// Dimensions of size 1 whose label is longer elsewhere carry nothing.
void drop_broadcast(Operand& o, const Operand& other) {
  for (size_t i = o.labels.size(); i-- > 0;) {
    const auto d = static_cast<int64_t>(i);
    if (o.t.size(d) != 1 || !has(other.labels, o.labels[i])) continue;
    if (other.t.size(position(other.labels, o.labels[i])) == 1) continue;
    o.t = squeeze(o.t, d);
    o.labels.erase(o.labels.begin() + d);
  }
}

Tensor arrange(const Operand& o, const Labels& order) {
  Dims dims;
  for (Label l : order) dims.push_back(position(o.labels, l));
  return permute(o.t, dims);
}

Labels operator+(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The product of two operands, summed over the labels that are not `needed` afterwards.
template <class Needed>
Operand contract(Operand a, Operand b, Needed&& needed) {
  drop_broadcast(a, b);
  drop_broadcast(b, a);
  sum_out(a, [&](Label l) { return needed(l) || has(b.labels, l); });
  sum_out(b, [&](Label l) { return needed(l) || has(a.labels, l); });
  Labels batch, summed, left, right;
  for (Label l : a.labels) (!has(b.labels, l) ? left : needed(l) ? batch : summed).push_back(l);
  for (Label l : b.labels) {
    if (!has(a.labels, l)) right.push_back(l);
  }
  const auto sizes = [](const Operand& o, const Labels& labels) {
    Shape s;
    for (Label l : labels) s.push_back(o.t.size(position(o.labels, l)));
    return s;
  };
  if (summed.empty() && batch.size() + left.size() + right.size() <= kMaxDims) {
    // Each element is one product of two: a matrix product would have a depth of one.
    Shape sa = sizes(a, batch), sb = sa;
    for (int64_t n : sizes(a, left)) sa.push_back(n), sb.push_back(1);
    for (int64_t n : sizes(b, right)) sa.push_back(1), sb.push_back(n);
    return {reshape(arrange(a, batch + left), sa) * reshape(arrange(b, batch + right), sb), batch + left + right};
  }
  const auto sum_size = sizes(a, summed).product(), rows = sizes(a, left).product(), cols = sizes(b, right).product();
  // Batch dimensions stay apart, so that no strided operand is copied, while the rank allows it.
  const Shape batch_sizes = sizes(a, batch);
  Shape sa = batch_sizes.size() <= kMaxDims - 2 ? batch_sizes : Shape{batch_sizes.product()}, sb = sa;
  sa.push_back(rows), sa.push_back(sum_size);
  sb.push_back(sum_size), sb.push_back(cols);
  const Tensor y =
      matmul(reshape(arrange(a, batch + left + summed), sa), reshape(arrange(b, batch + summed + right), sb));
  Operand result{y, batch + left + right};
  check<ShapeError>(result.labels.size() <= kMaxDims, kOp, "an intermediate result needs ",
                    static_cast<int64_t>(result.labels.size()), " dimensions, more than ", kMaxDims);
  Shape full = batch_sizes;
  for (int64_t s : sizes(a, left)) full.push_back(s);
  for (int64_t s : sizes(b, right)) full.push_back(s);
  result.t = reshape(y, full);
  return result;
}

// An equation checked against its operands.
struct Plan {
  std::vector<Labels> terms;  // labels of each operand's dimensions, repeated ones included
  Labels result;
  std::array<int64_t, kEllipsis + kMaxDims> size;  // of each label; -1 where it is not used
};

std::string name_of(Label l) {
  return l < kEllipsis ? std::string(1, static_cast<char>(l)) : "...";
}

Plan make_plan(const std::string& text, const TensorList& operands) {
  const Equation e = split(text);
  const auto count = [](size_t n) { return static_cast<int64_t>(n); };
  check(!operands.empty(), kOp, "needs at least one operand");
  check(e.inputs.size() == operands.size(), kOp, "\"", text, "\" has ", count(e.inputs.size()), " terms for ",
        count(operands.size()), " operands");
  Plan p;
  p.size.fill(-1);
  std::array<int, 256> uses{};
  int64_t most_dots = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string& term = e.inputs[i];
    const int64_t dots = operands[i].dim() - count_letters(term);
    p.terms.push_back(read_term(text, term, std::max<int64_t>(dots, 0)));
    check<ShapeError>(has_dots(term) ? dots >= 0 : dots == 0, kOp, "term \"", term, "\" does not fit operand ",
                      count(i), ", ", operands[i]);
    if (has_dots(term)) most_dots = std::max(most_dots, dots);
    Labels seen;
    for (size_t d = 0; d < p.terms[i].size(); ++d) {
      const Label l = p.terms[i][d];
      if (l < kEllipsis) ++uses[static_cast<size_t>(l)];
      int64_t& have = p.size[static_cast<size_t>(l)];
      const int64_t now = operands[i].size(count(d));
      // Within one operand a repeated letter is a diagonal, whose sizes must be equal.
      const bool ones = !has(seen, l) && (have == 1 || now == 1);
      check<ShapeError>(have == -1 || have == now || ones, kOp, "sizes of ", name_of(l), " in \"", text,
                        "\" differ: ", have, " and ", now);
      if (have == -1 || now != 1) have = now;
      seen.push_back(l);
    }
  }
  if (!e.arrow) {
    for (int64_t d = most_dots - 1; d >= 0; --d) p.result.push_back(kEllipsis + static_cast<Label>(d));
    for (int c = 'A'; c <= 'z'; ++c) {  // capitals first, as in PyTorch
      if (uses[static_cast<size_t>(c)] == 1) p.result.push_back(c);
    }
    return p;
  }
  p.result = read_term(text, e.result, most_dots);
  for (Label l : p.result) {
    check(p.size[static_cast<size_t>(l)] >= 0, kOp, "the result's ", name_of(l), " in \"", text, "\" is in no operand");
    check(std::count(p.result.begin(), p.result.end(), l) == 1, kOp, "the result of \"", text, "\" has ", name_of(l),
          " twice");
  }
  return p;
}

// Whether a label is in the result or in an operand other than number `at`.
bool needed_beside(const Plan& p, const std::vector<Operand>& all, size_t at, Label l) {
  if (has(p.result, l)) return true;
  for (size_t other = 0; other < all.size(); ++other)
    if (other != at && has(all[other].labels, l)) return true;
  return false;
}

// The two operands whose product adds least to the elements held, the first two of equals: the greedy order (Smith and
// Gray, opt_einsum, 2018). From left to right "bld,bln,bld->bldn" would make and keep another [b, l, d, n].
std::pair<size_t, size_t> cheapest_pair(const Plan& p, const std::vector<Operand>& all) {
  std::pair<size_t, size_t> best{0, 1};
  if (all.size() == 2) return best;
  const auto elements = [&](const Labels& labels) {
    double n = 1;
    for (Label l : labels) n *= static_cast<double>(p.size[static_cast<size_t>(l)]);
    return n;
  };
  double least = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      Labels product;
      for (const size_t of : {i, j}) {
        for (Label l : all[of].labels) {
          bool kept = has(p.result, l);
          for (size_t other = 0; other < all.size() && !kept; ++other)
            kept = other != i && other != j && has(all[other].labels, l);
          if (kept && !has(product, l)) product.push_back(l);
        }
      }
      const double more = elements(product) - elements(all[i].labels) - elements(all[j].labels);
      if ((i == 0 && j == 1) || more < least) best = {i, j}, least = more;
    }
  }
  return best;
}

Tensor einsum_composed(const std::string& text, const TensorList& operands) {
  const Plan p = make_plan(text, operands);
  std::vector<Operand> all;
  for (size_t i = 0; i < operands.size(); ++i) {
    all.push_back({operands[i], p.terms[i]});
    take_diagonals(all.back());
  }
  while (all.size() > 1) {
    const auto [i, j] = cheapest_pair(p, all);
    Operand b = std::move(all[j]);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(j));
    all[i] = contract(std::move(all[i]), std::move(b), [&, at = i](Label l) { return needed_beside(p, all, at, l); });
  }
  Operand total = std::move(all[0]);
  sum_out(total, [&](Label l) { return has(p.result, l); });
  return arrange(total, p.result);
}

// One loop over the values of all labels.
Tensor einsum_reference(const std::string& text, const TensorList& operands) {
  const Plan p = make_plan(text, operands);
  Labels all = p.result;
  for (const Labels& term : p.terms) {
    for (Label l : term) {
      if (!has(all, l)) all.push_back(l);
    }
  }
  Shape shape;
  for (Label l : p.result) shape.push_back(p.size[static_cast<size_t>(l)]);
  const Tensor y = empty(like(operands[0]).with_shape(shape));
  std::fill_n(y.data<double>(), y.numel(), 0.0);
  int64_t total = 1;
  for (Label l : all) total *= p.size[static_cast<size_t>(l)];
  for (int64_t i = 0; i < total; ++i) {
    std::array<int64_t, kEllipsis + kMaxDims> index{};
    int64_t rest = i;
    for (size_t d = all.size(); d-- > 0;) {
      index[static_cast<size_t>(all[d])] = rest % p.size[static_cast<size_t>(all[d])];
      rest /= p.size[static_cast<size_t>(all[d])];
    }
    double product = 1;
    for (size_t o = 0; o < operands.size(); ++o) {
      int64_t at = 0;
      for (size_t d = 0; d < p.terms[o].size(); ++d) {
        const auto dim = static_cast<int64_t>(d);
        if (operands[o].size(dim) != 1) at += index[static_cast<size_t>(p.terms[o][d])] * operands[o].strides()[dim];
      }
      product *= operands[o].data<double>()[at];
    }
    int64_t to = 0;
    for (Label l : p.result) to = to * p.size[static_cast<size_t>(l)] + index[static_cast<size_t>(l)];
    y.data<double>()[to] += product;
  }
  return y;
}

const Op<Tensor(const std::string&, const TensorList&)> einsum_op{{
    .schema = "einsum(str equation, Tensor[] operands) -> Tensor",
    .doc =
        "Products and sums by Einstein's convention. Each operand has a term of letters, one for each dimension, and "
        "the "
        "result has the term after \"->\"; letters that the result lacks are summed over. \"...\" stands for further "
        "dimensions, which broadcast. A letter twice in one term takes the diagonal. Without \"->\" the result has the "
        "dimensions of \"...\", then the letters met once in alphabetical order. Of several operands the two are "
        "contracted first whose product adds least to the elements held, of equals the first two; by matmul, or "
        "multiplied where nothing is summed. ValueError for a malformed equation, ShapeError for "
        "sizes that do not agree.",
    .example = "Tensor q = ones({2, 5, 3}), k = ones({2, 7, 3}); assert(einsum(\"bid,bjd->bij\", {q, k}).shape() == "
               "Shape({2, 5, 7}));",
    .composed = einsum_composed,
    .dtypes = kFloats | kInts,
    .cost =
        [](const std::string& text, const TensorList& operands) {
          // As if contracted at once: one multiplication and addition for every value of the labels.
          const Plan p = make_plan(text, operands);
          Cost c{operands.size() > 1 ? 2.0 : 1.0, 0};
          for (int64_t n : p.size) {
            if (n >= 0) c.flops *= static_cast<double>(n);
          }
          int64_t result = 1;
          for (Label l : p.result) result *= p.size[static_cast<size_t>(l)];
          c.bytes = static_cast<double>(result * size_of(operands[0].dtype()));
          for (const Tensor& t : operands) c.bytes += static_cast<double>(t.nbytes());
          return c;
        },
    .samples =
        [](Samples& s) {
          s.add("ij,jk->ik", TensorList{s.tensor({3, 4}), s.tensor({4, 5})});
          s.add("bld,bln,bld->bldn", TensorList{s.tensor({2, 3, 4}), s.tensor({2, 3, 5}), s.tensor({2, 3, 4})})
              .named("nothing summed");
          s.add("ij,jk", TensorList{s.tensor({3, 4}), s.tensor({4, 5})}).named("implicit");
          s.add("bid, bjd -> bij", TensorList{s.tensor({2, 3, 4}), s.tensor({2, 5, 4})}).named("batch");
          s.add("bhid,bhjd->bhij", TensorList{permute(s.tensor({2, 3, 2, 4}), {0, 2, 1, 3}), s.tensor({2, 2, 5, 4})})
              .named("heads");
          s.add("ii->i", TensorList{s.tensor({3, 3})}).named("diagonal");
          s.add("ii", TensorList{s.tensor({3, 3})}).named("trace");
          s.add("iij,jk->ki", TensorList{s.tensor({3, 3, 2}), s.tensor({2, 4})}).named("diagonal and product");
          s.add("ij->", TensorList{s.tensor({3, 4})}).named("sum");
          s.add("ijk->kji", TensorList{s.tensor({2, 3, 4})}).named("permute");
          s.add("i,j->ij", TensorList{s.tensor({3}), s.tensor({4})}).named("outer");
          s.add("ij,ij->ij", TensorList{s.tensor({3, 4}), s.tensor({3, 4})}).named("elementwise");
          s.add("...ij,...jk->...ik", TensorList{s.tensor({2, 1, 3, 4}), s.tensor({3, 4, 2})}).named("ellipsis");
          s.add("i...,i...", TensorList{s.tensor({3, 2}), s.tensor({3, 1})}).named("implicit ellipsis");
          s.add("ij,jk,kl->il", TensorList{s.tensor({2, 3}), s.tensor({3, 4}), s.tensor({4, 2})}).named("chain");
          s.add("ijm,jk,k->im", TensorList{s.tensor({2, 3, 2}), s.tensor({3, 4}), s.tensor({4})}).named("three");
          s.add("ij,jk->ik", TensorList{s.tensor({3, 1}), s.tensor({4, 5})}).named("broadcast");
          s.add("ij,jk->ik", TensorList{s.tensor({3, 0}), s.tensor({0, 5})}).named("empty");
          s.invalid<ValueError>("unexpected '1'", "i1,jk->ik", TensorList{s.tensor({3, 4}), s.tensor({4, 5})});
          s.invalid<ValueError>("terms", "ij,jk->ik", TensorList{s.tensor({3, 4})});
          s.invalid<ValueError>("in no operand", "ij->iz", TensorList{s.tensor({3, 4})});
          s.invalid<ValueError>("twice", "ij->ii", TensorList{s.tensor({3, 4})});
          s.invalid<ShapeError>("differ", "ij,jk->ik", TensorList{s.tensor({3, 4}), s.tensor({5, 5})});
          s.invalid<ShapeError>("does not fit", "ijk->k", TensorList{s.tensor({3, 4})});
          s.invalid<ShapeError>("differ", "ii->i", TensorList{s.tensor({3, 4})});
        },
    .reference = einsum_reference,
}};
}  // namespace

Tensor einsum(const std::string& equation, const TensorList& operands) {
  return einsum_op(equation, operands);
}

}  // namespace strata
