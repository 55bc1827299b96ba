#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "strata/core/error.h"
#include "strata/dist/peer/peer_sums_inl.h"

namespace strata::distributed::detail {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(error == 0 ? what : cat(what, ": ", std::strerror(error)));
}

// Closed at the end.
class Socket {
 public:
  Socket() : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0) fail("no socket", errno);
  }
  explicit Socket(int fd) : fd_(fd) {}
  Socket(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A name that nobody guesses, in the kernel's own space of names: nothing is left in a folder.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), a.sun_path + 1);
  return {a, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}
std::string new_name() {
  std::random_device draw;
  std::string name = "strata-";
  for (int i = 0; i < 32; ++i) name += "0123456789abcdef"[draw() % 16];
  return name;
}

void wait_for(int fd, short events, Clock::time_point until, const std::string& what) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) fail(what + ": nothing came in time", 0);
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (n > 0) return;
    if (n < 0 && errno != EINTR) fail(what, errno);
  }
}

// One message: a rank, and room for the file with it.
struct Message {
  int rank = -1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&rank, sizeof rank};
  msghdr head{};
  Message() {
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = room;
    head.msg_controllen = sizeof room;
  }
  Message(const Message&) = delete;
};

// Again where a signal came in between.
template <class F>
ssize_t uninterrupted(F&& call) {
  ssize_t n = 0;
  do n = call();
  while (n < 0 && errno == EINTR);
  return n;
}

void give(int to, int rank, int file) {
  Message m;
  m.rank = rank;
  cmsghdr* const c = CMSG_FIRSTHDR(&m.head);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &file, sizeof file);
  if (uninterrupted([&] { return sendmsg(to, &m.head, MSG_NOSIGNAL); }) != sizeof rank)
    fail("a file could not be sent", errno);
}

std::pair<int, int> take(int from) {
  Message m;
  const ssize_t n = uninterrupted([&] { return recvmsg(from, &m.head, MSG_CMSG_CLOEXEC); });
  const cmsghdr* const c = n == sizeof m.rank ? CMSG_FIRSTHDR(&m.head) : nullptr;
  if (c == nullptr || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
    fail("a message without a file came", n < 0 ? errno : 0);
  int file = -1;
  std::memcpy(&file, CMSG_DATA(c), sizeof file);
  return {m.rank, file};
}

}  // namespace

std::vector<int> exchange_files(int file, int rank, int size, AddressBook& book, std::chrono::milliseconds patience) {
  const Clock::time_point until = Clock::now() + patience;
  const Socket listening;
  const std::string name = new_name();
  const auto [own, length] = address_of(name);
  if (bind(listening.fd(), reinterpret_cast<const sockaddr*>(&own), length) != 0) fail("a socket has no name", errno);
  if (listen(listening.fd(), size) != 0) fail("a socket does not listen", errno);
  book.set(cat("files/", rank), name);
  std::vector<int> files(static_cast<size_t>(size), -1);
  try {
    for (int p = 0; p < size; ++p) {
      if (p == rank) continue;
      const auto [theirs, bytes] = address_of(book.get(cat("files/", p)));
      const Socket to;
      if (connect(to.fd(), reinterpret_cast<const sockaddr*>(&theirs), bytes) != 0)
        fail(cat("rank ", p, " is not reached through a socket of this host"), errno);
      give(to.fd(), rank, file);
    }
    for (int got = 0; got < size - 1;) {
      wait_for(listening.fd(), POLLIN, until, "files of the other ranks");
      const Socket from(accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (from.fd() < 0) fail("files of the other ranks", errno);
      ucred who{};
      socklen_t size_of = sizeof who;
      if (getsockopt(from.fd(), SOL_SOCKET, SO_PEERCRED, &who, &size_of) != 0 || who.uid != geteuid()) continue;
      wait_for(from.fd(), POLLIN, until, "a file of another rank");
      const auto [p, theirs] = take(from.fd());
      if (p < 0 || p >= size || p == rank || files[static_cast<size_t>(p)] >= 0) {
        ::close(theirs);
        fail(cat("a file came from rank ", p), 0);
      }
      files[static_cast<size_t>(p)] = theirs;
      ++got;
    }
  } catch (...) {
    for (const int f : files) {
      if (f >= 0) ::close(f);
    }
    throw;
  }
  return files;
}

}  // namespace strata::distributed::detail
