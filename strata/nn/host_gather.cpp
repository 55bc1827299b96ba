#include <algorithm>
#include <cstring>
#include <optional>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/cuda/stream_transfer.h"
#include "strata/nn/host_gather_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata::nn {

bool HostGather::is_faster(int64_t row_bytes) {
  // Bytes that a core gathers while the card translates the address of a row; and from where on that fills the bus.
  constexpr int64_t kBytesOfACore = 70, kFillsTheBus = 900;
  return row_bytes < std::min(kFillsTheBus, num_threads() * kBytesOfACore);
}

namespace {
// On the current stream, of a card as a transfer.
void copy_near(const Tensor& to, const Tensor& from) {
  std::optional<cuda::StreamTransfer> transfer;
  if (memory::transfers_wanted() && to.device().is_cuda())
    transfer.emplace(memory::TransferKind::copy, "from host", to.nbytes(), cuda::current_stream(to.device().index));
  copy_elements(to, from);
}
}  // namespace

Tensor HostGather::gather(const Tensor& table, const Tensor& index) {
  const int64_t n = index.numel(), width = table.size(1), row_bytes = width * size_of(table.dtype());
  const Tensor y = empty({{n, width}, table.dtype(), device_, std::nullopt});
  if (n == 0 || row_bytes == 0) return y;
  const int64_t rows = std::max<int64_t>(1, bytes_ / row_bytes);
  const auto* from = static_cast<const std::byte*>(table.raw_data());
  const int64_t* at = index.data<int64_t>();
  for (int64_t first = 0; first < n; first += rows) {
    const int64_t count = std::min(rows, n - first);
    Piece& piece = pieces_[next_++ % kPieces];
    if (!piece.rows.defined())
      piece.rows =
          empty({{rows, width}, table.dtype(), Device::cpu(), std::nullopt}, device_.is_cuda() ? Tier::pinned : Tier());
    if (piece.copied) piece.copied->synchronize();
    auto* to = static_cast<std::byte*>(piece.rows.raw_data());
    const memory::MovedName moved([&] { return cat("rows of a table [", table.size(0), ", ", width, "]"); });
    {
      const memory::TimedTransfer processor(memory::TransferKind::processor, "processor", count * row_bytes);
      parallel_for(0, count, std::max<int64_t>(1, 65536 / row_bytes), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          std::memcpy(to + i * row_bytes, from + at[first + i] * row_bytes, static_cast<size_t>(row_bytes));
      });
    }
    copy_near(y.narrow(0, first, count), piece.rows.narrow(0, 0, count));
    if (device_.is_cuda()) {
      if (!piece.copied) piece.copied = std::make_unique<cuda::Event>(false, device_.index);
      piece.copied->record(cuda::current_stream(device_.index));
    }
  }
  return y;
}

}  // namespace strata::nn
