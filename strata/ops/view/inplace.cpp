// In-place writes through views: the base's history must pass through the write, and other views must see it.

#include <mutex>

#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// The base after a write through one of its views: the gradient of the written part goes to the write, that of the
// rest (and, through the write's own first input, of what was there before) to the base's earlier history.
class CopySlices final : public Node {
 public:
  CopySlices(const Tensor& base, const Tensor& view, Ref<Node> write)
      : base_shape_(base.shape()),
        base_strides_(base.strides()),
        base_offset_(base.storage_offset()),
        shape_(view.shape()),
        strides_(view.strides()),
        offset_(view.storage_offset()),
        write_(std::move(write)) {
    edges.push_back(gradient_edge(base));
    // The write's first edge led to the view's old history, which is the base's: it is fed through slot 0.
    for (size_t i = 1; i < write_->edges.size(); ++i) edges.push_back(write_->edges[i]);
    view_wanted_ = !write_->edges.empty() && write_->edges[0].node;
  }
  std::string_view name() const override { return write_->name(); }
  void apply(Grads& gy, Grads& gx) override {
    // Through ordinary ops, so that it can be differentiated again.
    const Tensor g = gy[0].is_contiguous() && gy[0].storage_offset() == 0 ? gy[0] : clone(contiguous(gy[0]));
    const Tensor part = as_strided(g, shape_, view_strides_in(g), view_offset_in());
    Grads in{part}, out(write_->edges.size());
    write_->apply(in, out);
    if (edges[0].node) {
      const Strides dense = contiguous_strides(base_shape_);
      Tensor rest =
          g.add(as_strided_backward(part, base_shape_, dense, 0, shape_, view_strides_in(g), view_offset_in()).neg());
      if (view_wanted_ && out[0].defined())
        rest =
            rest.add(as_strided_backward(out[0], base_shape_, dense, 0, shape_, view_strides_in(g), view_offset_in()));
      gx[0] = rest;
    }
    for (size_t i = 1; i < out.size(); ++i) gx[i] = out[i];
  }
  void release() override { write_->release(); }

 private:
  // The view's geometry over a row-major tensor of the base's shape; the base must itself be row-major.
  Strides view_strides_in(const Tensor&) const { return strides_; }
  int64_t view_offset_in() const { return offset_ - base_offset_; }

  Shape base_shape_;
  Strides base_strides_;
  int64_t base_offset_;
  Shape shape_;
  Strides strides_;
  int64_t offset_;
  Ref<Node> write_;
  bool view_wanted_ = false;
};

// Views of a base that was written: their history is the base's new one, seen through their geometry.
class BaseView final : public Node {
 public:
  BaseView(const Tensor& base, const Tensor& view)
      : base_shape_(base.shape()),
        shape_(view.shape()),
        strides_(view.strides()),
        offset_(view.storage_offset() - base.storage_offset()) {
    edges.push_back(gradient_edge(base));
  }
  std::string_view name() const override { return "as_strided"; }
  void apply(Grads& gy, Grads& gx) override {
    gx[0] = as_strided_backward(gy[0], base_shape_, contiguous_strides(base_shape_), 0, shape_, strides_, offset_);
  }

 private:
  Shape base_shape_;
  Shape shape_;
  Strides strides_;
  int64_t offset_;
};

}  // namespace

// Threads that read one view for the first time since the write come here together; who finds the version they want
// sees the rest too.
void detail::refresh_view(const Tensor& view) {
  static std::mutex mutex;
  Ref<Node> old;  // its end is not under the lock
  AutogradMeta& m = autograd_meta(view);
  const std::lock_guard lock(mutex);
  const uint32_t version = view.version();
  if (m.view_version.load(std::memory_order_relaxed) == version && m.grad_fn) return;
  const Tensor base(view.impl().view_base);
  if (base.requires_grad()) {
    old = std::move(m.grad_fn);
    m.grad_fn = Ref<Node>(new BaseView(base, view));
    m.result_index = 0;
  }
  m.view_version.store(version, std::memory_order_release);
}

void rebase_history(Tensor& t, const Ref<Node>& node) {
  if (!t.impl().view_base) {
    set_history(t, node, 0);
    return;
  }
  const Tensor base(t.impl().view_base);
  check<AutogradError>(base.is_contiguous(), node->name(),
                       "writing in place through a view needs a row-major base; the base has strides ", base.strides());
  Ref<Node> slices(new CopySlices(base, t, node));
  set_history(base, slices, 0);
  autograd_meta(t).grad_fn = {};  // that of before the write
  detail::refresh_view(t);
  t.impl().requires_grad = true;
}

}  // namespace strata
