#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strata/dist/http_server_inl.h"

namespace strata::distributed::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRequestTime{5000}, kAnswerTime{10000}, kFarewellTime{200}, kSlice{100};
constexpr size_t kLongestHead = 8192;

// A connection as the parser sees it: everything ends at a deadline, not only each read.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const std::atomic<bool>& stopping)
      : socket_(socket), stopping_(stopping), deadline_(Clock::now() + kRequestTime) {}

  bool is_readable() const override { return begin_ < end_ || wait(POLLIN, Clock::now()); }
  bool is_writable() const override { return wait(POLLOUT, Clock::now()); }

  ssize_t read(char* data, size_t size) override {
    if (begin_ == end_) {
      if (!wait(POLLIN, deadline_)) return -1;
      const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (n <= 0) return n;
      begin_ = 0;
      end_ = static_cast<size_t>(n);
    }
    // The parser takes any number of header lines.
    if (!head_ended_ && head_ >= kLongestHead) return -1;
    size_t n = std::min(size, end_ - begin_);
    if (!head_ended_) n = std::min(n, kLongestHead - head_);
    for (size_t i = 0; i < n && !head_ended_; ++i, ++head_) {
      const char c = buffer_[begin_ + i];
      if (c == '\n') head_ended_ = line_ == 0 && head_ > 0;
      line_ = c == '\n' ? 0 : c == '\r' ? line_ : line_ + 1;
    }
    std::memcpy(data, buffer_.data() + begin_, n);
    begin_ += n;
    return static_cast<ssize_t>(n);
  }

  ssize_t write(const char* data, size_t size) override {
    if (!answering_) deadline_ = Clock::now() + kAnswerTime;
    answering_ = true;
    size_t done = 0;
    while (done < size) {
      if (!wait(POLLOUT, deadline_)) return -1;
      const ssize_t n = ::send(socket_, data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return -1;
      if (n > 0) done += static_cast<size_t>(n);
    }
    return static_cast<ssize_t>(size);
  }

  // Whoever closes a socket with unread bytes cuts off the answer that is still on its way.
  void say_farewell() {
    ::shutdown(socket_, SHUT_WR);
    const auto end = Clock::now() + kFarewellTime;
    while (wait(POLLIN, end) && ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) > 0) {
    }
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { name(::getpeername, ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { name(::getsockname, ip, port); }
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short events, Clock::time_point end) const {
    while (!stopping_ || answering_) {
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      pollfd fd{socket_, events, 0};
      const int n = ::poll(&fd, 1, static_cast<int>(std::clamp(left, milliseconds(0), kSlice).count()));
      if (n > 0) return true;
      if ((n < 0 && errno != EINTR) || left <= milliseconds(0)) return false;
    }
    return false;
  }
  template <class Get>
  void name(Get get, std::string& ip, int& port) const {
    sockaddr_storage at{};
    socklen_t size = sizeof at;
    char text[INET6_ADDRSTRLEN] = {};
    if (get(socket_, reinterpret_cast<sockaddr*>(&at), &size) != 0) return;
    if (at.ss_family == AF_INET) {
      const auto& four = reinterpret_cast<const sockaddr_in&>(at);
      ::inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
      port = ntohs(four.sin_port);
    } else if (at.ss_family == AF_INET6) {
      const auto& six = reinterpret_cast<const sockaddr_in6&>(at);
      ::inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
      port = ntohs(six.sin6_port);
    }
    ip = text;
  }

  const int socket_;
  const std::atomic<bool>& stopping_;
  Clock::time_point deadline_;
  std::array<char, 4096> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is in the buffer
  size_t head_ = 0, line_ = 0;  // bytes of the head so far, and of its last line
  bool head_ended_ = false, answering_ = false;
};

}  // namespace

HttpServer::HttpServer() {
  restore();
  set_socket_options([](socket_t socket) {
    // Not SO_REUSEPORT, the library's default: with it two servers share a port.
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

int HttpServer::start(const std::string& host, int port, int threads) {
  errno = 0;
  if (port == 0)
    port = bind_to_any_port(host);
  else if (!bind_to_port(host, port))
    port = -1;
  if (port <= 0) return -1;
  ::fcntl(svr_sock_, F_SETFD, FD_CLOEXEC);
  ::listen(svr_sock_, 4096);  // the library's queue takes five
  new_task_queue = [threads] { return new httplib::ThreadPool(static_cast<size_t>(threads)); };
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  listener_ = std::thread([this] { listen_after_bind(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  // A server that is not yet running cannot be stopped.
  while (!is_running()) std::this_thread::sleep_for(milliseconds(1));
  return port;
}

void HttpServer::close() {
  stopping_ = true;
  if (!listener_.joinable()) return;
  stop();
  listener_.join();
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  Connection connection(socket, stopping_);
  try {
    bool closed = false;
    process_request(connection, true, closed, nullptr);
  } catch (const std::exception&) {
    // The request ran out of memory or was of a kind that the parser cannot take: its client sees the end.
  }
  connection.say_farewell();
  ::close(socket);
  return true;
}

}  // namespace strata::distributed::detail
