// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727): a matrix travels as two thin factors.

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/exchange/exchange_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::distributed::exchange {
namespace {

// Of a parameter as a matrix: its first dimension by all others.
struct Size {
  int64_t rows = 0, columns = 0;
  // Whether factors are less than what they stand for.
  bool factored(int64_t rank) const { return rank < std::min(rows, columns) && rank * (rows + columns) < rows * columns; }
};
Size size_of_matrix(const Shape& s) {
  if (s.size() < 2 || s[0] == 0) return {};
  return {s[0], s.product() / s[0]};
}

// Rows of `p` [r, m] made orthonormal one after the other, twice over each for those that are nearly dependent. What is
// left of a dependent one is rounding, and becomes zeros: `alive` [r, 1] has 0 for it.
Tensor orthonormal_rows(const Tensor& p, Tensor& alive) {
  constexpr float kDependent = 1e-4f;
  TensorList rows, lives;
  for (int64_t i = 0; i < p.size(0); ++i) {
    Tensor row = p.narrow(0, i, 1);
    const Tensor before = norm(row, 2, {1}, true);
    if (i > 0) {
      const Tensor done = cat(rows, 0);
      for (int turn = 0; turn < 2; ++turn) row = row - matmul(matmul(row, done.t()), done);
    }
    const Tensor length = norm(row, 2, {1}, true);
    const Tensor lives_on = logical_and(length > before * Scalar(kDependent), before > Scalar(0.0f));
    // Not finite stays so, and is seen.
    const Tensor scale = where(logical_or(lives_on, logical_not(isfinite(length))), reciprocal(length), 0.0f);
    rows.push_back(where(scale == Scalar(0.0f), 0.0f, row * scale).to(DType::f32));
    lives.push_back(lives_on);
  }
  alive = cat(lives, 0);
  return cat(rows, 0);
}

class PowerSgd final : public GradientExchange {
 public:
  PowerSgd(const ExchangeRecord& record, const Parameters& parameters, Group& group, const ExchangeOptions& options)
      : GradientExchange(record, parameters, group, options) {
    const memory::TagScope tag(memory::Tag::optimizer);
    Generator random(0x506f77657253u);  // the same in all ranks
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& t = parameters_[i].tensor;
      const Size s = size_of_matrix(t.shape());
      if (!s.factored(options.rank)) {
        plain_.push_back(i);
        continue;
      }
      const Tensor q = zeros_on(device_, {options.rank, s.columns});
      normal_(q, 0, 1, random);
      matrices_.push_back({i, s, zeros_on(device_, {s.rows, s.columns}), q});
    }
  }

 protected:
  struct Matrix {
    size_t parameter;
    Size size;
    Tensor error;  // f32 [rows, columns], of this rank
    Tensor q;      // f32 [r, columns], where the next step begins: the same in all ranks
  };

  void exchange(double) override {
    send_plain();
    if (matrices_.empty()) return;
    TensorList left, right;
    for (Matrix& m : matrices_) {
      m.error.add_(gradient_of(parameters_[m.parameter].tensor).view(m.error.shape()));  // what is to be sent
      left.push_back(matmul(m.q, m.error.t()).view({-1}));                               // [r, rows]
    }
    const Tensor lefts = together(left, "left factors");
    TensorList alive(matrices_.size());
    int64_t at = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      Matrix& m = matrices_[i];
      const int64_t n = options_.rank * m.size.rows;
      left[i] = orthonormal_rows(lefts.narrow(0, at, n).view({options_.rank, m.size.rows}), alive[i]);
      right.push_back(matmul(left[i], m.error).view({-1}));  // [r, columns]
      at += n;
    }
    const Tensor rights = together(right, "right factors");
    at = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      Matrix& m = matrices_[i];
      const int64_t n = options_.rank * m.size.columns;
      const Tensor q = rights.narrow(0, at, n).view({options_.rank, m.size.columns});
      at += n;
      const Tensor sent = matmul(left[i].t(), q);
      copy_elements(m.error, m.error - sent);
      set_gradient(parameters_[m.parameter].tensor, sent);
      // A direction that had nothing goes on looking where it looked.
      copy_elements(m.q, where(alive[i], q, m.q));
    }
  }

  std::vector<State> states() override {
    std::vector<State> all;
    for (const Matrix& m : matrices_) {
      const std::string& name = parameters_[m.parameter].name;
      all.push_back({name + ".error", true, m.error});
      all.push_back({name + ".q", false, m.q});
    }
    return all;
  }

 private:
  Tensor together(const TensorList& parts, const std::string& what) {
    const Tensor flat = parts.size() == 1 ? parts[0].contiguous() : cat(parts, 0);
    mean_of_ranks(flat, what);
    return flat;
  }
  void send_plain() {
    if (plain_.empty()) return;
    TensorList parts;
    for (const size_t i : plain_) parts.push_back(gradient_of(parameters_[i].tensor).contiguous().view({-1}));
    const Tensor flat = cat(parts, 0);
    mean_of_ranks(flat, "what has no factors");
    int64_t at = 0;
    for (const size_t i : plain_) {
      const Tensor& t = parameters_[i].tensor;
      set_gradient(t, flat.narrow(0, at, t.numel()));
      at += t.numel();
    }
  }

  std::vector<size_t> plain_;  // vectors, and matrices that are no larger than their factors
  std::vector<Matrix> matrices_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_power_sgd(const GradientExchange::Parameters& p, Group& g,
                                                 const ExchangeOptions& o) {
  return std::make_unique<PowerSgd>(exchange_record("powersgd"), p, g, o);
}
double sent_power_sgd(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions& o) {
  int64_t numbers = 0;
  for (const Shape& s : shapes) {
    const Size m = size_of_matrix(s);
    numbers += m.factored(o.rank) ? o.rank * (m.rows + m.columns) : s.product();
  }
  return ring_bytes(4.0 * static_cast<double>(numbers), ranks);
}
double kept_power_sgd(const std::vector<Shape>& shapes, int64_t, const ExchangeOptions& o) {
  int64_t numbers = 0;
  for (const Shape& s : shapes)
    if (const Size m = size_of_matrix(s); m.factored(o.rank)) numbers += m.rows * m.columns + o.rank * m.columns;
  return 4.0 * static_cast<double>(numbers);
}

}  // namespace strata::distributed::exchange
