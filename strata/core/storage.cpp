#include "strata/core/storage.h"

#include <memory>
#include <mutex>

#include "strata/core/beside.h"

namespace strata {

struct Storage::Movable {
  std::mutex mutex;
  void* block = nullptr;
  int pins = 0;
  bool written = false;
};

Ref<Storage> Storage::create_in(memory::Backend& backend, Device device, size_t nbytes, Tier place) {
  const memory::Tag tag = memory::current_tag();
  // Before the header, so that a failure leaks nothing.
  void* block = nbytes == 0 ? nullptr : backend.allocate(device, nbytes, tag);
  Ref<Storage> s = make_ref<Storage>();
  s->owner = block;
  if (backend.bytes == memory::Bytes::fixed) [[likely]] {
    s->data = static_cast<std::byte*>(block);
  } else if (backend.bytes == memory::Bytes::movable && nbytes != 0) {
    auto* m = new Movable;
    m->block = block;
    s->owner = m;
    memory::detail::g_movable.fetch_add(1, std::memory_order_relaxed);
  }
  s->nbytes = nbytes;
  s->device = device;
  s->tag = tag;
  s->place = place;
  return s;
}

Ref<Storage> Storage::create(Device device, size_t nbytes) {
  Tier place = memory::detail::t_caller.tier;
  memory::Backend* b =
      memory::detail::g_backends[static_cast<int>(device.type)][place.id()].load(std::memory_order_acquire);
  if (b == nullptr) [[unlikely]]
    b = &memory::detail::own_backend(device, place);
  return create_in(*b, device, nbytes, place);
}
Ref<Storage> Storage::create(Device device, size_t nbytes, Tier tier) {
  return create_in(memory::backend(device, tier), device, nbytes, tier);
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

Storage::Movable* Storage::movable() const {
  if (release || nbytes == 0 || backend().bytes != memory::Bytes::movable) return nullptr;
  return static_cast<Movable*>(owner);
}

bool Storage::resident() const {
  Movable* m = movable();
  if (m == nullptr) return data != nullptr || (nbytes == 0 && !device.is_meta());
  const std::lock_guard lock(m->mutex);
  return m->pins > 0 || backend().resident(device, m->block);
}

void Storage::pin(Access access) {
  Movable* m = movable();
  if (m == nullptr) return;
  const std::lock_guard lock(m->mutex);
  if (m->pins == 0) {
    data = backend().fetch(device, m->block);
    m->written = false;
  } else {
    backend().prefetch(device, m->block);  // this thread uses it too: for a graph, if it captures one
  }
  ++m->pins;
  m->written = m->written || access == Access::write;
}

void Storage::unpin() {
  Movable* m = movable();
  if (m == nullptr) return;
  const std::lock_guard lock(m->mutex);
  if (m->pins == 0 || --m->pins > 0) return;
  data = nullptr;
  backend().leave(device, m->block, m->written);
}

void Storage::prefetch() {
  Movable* m = movable();
  if (m == nullptr) return;
  const std::lock_guard lock(m->mutex);
  if (m->pins == 0) backend().prefetch(device, m->block);
}

void Storage::retag(memory::Tag to) {
  if (nbytes != 0 && !release && tag != to) {
    Movable* m = movable();
    backend().retag(device, m ? m->block : owner, nbytes, tag, to);
  }
  tag = to;
}

void ref_dispose(Storage* s) {
  if (detail::g_besides.load(std::memory_order_relaxed) != 0) [[unlikely]]
    detail::drop_beside(*s);
  if (s->watched.load(std::memory_order_relaxed) != 0) [[unlikely]]
    detail::storage_ends(*s);
  if (s->release) {
    s->release(s->owner);
  } else if (s->nbytes != 0) {
    memory::Backend& b =
        *memory::detail::g_backends[static_cast<int>(s->device.type)][s->place.id()].load(std::memory_order_acquire);
    void* block = s->owner;
    if (b.bytes == memory::Bytes::movable) [[unlikely]] {
      const std::unique_ptr<Storage::Movable> m(static_cast<Storage::Movable*>(s->owner));
      block = m->block;
      if (m->pins > 0) b.leave(s->device, block, false);  // a Pin holds a Ref, so only by hand
      memory::detail::g_movable.fetch_sub(1, std::memory_order_relaxed);
    }
    b.deallocate(s->device, block, s->nbytes, s->tag);
  }
  delete s;
}

}  // namespace strata
