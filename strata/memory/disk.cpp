// The store behind the tier `disk`, and that tier on the host.

#include "strata/memory/disk.h"

#include <filesystem>
#include <mutex>

#include "strata/core/error.h"
#include "strata/memory/disk_home.h"

namespace strata::memory {
namespace {

struct TheStore {
  std::mutex mutex;
  std::shared_ptr<DiskStore> store;
};
TheStore& the_store() {
  static auto* s = new TheStore;  // outlives static tensors
  return *s;
}

DiskOptions default_options() {
  std::error_code failed;
  const std::filesystem::path directory = std::filesystem::temp_directory_path(failed);
  DiskOptions options;
  options.directories = {failed ? "/tmp" : directory.string()};
  return options;
}

class DiskMoment final : public Moment {
 public:
  DiskMoment(std::shared_ptr<DiskStore> store, DiskStore::Ticket ticket)
      : store_(std::move(store)), ticket_(std::move(ticket)) {}
  bool passed() override { return store_->done(ticket_); }
  void wait() override {
    try {
      store_->wait(ticket_);
    } catch (const Error&) {  // order() tells
    }
  }
  void order() override { store_->wait(ticket_); }

 private:
  const std::shared_ptr<DiskStore> store_;
  const DiskStore::Ticket ticket_;
};

class HostDiskHome final : public Home {
 public:
  void* allocate(Device, size_t nbytes) override { return DiskRoom::make(nbytes); }
  void deallocate(Device, void* room, size_t) override { delete static_cast<DiskRoom*>(room); }
  MomentPtr bring(Device, std::byte* near, void* room, size_t nbytes) override {
    const DiskRoom& r = *static_cast<DiskRoom*>(room);
    return std::make_shared<DiskMoment>(r.store, r.store->read(r.block, near, nbytes));
  }
  MomentPtr send(Device, void* room, const std::byte* near, size_t nbytes, std::span<const MomentPtr>) override {
    const DiskRoom& r = *static_cast<DiskRoom*>(room);
    return std::make_shared<DiskMoment>(r.store, r.store->write(r.block, near, nbytes));
  }
  Bound bound(Device) override { return disk()->bound(); }
};

}  // namespace

std::shared_ptr<DiskStore> disk() {
  TheStore& s = the_store();
  const std::lock_guard lock(s.mutex);
  if (s.store == nullptr) s.store = std::make_shared<DiskStore>(default_options());
  return s.store;
}

void use_disk(const DiskOptions& options) {
  // Blocks that were given back may wait for their last write.
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda})
    if (Backend* b = find_backend(type, kDisk)) b->release_cached();
  auto next = std::make_shared<DiskStore>(options);
  TheStore& s = the_store();
  const std::lock_guard lock(s.mutex);
  check(s.store == nullptr || s.store.use_count() == 1, "use_disk",
        "tensors live on the disk there is already, or somebody holds it: say where it is before the first use");
  s.store = std::move(next);
}

Backend& detail::host_disk_memory() {
  // By name: static tensors may come before kDisk.
  static auto* m =
      new HomedMemory("disk of the host", DeviceType::cpu, Tier::named("disk"), std::make_unique<HostDiskHome>());
  return *m;
}

}  // namespace strata::memory
