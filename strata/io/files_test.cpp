#include "strata/io/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "strata/core/error.h"
#include "strata/io/mapped_file.h"
#include "strata/io/temp_dir.h"

namespace strata::io {
namespace {
namespace fs = std::filesystem;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const IoError& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

int count_entries(const std::string& dir) {
  return static_cast<int>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

// Runs `body` in a child process; its exit status.
template <class F>
int in_child(F&& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    _exit(status);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Hash, MatchesTheReferenceVectors) {
  EXPECT_EQ(to_hex(xxh64(std::string_view(""))), "ef46db3751d8e999");
  EXPECT_EQ(to_hex(xxh64(std::string_view("abc"))), "44bc2cf5ad770999");
}

TEST(Hash, DoesNotDependOnChunks) {
  std::mt19937 random(1);
  std::string text(10'000, 0);
  for (char& c : text) c = static_cast<char>(random());
  Hasher hasher;
  for (size_t at = 0; at < text.size();) {
    const size_t n = std::min<size_t>(random() % 700, text.size() - at);
    hasher.update(std::string_view(text).substr(at, n));
    at += n;
  }
  EXPECT_EQ(hasher.digest(), xxh64(std::string_view(text)));
  text[5000] ^= 1;
  EXPECT_NE(hasher.digest(), xxh64(std::string_view(text)));
}

TEST(Hash, HexRoundTrip) {
  uint64_t value = 0;
  for (const uint64_t v : {uint64_t{0}, uint64_t{1}, uint64_t{0xdeadbeef}, UINT64_MAX}) {
    ASSERT_TRUE(parse_hex(to_hex(v), value));
    EXPECT_EQ(value, v);
  }
  for (const char* bad : {"", "12", "00000000000000g0", "-000000000000001", "00000000000000000"})
    EXPECT_FALSE(parse_hex(bad, value)) << bad;
}

TEST(MappedFile, GivesTheBytes) {
  TempDir dir;
  write_file(dir / "a", std::string_view("hello\0world", 11));
  MappedFile file(dir / "a");
  EXPECT_EQ(file.text(), std::string_view("hello\0world", 11));
  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.size(), 11u);
  fs::remove(dir / "a");
  EXPECT_EQ(moved.text()[6], 'w');
}

TEST(MappedFile, SaysWhatIsWrong) {
  TempDir dir;
  write_file(dir / "empty", "");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  const auto open = [](const std::string& path) { return error_of([&] { MappedFile file(path); }); };
  EXPECT_TRUE(has(open(dir / "no"), "No such file")) << open(dir / "no");
  EXPECT_TRUE(has(open(dir / "no"), dir / "no"));
  EXPECT_TRUE(has(open(dir.path()), "is a directory"));
  EXPECT_TRUE(has(open(dir / "empty"), "is empty"));
  EXPECT_TRUE(has(open(dir / "pipe"), "not a regular file"));
}

TEST(MappedFile, UnreadableFile) {
  TempDir dir;
  write_file(dir / "secret", "x");
  chmod(dir.path().c_str(), 0755);
  chmod((dir / "secret").c_str(), 0);
  EXPECT_EQ(in_child([&] {
              if (geteuid() == 0 && seteuid(65534) != 0) return 1;  // root reads everything
              return has(error_of([&] { MappedFile file(dir / "secret"); }), "Permission denied") ? 0 : 2;
            }),
            0);
}

TEST(FileWriter, ReplacesAsAWhole) {
  TempDir dir;
  write_file(dir / "f", "old");
  {
    FileWriter writer(dir / "f");
    writer.write("new ");
    writer.write("text");
    EXPECT_EQ(read_file(dir / "f"), "old");
    const WrittenFile written = writer.commit();
    EXPECT_EQ(written.bytes, 8u);
    EXPECT_EQ(written.xxh64, xxh64(std::string_view("new text")));
  }
  EXPECT_EQ(read_file(dir / "f"), "new text");
  EXPECT_EQ(count_entries(dir.path()), 1);
}

TEST(FileWriter, LeavesNothingWithoutCommit) {
  TempDir dir;
  write_file(dir / "f", "old");
  {
    FileWriter writer(dir / "f");
    writer.write("half");
  }
  EXPECT_EQ(read_file(dir / "f"), "old");
  EXPECT_EQ(count_entries(dir.path()), 1);
}

TEST(FileWriter, RewritesAHeader) {
  TempDir dir;
  FileWriter writer(dir / "f");
  writer.write("....data");
  writer.rewrite(0, "HEAD", 4);
  EXPECT_THROW(writer.rewrite(6, "xyz", 3), IoError);
  EXPECT_EQ(writer.commit().xxh64, xxh64(std::string_view("HEADdata")));
  EXPECT_EQ(read_file(dir / "f"), "HEADdata");
}

TEST(FileWriter, NamesThePathItCannotWrite) {
  TempDir dir;
  EXPECT_TRUE(has(error_of([&] { write_file(dir / "no/f", "x"); }), dir / "no/f"));
  EXPECT_TRUE(has(error_of([&] { write_file(dir.path(), "x"); }), "is a directory"));
  write_file(dir / "file", "x");
  EXPECT_TRUE(has(error_of([&] { make_directories(dir / "file/sub"); }), dir / "file/sub"));
  EXPECT_TRUE(has(error_of([&] { make_directories(dir / "file"); }), dir / "file"));
}

TEST(FileWriter, FileSizeLimit) {
  TempDir dir;
  write_file(dir / "f", "old");
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{4096, 4096};
              setrlimit(RLIMIT_FSIZE, &limit);
              const std::string error = error_of([&] { write_file(dir / "f", std::string(10'000, 'x')); });
              if (!has(error, "needs 10000 bytes, 4096 were written")) return 1;
              if (!has(error, "unchanged")) return 2;
              return 0;
            }),
            0);
  EXPECT_EQ(read_file(dir / "f"), "old");
  EXPECT_EQ(count_entries(dir.path()), 1);
}

TEST(FileWriter, FullDisk) {
  TempDir dir;
  const int status = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0) return 77;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) return 77;
    write_file(dir / "f", "old");
    const std::string error = error_of([&] { write_file(dir / "f", std::string(200'000, 'x')); });
    if (!has(error, "No space left on device") || !has(error, "needs 200000 bytes") || !has(error, "are free"))
      return 1;
    if (read_file(dir / "f") != "old" || count_entries(dir.path()) != 1) return 2;
    return 0;
  });
  if (status == 77) GTEST_SKIP() << "this user may not mount a small file system";
  EXPECT_EQ(status, 0);
}

TEST(ReadFile, EmptyAndLimit) {
  TempDir dir;
  write_file(dir / "empty", "");
  write_file(dir / "ten", "0123456789");
  EXPECT_EQ(read_file(dir / "empty"), "");
  EXPECT_EQ(read_file(dir / "ten", 10), "0123456789");
  EXPECT_THROW(read_file(dir / "ten", 9), IoError);
  EXPECT_THROW(read_file(dir / "no"), IoError);
  EXPECT_THROW(read_file(dir.path()), IoError);
  EXPECT_NE(read_file("/proc/self/status").find("VmSize"), std::string::npos);  // a file that says it has 0 bytes
  const std::string long_text(100000, 'x');
  write_file(dir / "long", long_text);
  EXPECT_EQ(read_file(dir / "long"), long_text);
  EXPECT_THROW(read_file("/dev/zero", 1 << 20), IoError);
}

TEST(Quote, IsSafeInAMessage) {
  EXPECT_EQ(quote("a\nb\x1b"), "'a\\x0ab\\x1b'");
  EXPECT_EQ(quote(std::string(100, 'x'), 3), "'xxx...'");
}

}  // namespace
}  // namespace strata::io
