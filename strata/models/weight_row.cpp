#include "strata/models/weight_row.h"

#include "strata/core/error.h"

namespace strata {

WeightView WeightView::with(Step step) const {
  WeightView longer = *this;
  longer.steps_.push_back(std::move(step));
  return longer;
}

WeightView WeightView::narrow(int64_t dim, int64_t start, int64_t length) const {
  return with({.kind = Step::Kind::narrow, .dim = dim, .start = start, .length = length});
}
WeightView WeightView::select(int64_t dim, int64_t index) const {
  return with({.kind = Step::Kind::select, .dim = dim, .start = index});
}
WeightView WeightView::view(const Shape& sizes) const {
  return with({.kind = Step::Kind::view, .sizes = sizes});
}
WeightView WeightView::permute(const Dims& order) const {
  return with({.kind = Step::Kind::permute, .order = order});
}

Tensor WeightView::of(const Tensor& parameter) const {
  Tensor t = parameter;
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::narrow:
        t = t.narrow(step.dim, step.start, step.length);
        break;
      case Step::Kind::select:
        t = t.select(step.dim, step.start);
        break;
      case Step::Kind::view:
        t = t.view(step.sizes);
        break;
      case Step::Kind::permute:
        t = t.permute(step.order);
        break;
    }
  }
  return t;
}

WeightRow weight_row(std::string parameter, std::string name, const Shape& shape, const WeightView& view,
                     std::string gguf) {
  return {.parameter = std::move(parameter),
          .name = std::move(name),
          .shape = shape,
          .view = view,
          .gguf = std::move(gguf),
          .gguf_view = view};
}

WeightView gguf_rotary_rows(const WeightView& rows, int64_t heads, int64_t head_size, const Shape& rest) {
  Shape sizes{heads, 2, head_size / 2};
  Dims order{0, 2, 1};
  for (int64_t i = 0; i < static_cast<int64_t>(rest.size()); ++i) {
    sizes.push_back(rest[i]);
    order.push_back(3 + i);
  }
  return rows.view(sizes).permute(order);
}

}  // namespace strata
