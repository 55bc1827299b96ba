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
#include <thread>

#include "strata/core/child_test_util.h"
#include "strata/core/error.h"
#include "strata/io/input_file.h"
#include "strata/io/json.h"
#include "strata/io/temp_dir.h"

#include <nlohmann/json.hpp>

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

TEST(InputFile, GivesTheBytes) {
  TempDir dir;
  write_file(dir / "a", std::string_view("hello\0world", 11));
  InputFile file(dir / "a");
  EXPECT_EQ(file.read(0, 11), std::string_view("hello\0world", 11));
  InputFile moved(std::move(file));
  EXPECT_EQ(moved.size(), 11u);
  fs::remove(dir / "a");
  EXPECT_EQ(moved.read(6, 1), "w");
  EXPECT_EQ(moved.again().read(6, 5), "world");
  EXPECT_EQ(moved.read(11, 0), "");
  EXPECT_THROW(moved.read(7, 5), IoError);
  EXPECT_THROW(moved.read(UINT64_MAX, 2), IoError);
  Hasher hasher;
  moved.hash(hasher);
  EXPECT_EQ(hasher.digest(), xxh64(std::string_view("hello\0world", 11)));
}

TEST(InputFile, SaysWhatIsWrong) {
  TempDir dir;
  write_file(dir / "empty", "");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  const auto open = [](const std::string& path) { return error_of([&] { InputFile file(path); }); };
  EXPECT_TRUE(has(open(dir / "no"), "No such file")) << open(dir / "no");
  EXPECT_TRUE(has(open(dir / "no"), dir / "no"));
  EXPECT_TRUE(has(open(dir.path()), "is a directory"));
  EXPECT_TRUE(has(open(dir / "empty"), "is empty"));
  EXPECT_TRUE(has(open(dir / "pipe"), "not a regular file"));
}

TEST(InputFile, OneThatIsCutIsAnError) {
  TempDir dir;
  write_file(dir / "a", std::string(100'000, 'x'));
  const InputFile file(dir / "a");
  fs::resize_file(dir / "a", 10'000);
  EXPECT_EQ(file.read(0, 10'000), std::string(10'000, 'x'));
  const std::string error = error_of([&] { file.read(5'000, 20'000); });
  EXPECT_TRUE(has(error, "ends at byte 10000, it had 100000 bytes")) << error;
  Hasher hasher;
  EXPECT_THROW(file.hash(hasher), IoError);
}

TEST(InputFile, UnreadableFile) {
  TempDir dir;
  write_file(dir / "secret", "x");
  chmod(dir.path().c_str(), 0755);
  chmod((dir / "secret").c_str(), 0);
  EXPECT_EQ(in_child([&] {
              if (geteuid() == 0 && seteuid(65534) != 0) return 1;  // root reads everything
              return has(error_of([&] { InputFile file(dir / "secret"); }), "Permission denied") ? 0 : 2;
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

// Without anybody having ignored the signal.
TEST(FileWriter, FileSizeLimitIsNoSignal) {
  TempDir dir;
  write_file(dir / "f", "old");
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_DFL);
              const rlimit limit{4096, 4096};
              setrlimit(RLIMIT_FSIZE, &limit);
              for (int i = 0; i < 2; ++i)
                if (!has(error_of([&] { write_file(dir / "f", std::string(10'000, 'x')); }), "File too large"))
                  return 1;
              sigset_t pending;
              sigpending(&pending);
              return sigismember(&pending, SIGXFSZ) ? 2 : 0;
            }),
            0);
  EXPECT_EQ(read_file(dir / "f"), "old");
  EXPECT_EQ(count_entries(dir.path()), 1);
}

TEST(FileWriter, FollowsLinks) {
  TempDir dir;
  fs::create_directory(dir / "sub");
  write_file(dir / "sub/real", "old");
  fs::create_symlink("sub/real", dir / "link");
  fs::create_symlink("link", dir / "second");
  write_file(dir / "second", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_TRUE(fs::is_symlink(dir / "second"));
  EXPECT_FALSE(fs::is_symlink(dir / "sub/real"));
  EXPECT_EQ(read_file(dir / "sub/real"), "new");
  EXPECT_EQ(count_entries(dir / "sub"), 1);
  fs::create_symlink("sub/fresh", dir / "dangling");
  write_file(dir / "dangling", "text");
  EXPECT_TRUE(fs::is_symlink(dir / "dangling"));
  EXPECT_EQ(read_file(dir / "sub/fresh"), "text");
  fs::create_symlink("loop", dir / "loop");
  EXPECT_TRUE(has(error_of([&] { write_file(dir / "loop", "x"); }), "symbolic links"));
  fs::create_symlink("sub", dir / "folder");
  EXPECT_TRUE(has(error_of([&] { write_file(dir / "folder", "x"); }), "is a directory"));
}

TEST(FileWriter, KeepsPermissions) {
  TempDir dir;
  for (const mode_t mode : {0600u, 0644u, 0400u, 0640u}) {
    write_file(dir / "f", "old");
    chmod((dir / "f").c_str(), mode);
    write_file(dir / "f", "new");
    struct stat st {};
    ASSERT_EQ(stat((dir / "f").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, mode);
    EXPECT_EQ(read_file(dir / "f"), "new");
    fs::remove(dir / "f");
  }
}

TEST(FileWriter, WritesToDevicesAndPipes) {
  struct stat st {};
  write_file("/dev/null", "text");
  ASSERT_EQ(stat("/dev/null", &st), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));
  const std::string full = error_of([] { write_file("/dev/full", "text"); });
  EXPECT_TRUE(has(full, "cannot write '/dev/full': No space left on device")) << full;
  ASSERT_EQ(stat("/dev/full", &st), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));

  TempDir dir;
  fs::create_symlink("/dev/null", dir / "null");
  write_file(dir / "null", "text");
  EXPECT_TRUE(fs::is_symlink(dir / "null"));
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read_file(dir / "pipe"); });
  const std::string text(200'000, 'y');
  EXPECT_EQ(write_file(dir / "pipe", text).xxh64, xxh64(std::string_view(text)));
  reader.join();
  EXPECT_EQ(got, text);
  ASSERT_EQ(stat((dir / "pipe").c_str(), &st), 0);
  EXPECT_TRUE(S_ISFIFO(st.st_mode));
  std::thread impatient([&] { close(open((dir / "pipe").c_str(), O_RDONLY)); });
  const std::string gone = error_of([&] { write_file(dir / "pipe", std::string(1 << 20, 'z')); });  // no SIGPIPE
  impatient.join();
  EXPECT_TRUE(has(gone, "Broken pipe")) << gone;
  EXPECT_TRUE(has(error_of([] {
                    FileWriter writer("/dev/null");
                    writer.write("text");
                    writer.rewrite(0, "T", 1);
                  }),
                  "is a device or a pipe"));

  // A name of an open file: others write there, too.
  const int file = open((dir / "open").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(write(file, "one ", 4), 4);
  write_file(cat("/dev/fd/", file), "two ");
  ASSERT_EQ(write(file, "three", 5), 5);
  close(file);
  EXPECT_EQ(read_file(dir / "open"), "one two three");
}

TEST(FileWriter, LongNames) {
  TempDir dir;
  std::string name(250, 'x');
  for (size_t i = 1; i < name.size(); i += 2) name[i - 1] = '\xc3', name[i] = '\xa4';
  write_file(dir / name, "text");
  EXPECT_EQ(read_file(dir / name), "text");
  EXPECT_EQ(count_entries(dir.path()), 1);
}

// What a writer leaves that is killed.
void leave_a_temporary_file(const std::string& path) {
  const int status = in_child([&] {
    FileWriter writer(path);
    writer.write("half");
    kill(getpid(), SIGKILL);
    return 0;
  });
  ASSERT_EQ(status, 128 + SIGKILL);
}

TEST(FileWriter, RemovesWhatTheKilledLeftAndNothingElse) {
  TempDir dir;
  for (int i = 0; i < 3; ++i) leave_a_temporary_file(dir / "f");
  EXPECT_EQ(count_entries(dir.path()), 1);  // each removed the one before
  write_file(dir / "f", "text");
  EXPECT_EQ(count_entries(dir.path()), 1);
  EXPECT_EQ(read_file(dir / "f"), "text");

  FileWriter living(dir / "f");
  living.write("of the living");
  leave_a_temporary_file(dir / "f");
  leave_a_temporary_file(dir / "other");
  write_file(dir / ".f.tmp.2147483647.3", "of a version without locks");
  write_file(dir / cat(".f.tmp.", getpid(), ".3"), "of one that runs");
  write_file(dir / ".notes.tmp.txt", "mine");
  EXPECT_EQ(count_entries(dir.path()), 7);
  remove_leftovers(dir.path());
  EXPECT_EQ(count_entries(dir.path()), 4);
  write_file(dir / "f", "meanwhile");
  EXPECT_EQ(read_file(dir / "f"), "meanwhile");
  living.commit();
  EXPECT_EQ(read_file(dir / "f"), "of the living");
  EXPECT_EQ(count_entries(dir.path()), 3);
  EXPECT_EQ(read_file(dir / ".notes.tmp.txt"), "mine");
  remove_leftovers(dir / "nowhere");
}

// Writers of one path in many processes, some killed: always a whole text.
TEST(FileWriter, ManyWritersOfOnePath) {
  TempDir dir;
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    const pid_t pid = fork();
    if (pid == 0) {
      try {
        for (int i = 0;; ++i) write_file(dir / "f", std::string(20'000, static_cast<char>('a' + c)));
      } catch (const std::exception& e) {
        fprintf(stderr, "%s\n", e.what());
      }
      _exit(1);
    }
    children.push_back(pid);
  }
  for (int i = 0; i < 100; ++i) {
    if (!fs::exists(dir / "f")) continue;
    const std::string text = read_file(dir / "f");
    ASSERT_EQ(text, std::string(20'000, text[0]));
    usleep(500);
  }
  for (const pid_t pid : children) {
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
  write_file(dir / "f", "last");
  EXPECT_EQ(count_entries(dir.path()), 1);
}

TEST(Writable, IsKnownBefore) {
  TempDir dir;
  write_file(dir / "f", "x");
  for (const std::string& good : {dir / "f", dir / "new", std::string("/dev/null"), std::string("/dev/full")})
    EXPECT_EQ(why_not_writable(good), "") << good;
  EXPECT_TRUE(has(why_not_writable(dir / "no/f"), "No such file"));
  EXPECT_TRUE(has(why_not_writable(dir / "f/f"), "Not a directory")) << why_not_writable(dir / "f/f");
  EXPECT_TRUE(has(why_not_writable(dir.path()), "is a directory"));
  EXPECT_TRUE(has(why_not_writable(dir.path() + "/"), "names no file"));
  EXPECT_EQ(count_entries(dir.path()), 1);
}

TEST(KeepAside, TakesTheFirstFreeName) {
  TempDir dir;
  write_file(dir / "log.jsonl", "one");
  EXPECT_EQ(keep_aside(dir / "log.jsonl"), dir / "log.1.jsonl");
  write_file(dir / "log.jsonl", "two");
  EXPECT_EQ(keep_aside(dir / "log.jsonl"), dir / "log.2.jsonl");
  EXPECT_EQ(read_file(dir / "log.1.jsonl") + read_file(dir / "log.2.jsonl"), "onetwo");
  EXPECT_THROW(keep_aside(dir / "log.jsonl"), IoError);
}

TEST(Json, NestsOnlySoDeep) {
  const auto nested = [](int n) {
    return std::string(static_cast<size_t>(n), '[') + std::string(static_cast<size_t>(n), ']');
  };
  EXPECT_EQ(parse_json(nested(kMaxJsonDepth), "f").size(), 1u);
  EXPECT_TRUE(has(error_of([&] { parse_json(nested(kMaxJsonDepth + 1), "f"); }), "'f' is not valid JSON"));
  EXPECT_TRUE(has(error_of([&] { parse_json(std::string(10'000'000, '['), "f"); }), "at byte 64"));
  EXPECT_EQ(parse_json(R"({"a":"[[\"[[[\\"})" + std::string(100, ' '), "f").at("a"), R"([["[[[\)");
  EXPECT_EQ(parse_json("[" + std::string("[],{},") + "[]]", "f").size(), 3u);
  for (const char* bad : {"", "]", "[1", "{\"a\"}", "\"\xff\"", "[1e999]", "\"\\"})
    EXPECT_TRUE(has(error_of([&] { parse_json(bad, "f"); }), "'f' is not valid JSON")) << bad;
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
