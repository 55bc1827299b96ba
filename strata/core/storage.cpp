#include "strata/core/storage.h"

namespace strata {

Ref<Storage> Storage::create(Device device, size_t nbytes) {
  const memory::Tag tag = memory::current_tag();
  void* block = memory::allocate(device, nbytes, tag);  // before the header, so that a failure leaks nothing
  Ref<Storage> s = make_ref<Storage>();
  s->data = device.is_meta() ? nullptr : static_cast<std::byte*>(block);
  s->owner = block;
  s->nbytes = nbytes;
  s->device = device;
  s->tag = tag;
  return s;
}

Ref<Storage> Storage::borrow(void* data, size_t nbytes, void (*release)(void*), void* owner) {
  Ref<Storage> s = make_ref<Storage>();
  s->data = static_cast<std::byte*>(data);
  s->nbytes = nbytes;
  s->release = release ? release : [](void*) {};
  s->owner = owner;
  return s;
}

std::string_view Storage::last_writer() const {
  const char* name = writer.load(std::memory_order_relaxed);
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  size_t n = 0;
  while (in_name(name[n])) ++n;
  return {name, n};
}

void ref_dispose(Storage* s) {
  if (s->watched.load(std::memory_order_relaxed) != 0) [[unlikely]]
    detail::storage_ends(*s);
  if (s->release) {
    s->release(s->owner);
  } else {
    memory::deallocate(s->device, s->owner, s->nbytes, s->tag);
  }
  delete s;
}

}  // namespace strata
