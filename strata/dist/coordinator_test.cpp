#include "strata/dist/coordinator.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strata/core/base64_inl.h"

namespace strata::distributed {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

const char* const kSecret = "0123456789abcdef";

CoordinatorOptions options(int size = 4) {
  return {.size = size, .secret = kSecret};
}
std::string address(const Coordinator& c) {
  return cat("127.0.0.1:", c.port());
}
StoreClient client(const Coordinator& c) {
  return StoreClient(address(c), kSecret, milliseconds(5000));
}

template <class F>
std::string error(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// A connection that sends what it likes.
class Raw {
 public:
  explicit Raw(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  }
  ~Raw() { ::close(fd_); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;
  bool connected() const { return connected_; }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Up to the end, or until nothing comes for 20 s.
  std::string answer() {
    std::string all;
    char buffer[4096];
    for (pollfd p{fd_, POLLIN, 0}; ::poll(&p, 1, 20000) > 0;) {
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return all;
      all.append(buffer, static_cast<size_t>(n));
    }
    return all + " (no end)";
  }

 private:
  int fd_;
  bool connected_ = false;
};

std::string asked(const Coordinator& c, const std::string& request) {
  Raw raw(c.port());
  raw.send(request);
  return raw.answer();
}
std::string get(const Coordinator& c, const std::string& path, const std::string& headers = {},
                const std::string& host = "localhost") {
  return asked(c, cat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\n", headers, "\r\n"));
}
int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : -1;
}
const std::string kBearer = cat("Authorization: Bearer ", kSecret, "\r\n");

TEST(Coordinator, PortsAreBoundWhenItIsThere) {
  Coordinator first(options());
  EXPECT_GT(first.port(), 0);
  CoordinatorOptions same = options();
  same.port = first.port();
  EXPECT_EQ(error([&] { Coordinator second(same); }),
            cat("coordinator: cannot listen at 127.0.0.1, port ", first.port(), ": Address already in use"));
  CoordinatorOptions elsewhere = options();
  elsewhere.host = "192.0.2.1";
  EXPECT_NE(error([&] { Coordinator second(elsewhere); }).find("cannot listen at 192.0.2.1: "), std::string::npos);
  elsewhere.host = "no.such.host.invalid";
  EXPECT_NE(error([&] { Coordinator second(elsewhere); }).find("cannot listen at no.such.host.invalid"),
            std::string::npos);
  for (const char* secret : {"", "a b", "\xc3\xa4"})
    EXPECT_THROW(Coordinator({.size = 1, .secret = secret}), ValueError) << secret;
  EXPECT_THROW(Coordinator({.size = 0, .secret = "x"}), ValueError);
}

TEST(Coordinator, APortIsFreeAgainAtOnce) {
  CoordinatorOptions at = options();
  {
    const Coordinator first(at);
    at.port = first.port();
    client(first).set("a", "b");
  }
  const Coordinator second(at);
  EXPECT_EQ(second.port(), at.port);
  EXPECT_THROW((void)client(second).get("a", milliseconds(0)), DistributedError);
}

TEST(Coordinator, LeavesTheProcessItsSignals) {
  struct sigaction before {
  }, after{};
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &plain, &before);
  {
    const Coordinator c(options());
    client(c).set("a", "b");
    ::sigaction(SIGPIPE, nullptr, &after);
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
}

TEST(Coordinator, TellsRanksOfEachOther) {
  Coordinator c(options());
  StoreClient a = client(c), b = client(c);
  c.started(2, "node2", 77);
  a.beat({.rank = 0, .host = "h\"0", .pid = 10, .state = "all_reduce\n\xff", .step = 7, .waiting = 1.5});
  const std::vector<RankState> seen = b.beat({.rank = 1, .host = "h1", .pid = 11});
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].last.host, "h\"0");
  EXPECT_EQ(seen[0].last.pid, 10);
  EXPECT_EQ(seen[0].last.state, "all_reduce \xef\xbf\xbd");
  EXPECT_EQ(seen[0].last.step, 7);
  EXPECT_EQ(seen[0].last.waiting, 1.5);
  EXPECT_GE(seen[0].age, 0);
  EXPECT_LT(seen[0].age, 5);
  EXPECT_EQ(seen[2].last.host, "node2");
  EXPECT_LT(seen[2].age, 0);
  EXPECT_EQ(seen[3].last.rank, 3);
  EXPECT_LT(seen[3].age, 0);
  for (const RankState& s : seen) EXPECT_TRUE(s.failure.empty() && !s.left);

  c.fail(2, "was killed by SIGKILL");
  a.leave(0);
  const std::vector<RankState> over = b.beat({.rank = 1, .host = "h1", .pid = 11}, false);
  EXPECT_TRUE(over[0].left);
  EXPECT_EQ(over[2].failure, "was killed by SIGKILL");
  EXPECT_EQ(over[2].last.pid, 77);
  EXPECT_LT(over[1].age, 0);  // not asked for
  EXPECT_EQ(over[2].order, 1);
  c.fail(3, "as well");
  EXPECT_EQ(b.beat({.rank = 1, .host = "h1", .pid = 11})[3].order, 2);
  // Who left has not failed, and who failed has not left.
  c.fail(0, "late");
  c.leave(2);
  EXPECT_EQ(c.ranks()[0].failure, "");
  EXPECT_FALSE(c.ranks()[2].left);
  EXPECT_THROW(c.fail(4, "x"), IndexError);
  EXPECT_THROW(c.leave(-1), IndexError);
  // A key that nobody sets, and who may be the reason.
  EXPECT_EQ(error([&] { (void)b.get("k", milliseconds(10)); }),
            "key 'k' was not set within 0.01 s; rank 2 (node2, pid 77): was killed by SIGKILL; rank 3: as well");
}

TEST(Coordinator, BeatsAreChecked) {
  Coordinator c(options());
  StoreClient a = client(c);
  EXPECT_EQ(error([&] { a.beat({.rank = 4}); }), "coordinator: field 'rank' is 4, it must be from 0 to 3");
  EXPECT_THROW(a.beat({.rank = -1}), ValueError);
  EXPECT_THROW(a.leave(4), ValueError);
  a.beat({.rank = 3,
          .host = std::string(5000, 'h'),
          .pid = 1,
          .state = std::string(100000, 's'),
          .waiting = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(c.ranks()[3].last.state.size(), 1024u);
  EXPECT_EQ(c.ranks()[3].last.waiting, 0);
  // Another process that takes itself for the same rank; one that comes back after a failure is welcome.
  EXPECT_NE(
      error([&] { a.beat({.rank = 3, .host = "other", .pid = 2}); }).find("process 2 on other cannot be the same"),
      std::string::npos);
  c.fail(3, "gone");
  a.beat({.rank = 3, .host = "other", .pid = 2});
  EXPECT_EQ(c.ranks()[3].failure, "");
  EXPECT_EQ(c.ranks()[3].last.host, "other");
}

TEST(Coordinator, SilenceIsAFailure) {
  CoordinatorOptions quick = options();
  quick.silence = milliseconds(600);
  Coordinator c(quick);
  StoreClient a = client(c);
  a.beat({.rank = 0, .host = "h", .pid = 1});
  a.beat({.rank = 1, .host = "h", .pid = 2});
  a.beat({.rank = 2, .host = "h", .pid = 3});
  a.leave(1);
  std::vector<RankState> seen;
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    seen = a.beat({.rank = 0, .host = "h", .pid = 1});
    if (!seen[2].failure.empty()) break;
  }
  EXPECT_EQ(seen[2].failure, "no heartbeat for 1 s (stopped, or its host is gone)");
  EXPECT_EQ(seen[0].failure + seen[1].failure + seen[3].failure, "");
  // It stays so for those who have heard of it, also when the process wakes up.
  EXPECT_NE(a.beat({.rank = 2, .host = "h", .pid = 3})[2].failure, "");
}

TEST(Coordinator, WrongSecretsAreRefused) {
  Coordinator c(options());
  for (const char* wrong :
       {"", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0", "0123456789abcdef0123456789abcdef"}) {
    const std::string what = error([&] { StoreClient(address(c), wrong, milliseconds(30000)); });
    EXPECT_NE(what.find("refuses this job's secret"), std::string::npos) << what;
  }
  const std::string put =
      "PUT /store?key=a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
      "Content-Length: 1\r\n";
  EXPECT_EQ(status_of(asked(c, put + "\r\nx")), 403);
  EXPECT_EQ(status_of(asked(c, put + "Authorization: Bearer x\r\n\r\nx")), 403);
  EXPECT_EQ(status_of(asked(c, put + "Authorization: Basic !!!\r\n\r\nx")), 403);
  EXPECT_EQ(status_of(get(c, "/store?key=a&wait=0")), 403);
  EXPECT_EQ(status_of(get(c, "/hello")), 403);
  EXPECT_EQ(status_of(get(c, "/nothing")), 403);
  EXPECT_THROW((void)c.store().get("a", milliseconds(0)), DistributedError);
  EXPECT_EQ(status_of(asked(c, put + kBearer + "\r\nx")), 204);
  EXPECT_EQ(c.store().get("a", milliseconds(0)), "x");
  EXPECT_EQ(status_of(get(c, "/nothing", kBearer)), 404);
}

TEST(Coordinator, Pages) {
  Coordinator c(options());
  StoreClient a = client(c);
  a.set("hidden-key", "hidden-value");
  a.beat({.rank = 0, .host = "h<b>\"\\", .pid = 5, .state = "<script>", .step = 12, .waiting = 2});
  c.fail(1, "was killed by SIGKILL");
  for (const char* path : {"/status", "/metrics"}) {
    const std::string page = get(c, path);
    EXPECT_EQ(status_of(page), 200) << page;
    for (const char* never : {kSecret, "hidden", "<script>"})
      EXPECT_EQ(page.find(never), std::string::npos) << never << "\n" << page;
    // Under another name it is a page of the web that asks.
    EXPECT_EQ(status_of(get(c, path, {}, "evil.example")), 401);
    EXPECT_EQ(status_of(get(c, path, kBearer, "node1:80")), 200);
    const std::string basic = strata::detail::base64(cat("anybody:", kSecret));
    EXPECT_EQ(status_of(get(c, path, cat("Authorization: Basic ", basic, "\r\n"), "node1")), 200);
    EXPECT_EQ(status_of(get(c, path, cat("Authorization: Basic ", strata::detail::base64("a:b"), "\r\n"), "node1")),
              401);
  }
  const std::string status = get(c, "/status");
  for (const char* text :
       {"4 ranks: 1 well, 0 ended, 1 failed", "h&lt;b&gt;", "was killed by SIGKILL", "<td>12<td>2.0 s"})
    EXPECT_NE(status.find(text), std::string::npos) << text << "\n" << status;
  const std::string metrics = get(c, "/metrics");
  for (const char* text :
       {"# TYPE strata_rank_up gauge\nstrata_rank_up{rank=\"0\",host=\"h<b>\\\"\\\\\"} 1\n", "strata_ranks 4\n",
        "strata_rank_failed{rank=\"1\",host=\"\"} 1\n", "strata_rank_step{rank=\"0\",host=\"h<b>\\\"\\\\\"} 12\n"})
    EXPECT_NE(metrics.find(text), std::string::npos) << text << "\n" << metrics;
}

TEST(Coordinator, ManyWaitAndOthersGoOn) {
  Coordinator c(options(200));
  std::vector<std::thread> threads;
  std::atomic<int> found{0};
  for (int t = 0; t < 100; ++t)
    threads.emplace_back([&] {
      const StoreClient mine = client(c);
      found += const_cast<StoreClient&>(mine).get("late", milliseconds(60000)) == "x";
    });
  std::this_thread::sleep_for(milliseconds(500));
  StoreClient other = client(c);
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) other.set("k", "v");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(found, 0);
  other.set("late", "x");
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(found, 100);
}

TEST(Coordinator, SlowClientsHoldUpNobody) {
  Coordinator c(options());
  std::vector<std::unique_ptr<Raw>> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(std::make_unique<Raw>(c.port()));
    ASSERT_TRUE(slow.back()->connected());
    slow.back()->send("GET /st");
  }
  StoreClient a = client(c);
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) a.set("k", "v");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
  // A byte now and then keeps no connection.
  std::string got;
  for (int i = 0; i < 30; ++i) {
    if (!slow[0]->send("a")) break;
    std::this_thread::sleep_for(milliseconds(300));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(9));
}

TEST(Coordinator, EndsWhileOthersWait) {
  auto c = std::make_unique<Coordinator>(options());
  StoreClient a = client(*c);
  const Raw slow(c->port());
  std::string what;
  std::thread waits([&] { what = error([&] { (void)a.get("never", milliseconds(60000)); }); });
  std::this_thread::sleep_for(milliseconds(200));
  const auto begin = Clock::now();
  c.reset();
  waits.join();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_NE(what.find("does not answer"), std::string::npos) << what;
  EXPECT_NE(error([&] { a.set("a", "b"); }).find("does not answer"), std::string::npos);
  EXPECT_NE(error([&] { a.beat({}); }).find("does not answer"), std::string::npos);
}

TEST(Coordinator, ClientsSayWhatTheyMiss) {
  int free = 0;
  { free = Coordinator(options()).port(); }
  const std::string none = error([&] { StoreClient(cat("127.0.0.1:", free), "x", milliseconds(200)); });
  EXPECT_NE(none.find("does not answer"), std::string::npos) << none;
  EXPECT_NE(none.find("asked for 0.2 s"), std::string::npos) << none;
  EXPECT_NE(error([&] { StoreClient("no.such.host.invalid:80", "x", milliseconds(0)); }).find("no host"),
            std::string::npos);
  for (const char* bad : {"", "host", "host:", ":80", "host:x", "host:0", "host:70000", "host:1x"})
    EXPECT_THROW(StoreClient(bad, "x", milliseconds(0)), ValueError) << bad;
  // Somebody else's server.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(fd, 5), 0);
  socklen_t size = sizeof at;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  std::thread stranger([&] {
    const int peer = ::accept(fd, nullptr, nullptr);
    (void)::send(peer, "garbage\r\n\r\n", 11, MSG_NOSIGNAL);
    ::close(peer);
  });
  EXPECT_THROW(StoreClient(cat("127.0.0.1:", ntohs(at.sin_port)), "x", milliseconds(0)), DistributedError);
  stranger.join();
  ::close(fd);
}

// Requests of every kind of nonsense: none of them ends the server or keeps others waiting.
TEST(Coordinator, GarbageIsHarmless) {
  Coordinator c(options());
  std::vector<std::string> seeds{
      cat("GET /store?key=a&wait=0 HTTP/1.1\r\nHost: localhost\r\n", kBearer, "\r\n"),
      cat("PUT /store?key=a HTTP/1.1\r\nHost: x\r\n", kBearer,
          "Content-Type: application/octet-stream\r\nContent-Length: 3\r\n\r\nabc"),
      cat("POST /beat?everyone=1 HTTP/1.1\r\n", kBearer,
          "Content-Type: application/octet-stream\r\nContent-Length: 81\r\n\r\n",
          R"({"rank":1,"host":"h","pid":3,"state":"s","step":1,"waiting":0.5,"a":[[[]]],"b":1})"),
      cat("POST /leave HTTP/1.1\r\n", kBearer,
          "Content-Type: application/octet-stream\r\nContent-Length: 10\r\n\r\n{\"rank\":3}"),
      "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"};
  c.store().set("a", "b");
  for (const std::string& s : seeds) EXPECT_LT(status_of(asked(c, s)), 300) << s;
  // What a parser may take amiss.
  std::string many_ranges = "Range: bytes=0-0";
  while (many_ranges.size() < 8000) many_ranges += ",0-0";
  std::string many_lines;
  for (int i = 0; i < 100000; ++i) many_lines += cat("a", i, ": b\r\n");
  const std::vector<std::string> known{
      cat("GET /status HTTP/1.1\r\nHost: localhost\r\n", many_ranges, "\r\n\r\n"),
      cat("GET /status HTTP/1.1\r\nHost: localhost\r\n", many_lines, "\r\n"),
      cat("GET /", std::string(100000, 'a'), " HTTP/1.1\r\n\r\n"),
      cat("GET /status HTTP/1.1\r\nHost: ", std::string(8000, '%'), "\r\n\r\n"),
      cat("PUT /store?key=a HTTP/1.1\r\n", kBearer, "Content-Length: 99999999999999999999\r\n\r\n"),
      cat("PUT /store?key=a HTTP/1.1\r\n", kBearer,
          "Content-Type: application/octet-stream\r\nContent-Length: 2000000\r\n\r\n", std::string(2000000, 'x')),
      cat("PUT /store?key=a HTTP/1.1\r\n", kBearer, "Content-Length: -1\r\n\r\n"),
      cat("PUT /store?key=a HTTP/1.1\r\n", kBearer, "Transfer-Encoding: chunked\r\n\r\nffffffff\r\n"),
      cat("PUT /store?key=a HTTP/1.1\r\n", kBearer, "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
      cat("POST /store?key=b HTTP/1.1\r\n", kBearer,
          "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 4\r\n\r\n--x\r"),
      cat("POST /beat HTTP/1.1\r\n", kBearer, "Content-Type: application/octet-stream\r\nContent-Length: 60000\r\n\r\n",
          std::string(60000, '[')),
      "\r\n\r\n\r\n",
      std::string(1000, '\0'),
      "GET",
      "GET / HTTP/9.9\r\n\r\n",
      "HEAD /status HTTP/1.1\r\nHost: localhost\r\n\r\n"};
  std::minstd_rand random(15);
  const auto byte = [&] { return static_cast<char>(random() % 256); };
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  std::atomic<size_t> next{0};
  std::vector<std::string> all = known;
  for (int i = 0; i < 600; ++i) {
    std::string text;
    if (i % 4 == 0) {
      for (unsigned n = random() % 2000; n > 0; --n) text += byte();
    } else {
      text = seeds[random() % seeds.size()];
      for (unsigned n = 1 + random() % 6; n > 0; --n) {
        const size_t at = random() % text.size();
        if (random() % 3 == 0)
          text.erase(at, random() % 20);
        else if (random() % 2 == 0)
          text.insert(at, text.substr(random() % text.size(), random() % 40));
        else
          text[at] = byte();
        if (text.empty()) text = "x";
      }
    }
    all.push_back(text);
  }
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (size_t i = next++; i < all.size(); i = next++) {
        Raw raw(c.port());
        raw.send(all[i]);
        if (i < known.size()) {
          EXPECT_EQ(raw.answer().find("(no end)"), std::string::npos) << i;
        }
      }
    });
  StoreClient a = client(c);
  for (int i = 0; i < 50; ++i) {
    const auto one = Clock::now();
    a.set("mine", std::to_string(i));
    EXPECT_EQ(a.get("mine", milliseconds(0)), std::to_string(i));
    EXPECT_LT(Clock::now() - one, std::chrono::seconds(8));
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(120));
  a.set("mine", "still");
  EXPECT_EQ(c.store().get("mine", milliseconds(0)), "still");
}

}  // namespace
}  // namespace strata::distributed
