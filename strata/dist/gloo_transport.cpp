// The transport over Gloo's TCP: a module (strata/dist/transport.h).

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "strata/dist/pipe_signal_inl.h"
#include "strata/dist/transport.h"

namespace strata::distributed {
namespace {

class BookStore final : public gloo::rendezvous::Store {
 public:
  explicit BookStore(AddressBook& book) : book_(book) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    book_.set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = book_.get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) book_.get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  AddressBook& book_;
};

class GlooTransport;

class GlooTransfer final : public Transfer {
 public:
  GlooTransfer(GlooTransport& transport, std::unique_ptr<gloo::transport::UnboundBuffer> buffer, bool sends);
  ~GlooTransfer() override;
  void wait() override;
  void abort() {
    if (sends_) {
      buffer_->abortWaitSend();
    } else {
      buffer_->abortWaitRecv();
    }
  }

 private:
  GlooTransport& transport_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  bool sends_;
};

// Gloo writes to its sockets by plain writes, in the calls that begin a transfer and from a thread of its own: where the
// other end has died, that raises SIGPIPE, which would end the process instead of the transfer.
class GlooTransport final : public Transport {
 public:
  GlooTransport(const TransportRequest& request, AddressBook& book)
      : context_(std::make_shared<gloo::rendezvous::Context>(request.rank, request.size)) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = request.interface;
    const detail::NoPipeSignal no_signal;  // the device's thread keeps it so
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    BookStore store(book);
    context_->setTimeout(request.timeout);
    context_->connectFullMesh(store, device_);
  }
  ~GlooTransport() override { context_->closeConnections(); }

  std::unique_ptr<Transfer> send(int to, uint64_t channel, const void* data, size_t bytes) override {
    const detail::NoPipeSignal no_signal;
    auto transfer = begin(const_cast<void*>(data), bytes, true);
    transfer.second->send(to, channel);
    return std::move(transfer.first);
  }
  std::unique_ptr<Transfer> receive(int from, uint64_t channel, void* data, size_t bytes) override {
    const detail::NoPipeSignal no_signal;  // a receiver says that it is ready
    auto transfer = begin(data, bytes, false);
    transfer.second->recv(from, channel);
    return std::move(transfer.first);
  }
  void abort() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      for (GlooTransfer* t : pending_) t->abort();
    }
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // They were closed already.
    }
  }

  bool aborted() const { return aborted_; }
  void add(GlooTransfer* t) {
    const std::lock_guard lock(mutex_);
    pending_.insert(t);
    // abort() has passed: what began meanwhile ends as well.
    if (aborted_) t->abort();
  }
  void drop(GlooTransfer* t) {
    const std::lock_guard lock(mutex_);
    pending_.erase(t);
  }

 private:
  std::pair<std::unique_ptr<Transfer>, gloo::transport::UnboundBuffer*> begin(void* data, size_t bytes, bool sends) {
    if (aborted_) throw std::runtime_error("the connections were closed");
    auto buffer = context_->createUnboundBuffer(data, bytes);
    gloo::transport::UnboundBuffer* raw = buffer.get();
    return {std::make_unique<GlooTransfer>(*this, std::move(buffer), sends), raw};
  }

  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::mutex mutex_;
  std::set<GlooTransfer*> pending_;
  std::atomic<bool> aborted_{false};
};

GlooTransfer::GlooTransfer(GlooTransport& transport, std::unique_ptr<gloo::transport::UnboundBuffer> buffer, bool sends)
    : transport_(transport), buffer_(std::move(buffer)), sends_(sends) {
  transport_.add(this);
}
GlooTransfer::~GlooTransfer() {
  transport_.drop(this);
}
void GlooTransfer::wait() {
  const bool done = sends_ ? buffer_->waitSend() : buffer_->waitRecv();
  if (!done) throw std::runtime_error("the connections were closed");
}

}  // namespace
}  // namespace strata::distributed

extern "C" __attribute__((visibility("default"))) std::unique_ptr<strata::distributed::Transport> strata_transport_1(
    const strata::distributed::TransportRequest& request, strata::distributed::AddressBook& book) {
  return std::make_unique<strata::distributed::GlooTransport>(request, book);
}
