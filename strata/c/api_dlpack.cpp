// DLPack, both ways and both versions, without copies.

#include <memory>

#include "strata/c/dlpack_abi.h"
#include "strata/c/handles.h"

using namespace strata;
using namespace strata::c;

namespace {

DLDataType dl_type(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::u8:
      return {kDLUInt, bits, 1};
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return {kDLInt, bits, 1};
    case DType::bf16:
      return {kDLBfloat, bits, 1};
    case DType::boolean:
      return {kDLBool, bits, 1};
    default:
      return {kDLFloat, bits, 1};
  }
}

DType dtype_of_dl(const DLDataType& type, const char* function) {
  if (type.lanes == 1)
    for (const DType dtype : kAllDTypes) {
      const DLDataType own = dl_type(dtype);
      if (own.code == type.code && own.bits == type.bits) return dtype;
    }
  throw DTypeError(function, cat("no dtype for DLPack's type code ", static_cast<int>(type.code), " with ",
                                 static_cast<int>(type.bits), " bits and ", static_cast<int>(type.lanes), " lanes"));
}

// What a lent tensor needs to stay alive: the handle, and a shape and strides of the struct's own.
template <class Managed>
struct Lent {
  Managed managed = {};
  Tensor tensor;
  Shape shape;
  Strides strides;
  static void free(Managed* m) { delete static_cast<Lent*>(m->manager_ctx); }
};

template <class Managed>
void lend(const strata_tensor* handle, Managed** out, const char* function) {
  need(out, function, "out");
  const Tensor t = need_tensor(handle, function);
  check<AutogradError>(!t.requires_grad(), function,
                       "a tensor that requires a gradient cannot be lent; detach it first");
  check<DeviceError>(!t.is_meta(), function, "a meta tensor has no memory to lend");
  auto lent = std::make_unique<Lent<Managed>>();
  lent->tensor = t;
  lent->shape = t.shape();
  lent->strides = t.strides();
  DLTensor& d = lent->managed.dl_tensor;
  d.data = strata_tensor_data(handle);
  d.device = {t.device().is_cuda() ? kDLCUDA : kDLCPU, t.device().index};
  d.ndim = lent->shape.size();
  d.dtype = dl_type(t.dtype());
  d.shape = lent->shape.begin();
  d.strides = lent->strides.begin();
  d.byte_offset = 0;
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = Lent<Managed>::free;
  *out = &lent.release()->managed;
}

template <class Managed>
void take(Managed* managed, strata_tensor** out, const char* function) {
  need(out, function, "out");
  const DLTensor& d = managed->dl_tensor;
  Device device;
  switch (d.device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      device = Device::cpu();
      break;
    case kDLCUDA:
    case kDLCUDAManaged:
      device = device_from({STRATA_CUDA, d.device.device_id}, function);
      break;
    default:
      throw DeviceError(function, cat("no device for DLPack's device type ", d.device.device_type));
  }
  const DType dtype = dtype_of_dl(d.dtype, function);
  const Shape shape = shape_from(d.shape, d.ndim, function);
  std::optional<Strides> strides;
  if (d.strides) strides = Strides(std::span<const int64_t>(d.strides, static_cast<size_t>(d.ndim)));
  void* data = d.data ? static_cast<char*>(d.data) + d.byte_offset : nullptr;
  *out = give(borrow(
      data, shape, strides, dtype, device,
      [](void* m) {
        auto* taken = static_cast<Managed*>(m);
        if (taken->deleter) taken->deleter(taken);
      },
      managed, function));
}

}  // namespace

strata_status strata_tensor_to_dlpack(const strata_tensor* tensor, DLManagedTensor** out) {
  return guarded([&] { lend(tensor, out, "strata_tensor_to_dlpack"); });
}

strata_status strata_tensor_to_dlpack_versioned(const strata_tensor* tensor, DLManagedTensorVersioned** out) {
  return guarded([&] {
    lend(tensor, out, "strata_tensor_to_dlpack_versioned");
    (*out)->version = kDLPackVersion;
  });
}

strata_status strata_tensor_from_dlpack(DLManagedTensor* managed, strata_tensor** out) {
  return guarded([&] {
    need(managed, "strata_tensor_from_dlpack", "the DLManagedTensor");
    take(managed, out, "strata_tensor_from_dlpack");
  });
}

strata_status strata_tensor_from_dlpack_versioned(DLManagedTensorVersioned* managed, strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_tensor_from_dlpack_versioned";
    need(managed, kName, "the DLManagedTensorVersioned");
    // Only version and deleter stand still between major versions.
    check(managed->version.major == kDLPackVersion.major, kName, "DLPack ", managed->version.major, ".",
          managed->version.minor, " is not understood, version ", kDLPackVersion.major, " is");
    take(managed, out, kName);
  });
}
