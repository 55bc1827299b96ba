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

void ref_dispose(Storage* s) {
  if (s->release) {
    s->release(s->owner);
  } else {
    memory::deallocate(s->device, s->owner, s->nbytes, s->tag);
  }
  delete s;
}

}  // namespace strata
