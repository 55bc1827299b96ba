#include "strata/io/read_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace strata::io::detail {

ReadAhead::ReadAhead(std::vector<InputFile> files) {
  constexpr uint64_t kStretch = uint64_t{1} << 20;
  const uint64_t most =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 4;
  try {
    thread_ = std::jthread([files = std::move(files), most](const std::stop_token& stop) {
      uint64_t asked = 0;
      for (const InputFile& file : files)
        for (uint64_t at = 0; at < file.size() && asked < most && !stop.stop_requested(); at += kStretch)
          file.will_need(at, kStretch), asked += kStretch;
    });
  } catch (const std::system_error&) {  // no thread: the reader waits for the disk then
  }
}

void ReadAhead::finish() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace strata::io::detail
