#include <algorithm>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/stored_write_inl.h"

namespace strata::io {

void write_stored(FileWriter& file, const StoredItem& item, const Tensor& tensor, std::string_view op) {
  const StoredType& type = *item.type;
  const std::string what = cat("tensor ", quote(item.name));
  check<DTypeError>(type.dtype && (type.is_plain() || type.encode), op, what, ": there is no encoder for ", type.name);
  check<DTypeError>(type.is_plain() || is_floating(tensor.dtype()), op, what, ": ", tensor.dtype(), " does not become ",
                    type.name, ", floating elements are wanted");
  check<DTypeError>(!is_floating(tensor.dtype()) || is_floating(*type.dtype), op, what, ": ", tensor.dtype(),
                    " does not become ", type.name, ": floating elements do not go into integers");
  check<ShapeError>(tensor.shape() == item.shape, op, what, " is ", tensor.shape(), ", ", item.shape,
                    " was said before");
  check<DeviceError>(!tensor.is_meta(), op, what, " is a meta tensor: it has no data");
  constexpr int64_t kPiece = int64_t{1} << 20;  // elements, a multiple of every block
  const memory::TierScope own{Tier()};
  const Tensor flat = tensor.detach().reshape({tensor.numel()});
  std::string blocks;
  for (int64_t at = 0; at < flat.numel(); at += kPiece) {
    const int64_t n = std::min(kPiece, flat.numel() - at);
    const Tensor piece = flat.narrow(0, at, n).to(Device::cpu()).to(*type.dtype).contiguous();
    const Pin pin(piece, Access::read);
    if (type.is_plain()) {
      file.write(piece.raw_data(), static_cast<size_t>(piece.nbytes()));
      continue;
    }
    blocks.resize(static_cast<size_t>(n / type.block * type.block_bytes));
    try {
      const float* from = piece.data<float>();
      auto* to = reinterpret_cast<std::byte*>(blocks.data());
      parallel_for(0, n / type.block, 1024, [&](int64_t begin, int64_t end) {
        type.encode(from + begin * type.block, end - begin, to + begin * type.block_bytes);
      });
    } catch (const ValueError& e) {
      throw ValueError(op, cat(what, ": ", e.what()));
    }
    file.write(blocks);
  }
}

void write_stored(FileWriter& file, const StoredItem& item, std::span<const std::byte> bytes, std::string_view op) {
  const uint64_t wanted = *stored_bytes(*item.type, item.shape);
  check<ValueError>(bytes.size() == wanted, op, "tensor ", quote(item.name), ": ", bytes.size(), " bytes are given, ",
                    wanted, " are wanted");
  file.write(bytes.data(), bytes.size());
}

}  // namespace strata::io
