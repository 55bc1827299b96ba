#pragma once
// Copies between global and shared memory that run on: 16 bytes a thread (cp.async, sm_80), and whole boxes and runs of
// bytes by the copy engine (TMA, sm_90).

#ifndef STRATA_TILE_EMULATION
#include <cuda.h>
#endif

#include "strata/cuda/tile/barrier.cuh"

#ifndef STRATA_TILE_EMULATION
namespace strata::cuda::tile {

// ---- 16 bytes a thread ----

/// Starts a copy of 16 bytes, both aligned, to shared memory; past L1.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  copy_async(shared_address(to), from);
}
/// Zeros where `valid` is false; `from` is not read there.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
/// The same of 4 bytes, through L1.
__device__ __forceinline__ void copy_four_async(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/// The copies that this thread has started become a group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all but this thread's last `Pending` groups; they are there for the thread itself.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
/// Waits for all that this thread has started, in a group or not.
__device__ __forceinline__ void wait_all_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// ---- the copy engine, started by one thread ----

/// Starts the copy of a box at (column, row, head, batch) to shared memory; what is outside of the tensor is zeros.
__device__ __forceinline__ void copy_in(void* to, const CUtensorMap& map, uint64_t* barrier, int column, int row,
                                        int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
/// The same of a tensor of three dims and of two.
__device__ __forceinline__ void copy_in(void* to, const CUtensorMap& map, uint64_t* barrier, int column, int row,
                                        int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void copy_in(void* to, const CUtensorMap& map, uint64_t* barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}
/// Starts the copy of a box to global memory; what is outside of the tensor is not written.
__device__ __forceinline__ void copy_out(const CUtensorMap& map, const void* from, int column, int row, int head,
                                         int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch)
               : "memory");
}
__device__ __forceinline__ void copy_out(const CUtensorMap& map, const void* from, int column, int row, int batch) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row), "r"(batch)
               : "memory");
}
__device__ __forceinline__ void copy_out(const CUtensorMap& map, const void* from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
}
__device__ __forceinline__ void commit_out() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until this thread's copies out have read shared memory, or until they are complete.
__device__ __forceinline__ void wait_out_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// The same but for the last `Pending` groups of them.
template <int Pending>
__device__ __forceinline__ void wait_out_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
__device__ __forceinline__ void wait_out() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Before this thread's first copies by a map that a kernel wrote.
__device__ __forceinline__ void acquire_map(const CUtensorMap& map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(&map) : "memory");
}

/// Starts the copy of a run of bytes (a multiple of 16, both ends aligned to 16).
__device__ __forceinline__ void copy_bytes_in(void* to, const void* from, uint64_t* barrier, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
/// Starts the copy of a run of bytes to global memory, as one of copy_out()'s.
__device__ __forceinline__ void copy_bytes_out(float* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
/// The same, added to the f32 numbers there.
__device__ __forceinline__ void add_bytes_out(float* to, const void* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

}  // namespace strata::cuda::tile
#endif
