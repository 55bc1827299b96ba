#include "strata/dist/coordinator.h"
#include "strata/dist/job.h"
#include "strata/dist/meeting_inl.h"

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace strata::distributed {
namespace {

using detail::MeetingFile;
using detail::random_secret;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

template <class F>
std::string error(F&& f) {
  try {
    f();
  } catch (const DistributedError& e) {
    return e.what();
  }
  return "no error";
}

class Meetings : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / cat("strata_meeting_", static_cast<int64_t>(::getpid()));
    fs::create_directories(folder_);
    path_ = (folder_ / "m").string();
  }
  void TearDown() override { fs::remove_all(folder_); }
  Job job(int rank, int size) const {
    return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .meeting = path_};
  }
  fs::path folder_;
  std::string path_;
};

TEST_F(Meetings, SecretsAreRandom) {
  const std::string a = random_secret(), b = random_secret();
  EXPECT_EQ(a.size(), 32u);
  EXPECT_EQ(a.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(a, b);
}

TEST_F(Meetings, AFileForThisUserAlone) {
  EXPECT_EQ(MeetingFile::read(path_).coordinator, "");
  {
    const MeetingFile file(path_, {"127.0.0.1:7", "abc"});
    struct stat status {};
    ASSERT_EQ(::stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_EQ(MeetingFile::read(path_).coordinator, "127.0.0.1:7");
    EXPECT_EQ(MeetingFile::read(path_).secret, "abc");
    ::chmod(path_.c_str(), 0644);
    EXPECT_NE(error([&] { MeetingFile::read(path_); }).find("open to others"), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_TRUE(fs::is_empty(folder_));
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("a\nb"), std::string("a\nb\nc\n"), std::string(5000, 'x')}) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), 0600);
    EXPECT_NE(error([&] { MeetingFile::read(path_); }).find("holds something else"), std::string::npos) << text;
  }
  fs::remove(path_);
  fs::create_symlink("/etc/passwd", path_);
  EXPECT_NE(error([&] { MeetingFile::read(path_); }).find("cannot be read"), std::string::npos);
  if (::geteuid() == 0) {
    fs::remove(path_);
    std::ofstream(path_) << "a\nb\n";
    ASSERT_EQ(::chown(path_.c_str(), 12345, 0), 0);
    EXPECT_NE(error([&] { MeetingFile::read(path_); }).find("belongs to user 12345"), std::string::npos);
  }
  EXPECT_NE(error([&] { MeetingFile("/no/such/folder/m", {}); }).find("cannot be written"), std::string::npos);
}

TEST_F(Meetings, RanksOfOneHostMeet) {
  // What a job that was killed has left: an address where nobody is any more, or somebody else.
  auto left = std::make_unique<Coordinator>(CoordinatorOptions{.size = 2, .secret = "other"});
  MeetingFile old(path_, {cat("127.0.0.1:", left->port()), "this"});
  std::vector<std::string> seen(4);
  std::vector<std::thread> ranks;
  for (int r = 3; r >= 0; --r) {
    ranks.emplace_back([&, r] {
      if (r == 0) std::this_thread::sleep_for(milliseconds(200));
      const Membership m = join(job(r, 4), milliseconds(30000));
      EXPECT_EQ(m.hosted != nullptr, r == 0);
      m.client->set(cat("here/", r), std::to_string(r));
      for (int o = 0; o < 4; ++o) seen[static_cast<size_t>(r)] += m.client->get(cat("here/", o), milliseconds(30000));
      // Rank 0 holds the store: its end waits for the others.
      if (r == 2) std::this_thread::sleep_for(milliseconds(500));
      m.client->set(cat("last/", r), "x");
    });
  }
  for (std::thread& t : ranks) t.join();
  for (const std::string& s : seen) EXPECT_EQ(s, "0123");
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Meetings, SaysWhoIsMissing) {
  EXPECT_EQ(
      error([&] { join(job(1, 2), milliseconds(100)); }),
      cat("rank 1 of 2 found no coordinator through the file '", path_, "' within 0.1 s: rank 0 has not written it"));
  EXPECT_EQ(join(job(0, 1), milliseconds(0)).client, nullptr);
}

TEST_F(Meetings, AtAnAddress) {
  int port = 0;
  { port = Coordinator({.size = 2, .secret = "x"}).port(); }
  Job zero = job(0, 2), one = job(1, 2);
  zero.meeting = one.meeting = "";
  zero.coordinator = one.coordinator = cat("127.0.0.1:", port);
  zero.secret = one.secret = "x";
  std::string got;
  std::thread other([&] { got = join(one, milliseconds(30000)).client->get("a", milliseconds(30000)); });
  const Membership m = join(zero, milliseconds(30000));
  m.client->set("a", "b");
  other.join();
  EXPECT_EQ(got, "b");
  EXPECT_NE(error([&] { join(zero, milliseconds(0)); }).find("Address already in use"), std::string::npos);
}

}  // namespace
}  // namespace strata::distributed
