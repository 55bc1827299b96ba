#include "strata/memory/disk_store.h"

#include <utility>

#include "strata/memory/disk_core.h"
#include "strata/memory/disk_engine.h"

namespace strata::memory {

struct DiskStore::Impl : DiskCore {
  explicit Impl(DiskOptions options) : DiskCore(std::move(options), disk_engines()) {}
};

DiskStore::DiskStore(DiskOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
DiskStore::~DiskStore() = default;

DiskStore::Block* DiskStore::allocate(size_t nbytes) {
  return impl_->allocate(nbytes);
}
void DiskStore::deallocate(Block* block) {
  impl_->deallocate(block);
}
size_t DiskStore::size(const Block* block) {
  return block->nbytes;
}
DiskStore::Ticket DiskStore::read(const Block* block, std::byte* to, size_t nbytes, size_t from) {
  return Ticket(impl_->read(block, to, nbytes, from));
}
DiskStore::Ticket DiskStore::write(Block* block, const std::byte* data, size_t nbytes, size_t at) {
  return Ticket(impl_->write(block, data, nbytes, at));
}
DiskStore::Ticket DiskStore::read_rows(const Block* block, std::byte* to, size_t stride_bytes, const int64_t* rows,
                                       size_t n, size_t row_bytes) {
  return Ticket(impl_->read_rows(block, to, stride_bytes, rows, n, row_bytes));
}
void DiskStore::wait(const Ticket& ticket) {
  DiskCore::wait(ticket.request_);
}
bool DiskStore::done(const Ticket& ticket) const {
  return !ticket || ticket.request_->is_done.load(std::memory_order_acquire);
}
void DiskStore::register_buffer(std::byte* data, size_t nbytes) {
  impl_->register_buffer(data, nbytes);
}
void DiskStore::unregister_buffer(std::byte* data) {
  impl_->unregister_buffer(data);
}
Bound DiskStore::bound() const {
  return impl_->bound();
}
int64_t DiskStore::set_limit(int64_t bytes) {
  return impl_->set_limit(bytes);
}
DiskStats DiskStore::stats() const {
  return impl_->stats();
}
std::string_view DiskStore::engine() const {
  return impl_->engine();
}
bool DiskStore::direct() const {
  return impl_->direct();
}

}  // namespace strata::memory
