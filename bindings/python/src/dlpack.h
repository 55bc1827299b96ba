#pragma once
// The structs of DLPack 1.0 (https://dmlc.github.io/dlpack/latest/c_api.html), which cross the interface by layout.

#include <cstdint>

namespace strata::python::dl {

enum DeviceKind : int32_t { kCPU = 1, kCUDA = 2, kCUDAHost = 3, kCUDAManaged = 13 };
enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Device {
  int32_t type;
  int32_t id;
};
struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; may be null for row-major
  uint64_t byte_offset;
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct Version {
  uint32_t major;
  uint32_t minor;
};
inline constexpr uint64_t kReadOnly = 1;
inline constexpr uint64_t kIsCopied = 2;
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};

}  // namespace strata::python::dl
