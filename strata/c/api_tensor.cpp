// Tensors: making, looking, gradients.

#include <cstring>

#include "strata/autograd/autograd.h"
#include "strata/c/handles.h"
#include "strata/core/node.h"
#include "strata/memory/tiers.h"

using namespace strata;
using namespace strata::c;

void strata_value_clear(strata_value* value) {
  if (value) clear(*value);
}

// ---- making

strata_status strata_tensor_empty(const int64_t* shape, int32_t ndim, strata_dtype dtype, strata_device device,
                                  strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_tensor_empty";
    need(out, kName, "out");
    *out = give(
        empty({shape_from(shape, ndim, kName), dtype_from(dtype, kName), device_from(device, kName), std::nullopt}));
  });
}

strata_status strata_tensor_from_data(const void* data, size_t bytes, const int64_t* shape, int32_t ndim,
                                      strata_dtype dtype, strata_device device, strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_tensor_from_data";
    need(out, kName, "out");
    const Device d = device_from(device, kName);
    check<DeviceError>(!d.is_meta(), kName, "a meta tensor holds no data");
    Tensor t = empty({shape_from(shape, ndim, kName), dtype_from(dtype, kName), Device::cpu(), std::nullopt});
    check<ShapeError>(static_cast<size_t>(t.nbytes()) == bytes, kName, "a tensor ", t, " takes ", t.nbytes(),
                      " bytes, got ", bytes);
    if (bytes > 0) {
      need(data, kName, "data");
      std::memcpy(t.raw_data(), data, bytes);
    }
    *out = give(t.to(d));
  });
}

strata_status strata_tensor_borrow(void* data, const int64_t* shape, const int64_t* strides, int32_t ndim,
                                   strata_dtype dtype, strata_device device, void (*deleter)(void*), void* context,
                                   strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_tensor_borrow";
    need(out, kName, "out");
    const Shape s = shape_from(shape, ndim, kName);
    std::optional<Strides> steps;
    if (strides) steps = Strides(std::span<const int64_t>(strides, static_cast<size_t>(ndim)));
    *out = give(borrow(data, s, steps, dtype_from(dtype, kName), device_from(device, kName), deleter, context, kName));
  });
}

strata_tensor* strata_tensor_retain(strata_tensor* tensor) {
  return give(tensor_of(tensor));
}

void strata_tensor_release(strata_tensor* tensor) {
  guarded([&] { adopt(tensor); });
}

// ---- looking

int32_t strata_tensor_ndim(const strata_tensor* tensor) {
  return tensor ? impl_of(tensor)->shape.size() : 0;
}
const int64_t* strata_tensor_shape(const strata_tensor* tensor) {
  return tensor ? impl_of(tensor)->shape.data() : nullptr;
}
const int64_t* strata_tensor_strides(const strata_tensor* tensor) {
  return tensor ? impl_of(tensor)->strides.data() : nullptr;
}
int64_t strata_tensor_numel(const strata_tensor* tensor) {
  return tensor ? impl_of(tensor)->numel : 0;
}
strata_dtype strata_tensor_dtype(const strata_tensor* tensor) {
  return tensor ? c_dtype(impl_of(tensor)->dtype) : STRATA_F32;
}
strata_device strata_tensor_device(const strata_tensor* tensor) {
  return tensor ? c_device(impl_of(tensor)->device) : strata_device{STRATA_CPU, 0};
}
strata_status strata_tensor_tier(const strata_tensor* tensor, strata_value* out) {
  return guarded([&] {
    need(out, "strata_tensor_tier", "out");
    *out = give(Value(std::string(need_tensor(tensor, "strata_tensor_tier").tier().name())));
  });
}
strata_status strata_tensor_to_tier(const strata_tensor* tensor, const char* tier, strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_tensor_to_tier";
    need(out, kName, "out");
    need(tier, kName, "tier");
    *out = give(need_tensor(tensor, kName).to(memory::parse_tier(tier)));
  });
}
bool strata_tensor_is_contiguous(const strata_tensor* tensor) {
  return tensor && impl_of(tensor)->contiguous;
}
void* strata_tensor_data(const strata_tensor* tensor) {
  if (!tensor || !impl_of(tensor)->storage->data) return nullptr;
  const TensorImpl& t = *impl_of(tensor);
  return t.storage->data + t.offset * size_of(t.dtype);
}

strata_status strata_tensor_copy_to_host(const strata_tensor* tensor, void* data, size_t bytes) {
  return guarded([&] {
    constexpr const char* kName = "strata_tensor_copy_to_host";
    const Tensor t = need_tensor(tensor, kName);
    check<DeviceError>(!t.is_meta(), kName, "a tensor ", t, " has no elements");
    check<ShapeError>(static_cast<size_t>(t.nbytes()) == bytes, kName, "a tensor ", t, " takes ", t.nbytes(),
                      " bytes, got room for ", bytes);
    if (bytes == 0) return;
    need(data, kName, "data");
    NoGrad guard;
    const Tensor here = t.to(Device::cpu()).contiguous();
    const Pin pin(here, Access::read);
    std::memcpy(data, here.raw_data(), bytes);
  });
}

void strata_tensor_written(strata_tensor* tensor) {
  guarded([&] {
    if (tensor) bump_version(tensor_of(tensor), "strata_tensor_written");
  });
}

strata_status strata_tensor_to_string(const strata_tensor* tensor, strata_value* out) {
  return guarded([&] {
    need(out, "strata_tensor_to_string", "out");
    *out = give(Value(need_tensor(tensor, "strata_tensor_to_string").to_string()));
  });
}

// ---- gradients

bool strata_tensor_requires_grad(const strata_tensor* tensor) {
  return guarded_or(false, [&] { return tensor && tensor_of(tensor).requires_grad(); });
}

strata_status strata_tensor_set_requires_grad(strata_tensor* tensor, bool value) {
  return guarded([&] { need_tensor(tensor, "strata_tensor_set_requires_grad").set_requires_grad(value); });
}

strata_status strata_tensor_grad(const strata_tensor* tensor, strata_tensor** out) {
  return guarded([&] {
    need(out, "strata_tensor_grad", "out");
    *out = give(need_tensor(tensor, "strata_tensor_grad").grad());
  });
}

strata_status strata_tensor_set_grad(strata_tensor* tensor, const strata_tensor* grad) {
  return guarded([&] { need_tensor(tensor, "strata_tensor_set_grad").set_grad(tensor_of(grad)); });
}

strata_status strata_tensor_detach(const strata_tensor* tensor, strata_tensor** out) {
  return guarded([&] {
    need(out, "strata_tensor_detach", "out");
    *out = give(need_tensor(tensor, "strata_tensor_detach").detach());
  });
}

strata_status strata_tensor_backward(const strata_tensor* tensor, const strata_tensor* grad, bool retain_graph,
                                     bool create_graph) {
  return guarded(
      [&] { need_tensor(tensor, "strata_tensor_backward").backward(tensor_of(grad), retain_graph, create_graph); });
}

strata_status strata_grad(strata_tensor* const* outputs, size_t num_outputs, strata_tensor* const* inputs,
                          size_t num_inputs, strata_tensor* const* grad_outputs, bool retain_graph, bool create_graph,
                          bool allow_unused, strata_tensor** grads) {
  return guarded([&] {
    constexpr const char* kName = "strata_grad";
    const auto list = [&](strata_tensor* const* handles, size_t n, const char* what, bool all) {
      if (n > 0) need(handles, kName, what);
      TensorList tensors;
      for (size_t i = 0; i < n; ++i) {
        if (all) need(handles[i], kName, cat(what, "[", i, "]"));
        tensors.push_back(tensor_of(handles[i]));
      }
      return tensors;
    };
    if (num_inputs > 0) need(grads, kName, "grads");
    const TensorList ys = list(outputs, num_outputs, "outputs", true);
    const TensorList xs = list(inputs, num_inputs, "inputs", true);
    const TensorList gys = grad_outputs ? list(grad_outputs, num_outputs, "grad_outputs", false) : TensorList();
    const TensorList result = grad(ys, xs, gys, create_graph, retain_graph, allow_unused);
    for (size_t i = 0; i < num_inputs; ++i) grads[i] = give(result[i]);
  });
}

bool strata_set_grad_enabled(bool enabled) {
  return std::exchange(t_mode.grad_enabled, enabled);
}
bool strata_grad_enabled(void) {
  return grad_enabled();
}
