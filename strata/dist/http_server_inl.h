#pragma once
// cpp-httplib's server, with bounds for what strangers send.

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include <httplib.h>

namespace strata::distributed::detail {

// httplib's server changes what SIGPIPE does in its process.
class KeptPipeSignal {
 public:
  KeptPipeSignal() { ::sigaction(SIGPIPE, nullptr, &before_); }
  void restore() const { ::sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

/// A server whose connections are bounded in time and size: a request must be there within 5 s, whatever its client
/// does meanwhile, with at most 8 KiB before its body. Each connection serves one request, so that a rank holds no
/// thread between two. Threads take no signals of the process, and writing to a client that went away raises none.
class HttpServer final : private KeptPipeSignal, public httplib::Server {
 public:
  HttpServer();
  ~HttpServer() override { close(); }

  /// Binds `host`:`port` (0: any that is free), and serves on `threads` threads. Handlers must be set before. Returns
  /// the port, -1 where it cannot be had (then errno may say why).
  int start(const std::string& host, int port, int threads);
  /// Ends all requests and waits for that.
  void close();

 private:
  bool process_and_close_socket(socket_t socket) override;

  std::atomic<bool> stopping_{false};
  std::thread listener_;
};

}  // namespace strata::distributed::detail
