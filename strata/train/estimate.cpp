#include "strata/train/estimate.h"

#include <optional>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/memory/allocator.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/train/run.h"

namespace strata {
namespace {

using memory::Tag;

Tensor reserve(int64_t bytes, Tag tag) {
  memory::TagScope scope(tag);
  return empty({{bytes}, DType::u8, Device::meta(), std::nullopt});
}

}  // namespace

MemoryEstimate estimate_memory(const TrainConfig& given) {
  TrainConfig config = given;
  if (config.model.vocab == 0) config.model.vocab = 256;
  validate(config);
  const memory::Stats before = memory::stats(DeviceType::meta);
  memory::reset_peak(DeviceType::meta);
  DeviceScope dry(Device::meta());
  const auto model = make_model(config.model);
  model->train();
  const auto optimizer = make_optimizer(config.optim, model->named_parameters());
  const Tensor optimizer_state = reserve(optimizer->state_bytes(), Tag::optimizer);
  const Shape shape{config.batch, config.model.context};
  // The loader holds two batches ready while it makes the next one.
  const int64_t batch_bytes = 2 * shape.product() * size_of(DType::i64);
  const Tensor waiting = reserve(3 * batch_bytes, Tag::data);
  for (int64_t i = 0; i < config.accumulate; ++i) {
    std::optional<memory::TagScope> tag(Tag::data);
    const Tensor tokens = empty({shape, DType::i64, Device::meta(), std::nullopt});
    const Tensor targets = empty({shape, DType::i64, Device::meta(), std::nullopt});
    tag.reset();
    Tensor loss;
    {
      std::optional<AutocastScope> autocast;
      if (config.dtype == "bf16") autocast.emplace(DType::bf16);
      loss = model->loss(tokens, targets);
    }
    (config.accumulate == 1 ? loss : loss * (1.0 / static_cast<double>(config.accumulate))).backward();
  }
  const memory::Stats after = memory::stats(DeviceType::meta);
  const auto at_peak = [&](Tag tag) { return after.peak[static_cast<int>(tag)] - before.live[static_cast<int>(tag)]; };
  return {.parameter_count = model->num_parameters(),
          .parameters = at_peak(Tag::parameter),
          .gradients = at_peak(Tag::gradient),
          .optimizer = at_peak(Tag::optimizer),
          .activations = at_peak(Tag::activation) + at_peak(Tag::workspace),
          .data = at_peak(Tag::data),
          .peak = after.peak_total - before.live_total};
}

}  // namespace strata
