#include "strata/train/estimate.h"

#include <algorithm>
#include <optional>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/data/dataset.h"
#include "strata/memory/allocator.h"
#include "strata/nn/dry_run.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/loss/reduction.h"
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
  memory::reset_peak(DeviceType::meta);
  const memory::Stats before = memory::stats(DeviceType::meta);
  DeviceScope dry(Device::meta());
  const bool on_card = config.device.starts_with("cuda");
  const nn::DryRunOfCuda way(on_card);
  const auto model = make_model(config);
  model->train();
  memory::reset_peak(DeviceType::meta);  // weights of 16 bits were f32 when they were initialised
  const auto optimizer = make_optimizer(config.optim, model->named_parameters(), 0, model->table_names());
  const Shape shape{config.batch, config.model.context};
  const auto make_batch = [&] {
    memory::TagScope tag(Tag::data);
    const TensorMeta meta{shape, DType::i64, Device::meta(), std::nullopt};
    return data::Batch{empty(meta), empty(meta)};
  };
  // What the loader holds ready, and the one that it is making.
  const std::vector<data::Batch> waiting{make_batch(), make_batch(), make_batch()};
  Tensor optimizer_state;
  int64_t gradients = 0;
  // The first pass of a step makes the gradients, the second adds to them, and all that follow are like it.
  const int64_t passes = std::min<int64_t>(config.accumulate, 3);
  // The first step makes the optimizer's state, the second is like all that follow.
  for (int step = 0; step < 2; ++step) {
    optimizer->zero_grad();
    std::vector<data::Batch> batches;
    for (int64_t i = 0; i < passes; ++i) batches.push_back(make_batch());
    const Tensor others = reserve(
        2 * (config.accumulate - passes) * config.batch * config.model.context * static_cast<int64_t>(sizeof(int64_t)),
        Tag::data);
    for (const data::Batch& batch : batches) {
      Tensor loss;
      {
        std::optional<AutocastScope> autocast;
        if (config.dtype != "f32") autocast.emplace(parse_dtype(config.dtype), true, config.grad_dtype == "bf16");
        loss = model->loss(batch[0], batch[1]);
      }
      if (on_card) {  // kernels do not run here, and this one's workspace is large
        const DType dtype = config.dtype == "f32" ? DType::f32 : parse_dtype(config.dtype);
        reserve(detail::linear_cross_entropy_workspace(config.batch * config.model.context, config.model.dim,
                                                       config.model.vocab, dtype),
                Tag::workspace);
      }
      (config.accumulate == 1 ? loss : loss * (1.0 / static_cast<double>(config.accumulate))).backward();
    }
    gradients = memory::stats(DeviceType::meta).live[static_cast<int>(Tag::gradient)];
    if (step == 0) optimizer_state = reserve(optimizer->state_bytes(), Tag::optimizer);
  }
  const memory::Stats after = memory::stats(DeviceType::meta);
  const auto at_peak = [&](Tag tag) { return after.peak[static_cast<int>(tag)] - before.live[static_cast<int>(tag)]; };
  return {.parameter_count = model->num_parameters(),
          .parameters = at_peak(Tag::parameter),
          .gradients = gradients - before.live[static_cast<int>(Tag::gradient)],
          .optimizer = at_peak(Tag::optimizer),
          .activations = at_peak(Tag::activation) + at_peak(Tag::workspace),
          .data = at_peak(Tag::data),
          .peak = after.peak_reserved - before.reserved};
}

}  // namespace strata
