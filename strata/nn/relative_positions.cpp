#include "strata/nn/relative_positions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/nn/init.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"

namespace strata::nn {

// Buckets by distance + distance_, on the device that was last asked for: a step that a graph replays copies nothing.
struct RelativePositions::Table {
  Tensor on(Device device) {
    const std::lock_guard lock(mutex);
    if (!kept.defined() || !(kept.device() == device)) kept = host.to(device);
    return kept;
  }
  std::mutex mutex;
  Tensor host, kept;  // the meta device gives no numbers back
};

std::vector<int64_t> relative_buckets(int64_t buckets, int64_t distance, bool both_ways) {
  check(buckets >= 4 && buckets % 2 == 0 && distance > buckets / 2 && distance < (1 << 24), "relative_buckets", buckets,
        " buckets of distances to ", distance);
  const int64_t own = both_ways ? buckets / 2 : buckets, exact = own / 2;
  // In f32, as the library that the weights come from counts: which side of a bound a distance falls on is the same.
  const auto scale = static_cast<float>(std::log(static_cast<double>(distance) / static_cast<double>(exact)));
  std::vector<int64_t> of;
  for (int64_t d = -distance; d <= distance; ++d) {
    const int64_t far = both_ways ? std::abs(d) : std::max<int64_t>(-d, 0);
    int64_t bucket = far;
    if (far >= exact) {
      const float log = std::log(static_cast<float>(far) / static_cast<float>(exact));
      bucket = std::min(own - 1, exact + static_cast<int64_t>(log / scale * static_cast<float>(own - exact)));
    }
    of.push_back(bucket + (both_ways && d > 0 ? own : 0));
  }
  return of;
}

RelativePositions::RelativePositions(int64_t buckets, int64_t distance, int64_t heads, bool both_ways)
    : Module("RelativePositions"), distance_(distance), table_(std::make_shared<Table>()) {
  const std::vector<int64_t> of = relative_buckets(buckets, distance, both_ways);
  {
    const DeviceScope host(Device::cpu());  // the table alone: the weight is where the caller's tensors are
    table_->host = from_span<int64_t>(of, {static_cast<int64_t>(of.size())});
  }
  weight = init::normal_(new_parameter("weight", {buckets, heads}));
}

Tensor RelativePositions::forward(const Tensor& distances) const {
  const Tensor places = clamp(distances, -distance_, distance_) + distance_;
  const Tensor buckets = index_select(table_->on(places.device()), 0, places.reshape({-1})).view(places.shape());
  return embedding(buckets, weight);
}

Tensor RelativePositions::between(int64_t queries, int64_t keys) const {
  const DeviceScope there(weight.device());
  const Tensor distances = arange(keys, DType::i64).unsqueeze(0) - arange(queries, DType::i64).unsqueeze(1);
  return (*this)(distances).permute({2, 0, 1}).unsqueeze(0);
}

Tensor RelativePositions::before(const Tensor& positions, int64_t keys) const {
  const DeviceScope there(weight.device());
  const Tensor distances = arange(keys, DType::i64).view({1, 1, keys}) - positions.unsqueeze(2);
  const Tensor numbers = (*this)(distances).permute({0, 3, 1, 2});
  return where((distances > 0).unsqueeze(1), -std::numeric_limits<double>::infinity(), numbers);
}

}  // namespace strata::nn
