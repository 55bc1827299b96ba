#include "strata/autograd/made_again.h"

#include "strata/core/saving.h"
#include "strata/core/storage_watch.h"

namespace strata {

struct MadeAgain::Hooks final : SavedTensorHooks {
  Hooks(const Tensor& result, std::function<Tensor()> how)
      : make(std::move(how)),
        storage(detail::watch_number(*result.storage())),
        version(result.version()),
        numel(result.numel()),
        offset(result.storage_offset()),
        autocast(autocast_settings()) {}

  // The result itself, or its elements in another shape.
  std::shared_ptr<void> pack(const Tensor& t) override {
    if (detail::watch_number(*t.storage()) != storage || t.version() != version || t.numel() != numel ||
        t.storage_offset() != offset || !t.is_contiguous())
      return detail::keep_as_it_is();
    return std::make_shared<Shape>(t.shape());
  }
  Tensor unpack(const std::shared_ptr<void>& packed) override {
    const AutocastScope as_then(autocast);
    const Tensor made = make();
    const auto& shape = *static_cast<const Shape*>(packed.get());
    return made.shape() == shape ? made : made.view(shape);
  }

  const std::function<Tensor()> make;
  const uint64_t storage;
  const uint32_t version;
  const int64_t numel, offset;
  const AutocastSettings autocast;
};

bool MadeAgain::wanted(const Tensor& result) {
  return grad_enabled() && !detail::saving_is_hooked() && result.numel() > 0 && result.is_contiguous();
}

void MadeAgain::begin(const Tensor& result, std::function<Tensor()> make) {
  scope_ = std::make_unique<SavedTensorHooksScope>(std::make_shared<Hooks>(result, std::move(make)));
}

MadeAgain::~MadeAgain() = default;

}  // namespace strata
