// libFuzzer: any bytes are a pickle of tensors that lie in their storages, or an IoError. Every storage that is asked
// for has as many bytes as its key has characters, times 16.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/io/torch_pickle_inl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::io;
  try {
    const Pickle pickle = read_pickle({reinterpret_cast<const char*>(data), size}, "fuzz", [](std::string_view key) {
      return PickleStorage{nullptr, 0, key.size() * 16};
    });
    for (const PickleTensor& t : pickle.tensors) {
      const PickleStorage& s = pickle.storages.at(t.storage);
      const auto held = static_cast<int64_t>(s.nbytes) / t.type->block_bytes;
      int64_t last = t.first;
      for (int i = 0; i < t.shape.size(); ++i) last += (t.shape[i] - 1) * t.strides[i];
      if (t.first < 0 || t.shape.product() > held || (t.shape.product() > 0 && last >= held)) std::abort();
    }
  } catch (const strata::IoError&) {
  }
  return 0;
}
