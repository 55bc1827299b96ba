#include "strata/data/feature_loader.h"

#include <deque>
#include <exception>
#include <utility>

#include "strata/core/error.h"

namespace strata::data {

// Batches that were made and not handed out. Neither batch nor error: the end of an epoch.
struct FeatureQueue {
  struct Item {
    std::optional<Batch> batch;
    std::exception_ptr error;
    SamplerState after;
  };
  std::deque<Item> items;
};

FeatureLoader::FeatureLoader(DataLoader loader, std::shared_ptr<FeatureSource> features,
                             const FeatureLoaderOptions& options)
    : loader_(std::move(loader)),
      features_(std::move(features)),
      options_(options),
      delivered_(loader_.state()),
      queue_(std::make_unique<FeatureQueue>()) {
  check(features_ != nullptr, "FeatureLoader", "needs a table");
  check(options.ahead >= 0, "FeatureLoader", "ahead must be at least 0, got ", options.ahead);
}
FeatureLoader::~FeatureLoader() = default;
FeatureLoader::FeatureLoader(FeatureLoader&&) noexcept = default;
FeatureLoader& FeatureLoader::operator=(FeatureLoader&&) noexcept = default;

void FeatureLoader::fetch() {
  FeatureQueue::Item item;
  try {
    item.batch = loader_.next();
    if (item.batch) {
      check<IndexError>(options_.indices < item.batch->size(), "FeatureLoader", "batches have ", item.batch->size(),
                        " tensors, none at ", options_.indices);
      if (options_.ahead > 0) features_->prefetch((*item.batch)[options_.indices]);
    }
  } catch (...) {
    item.error = std::current_exception();
  }
  item.after = loader_.state();
  queue_->items.push_back(std::move(item));
}

std::optional<Batch> FeatureLoader::next() {
  while (static_cast<int64_t>(queue_->items.size()) <= options_.ahead) fetch();
  FeatureQueue::Item item = std::move(queue_->items.front());
  queue_->items.pop_front();
  delivered_ = item.after;
  if (item.error) std::rethrow_exception(item.error);
  if (item.batch) item.batch->push_back(features_->gather((*item.batch)[options_.indices]));
  return std::move(item.batch);
}

void FeatureLoader::set_state(const SamplerState& state) {
  loader_.set_state(state);
  queue_->items.clear();
  delivered_ = state;
}

}  // namespace strata::data
