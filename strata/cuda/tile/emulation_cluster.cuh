#pragma once
// What blocks of a cluster do to each other, for the end of emulation.cuh.

#include <cstdint>

#include "strata/cuda/tile/emulation_instructions.cuh"

namespace strata::cuda::tile {

inline void cluster_sync() {
  emulation::Block* const block = emulation::block;
  emulation::Cluster* const c = block->cluster;
  if (c == nullptr) block->fail("cluster_sync() in a launch without clusters");
  auto& sent = block->sent[static_cast<size_t>(block->now->number / 32)];
  for (const emulation::Work& w : sent) w();
  sent.clear();
  ++c->arrived;
  // Threads that have ended are not waited for.
  block->wait_until(
      [=, times = c->times] {
        if (c->times == times && c->arrived == c->alive) c->arrived = 0, ++c->times;
        return c->times != times;
      },
      "cluster_sync");
}
inline void arrive_in(uint64_t* at, int rank) {
  using emulation::block;
  emulation::Block& there = block->peer(rank, "an arrival");
  const auto found = there.barriers.find(shared_address(at));
  if (found == there.barriers.end()) block->fail("an arrival on a barrier that was not initialised");
  auto& sent = block->sent[static_cast<size_t>(block->now->number / 32)];
  for (const emulation::Work& w : sent) w();
  sent.clear();
  emulation::Barrier& b = found->second;
  if (b.pending == 0) block->fail("more arrivals than a barrier expects");
  --b.pending;
  emulation::Block::settle(b);
}
inline void wait_for_blocks(uint64_t* at, uint32_t parity) {
  wait(at, parity);
}
inline void store_four_in(float4* to, int rank, float a, float b, float c, float d) {
  using emulation::block;
  const uint32_t address = shared_address(to);
  if (address % 16 != 0) block->fail("a store of 16 bytes that is not aligned");
  block->pointer(address, 16);
  uint8_t* const there = block->peer(rank, "a store").shared + (address - emulation::kBase);
  block->sent[static_cast<size_t>(block->now->number / 32)].push_back([=] {
    const float all[] = {a, b, c, d};
    std::memcpy(there, all, sizeof all);
  });
}
inline void copy_in_blocks(void* to, const CUtensorMap& map, uint64_t* at, int column, int row, int batch,
                           uint32_t blocks) {
  for (int rank = 0; rank < 16; ++rank)
    if ((blocks >> rank & 1) != 0)
      emulation::copy_box_in(emulation::block->peer(rank, "a copy"), to, map, at, {column, row, batch, 0});
}

}  // namespace strata::cuda::tile
