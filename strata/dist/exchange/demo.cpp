// DeMo (Peng, Quesnelle, Kingma 2024, arXiv:2411.19870): each rank's momentum stays its own, but for the largest components
// of its chunks' cosine transforms, which travel and leave it; the sign of what came from all is the direction.

#include <cmath>
#include <numbers>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/exchange/exchange_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata::distributed::exchange {
namespace {

constexpr int64_t kSide = 64;  // of a chunk: a component's number fits in 16 bits

// A parameter as a matrix in chunks of height x width, filled up with zeros; a vector has chunks of one row.
struct Chunks {
  explicit Chunks(const Shape& s) {
    rows = s.size() < 2 ? 1 : s[0];
    columns = rows == 0 ? 0 : s.product() / rows;
    height = std::min(kSide, std::max<int64_t>(rows, 1));
    width = std::min(kSide, std::max<int64_t>(columns, 1));
    down = (rows + height - 1) / height;
    across = (columns + width - 1) / width;
  }
  int64_t count() const { return down * across; }
  int64_t kept(int64_t keep) const { return std::min(keep, height * width); }

  int64_t rows, columns, height, width, down, across;
};

// The orthonormal cosine transform (DCT-II): component k of x is sum_j D[k, j] x[j]; f32 [n, n].
Tensor cosines(int64_t n, Device device) {
  const Tensor d = empty(TensorMeta{{n, n}, DType::f32, Device::cpu(), std::nullopt});
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < n; ++j)
      d.data<float>()[k * n + j] = static_cast<float>(
          std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n)) *
          std::cos(std::numbers::pi * (2.0 * static_cast<double>(j) + 1) * static_cast<double>(k) / (2.0 * static_cast<double>(n))));
  return d.to(device);
}

class DeMo final : public GradientExchange {
 public:
  DeMo(const ExchangeRecord& record, const Parameters& parameters, Group& group, const ExchangeOptions& options)
      : GradientExchange(record, parameters, group, options) {
    const memory::TagScope tag(memory::Tag::optimizer);
    for (const Parameter& p : parameters_) {
      const Chunks c(p.tensor.shape());
      momenta_.push_back({c, zeros_on(device_, {c.down * c.height, c.across * c.width})});
      for (const int64_t n : {c.height, c.width})
        if (!cosines_.contains(n)) cosines_[n] = cosines(n, device_);
    }
  }

 protected:
  struct Momentum {
    Chunks chunks;
    Tensor value;  // f32 [down * height, across * width], of this rank
  };

  void exchange(double max_norm) override {
    TensorList places, codes, scales, gradients;
    for (const Parameter& p : parameters_) gradients.push_back(gradient_of(p.tensor));
    clip(gradients, max_norm);
    for (size_t i = 0; i < momenta_.size(); ++i) {
      Momentum& m = momenta_[i];
      const Chunks& c = m.chunks;
      m.value.mul_(Scalar(options_.decay));
      Tensor real = m.value.narrow(0, 0, c.rows).narrow(1, 0, c.columns);
      real.add_(gradients[i].view({c.rows, c.columns}));
      const Tensor all = components(m);
      const BlockCode code{8, c.kept(options_.keep)};
      const Tensor at = std::get<1>(topk(abs(all), code.block, 1));
      const Codes sent = encode(gather(all, 1, at), code);
      // What leaves is what the others will have.
      m.value.sub_(matrix_of(c, scatter(zeros_like(all), 1, at, decode(sent, code).view(at.shape()))));
      places.push_back(at.to(DType::i16).view({-1}));
      codes.push_back(sent.codes.view({-1}));
      scales.push_back(sent.scales.view({-1}));
    }
    if (momenta_.empty()) return;
    const Tensor all_places = from_ranks(cat(places, 0), "places"), all_codes = from_ranks(cat(codes, 0), "components"),
                 all_scales = from_ranks(cat(scales, 0), "scales");
    int64_t from = 0, chunk = 0;
    for (size_t i = 0; i < momenta_.size(); ++i) {
      const Chunks& c = momenta_[i].chunks;
      const BlockCode code{8, c.kept(options_.keep)};
      const int64_t n = c.count() * code.block;
      Tensor sum = zeros_on(device_, {c.count(), c.height * c.width});
      for (int64_t r = 0; r < ranks(); ++r) {
        const auto of_rank = [&](const Tensor& all, int64_t begin, int64_t length, int64_t width) {
          return all.select(0, r).narrow(0, begin, length).view({c.count(), width});
        };
        const Tensor numbers = decode({of_rank(all_codes, from, n, code.block), of_rank(all_scales, chunk, c.count(), 1)}, code);
        const Tensor at = of_rank(all_places, from, n, code.block).to(DType::i64);
        sum = scatter_add(sum, 1, at, numbers.view(at.shape()));
      }
      from += n;
      chunk += c.count();
      const Tensor whole = matrix_of(c, sum).narrow(0, 0, c.rows).narrow(1, 0, c.columns).contiguous();
      set_gradient(parameters_[i].tensor, sign(whole) + whole * 0.0);  // what is not finite stays so
    }
  }

  std::vector<State> states() override {
    std::vector<State> all;
    for (size_t i = 0; i < momenta_.size(); ++i) all.push_back({parameters_[i].name + ".momentum", true, momenta_[i].value});
    return all;
  }

 private:
  // [chunks, height * width] of a momentum's chunks, and back: [down * height, across * width].
  Tensor components(const Momentum& m) const {
    const Chunks& c = m.chunks;
    const Tensor x = m.value.view({c.down, c.height, c.across, c.width}).permute({0, 2, 1, 3}).contiguous();
    const Tensor y = matmul(matmul(cosines_.at(c.height), x), cosines_.at(c.width).t());
    return y.contiguous().view({c.count(), c.height * c.width});
  }
  Tensor matrix_of(const Chunks& c, const Tensor& components) const {
    const Tensor y = components.view({c.down, c.across, c.height, c.width});
    const Tensor x = matmul(matmul(cosines_.at(c.height).t(), y), cosines_.at(c.width));
    return x.permute({0, 2, 1, 3}).contiguous().view({c.down * c.height, c.across * c.width});
  }

  std::vector<Momentum> momenta_;
  std::map<int64_t, Tensor> cosines_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_demo(const GradientExchange::Parameters& p, Group& g, const ExchangeOptions& o) {
  return std::make_unique<DeMo>(exchange_record("demo"), p, g, o);
}
double sent_demo(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions& o) {
  int64_t bytes = 0;
  for (const Shape& s : shapes) {
    const Chunks c(s);
    bytes += c.count() * (2 * c.kept(o.keep) + BlockCode{8, c.kept(o.keep)}.bytes(c.kept(o.keep)));
  }
  return static_cast<double>(bytes * (ranks - 1));
}
double kept_demo(const std::vector<Shape>& shapes, int64_t, const ExchangeOptions&) {
  int64_t numbers = 0;
  for (const Shape& s : shapes) numbers += Chunks(s).count() * Chunks(s).height * Chunks(s).width;
  return 4.0 * static_cast<double>(numbers);
}

}  // namespace strata::distributed::exchange
