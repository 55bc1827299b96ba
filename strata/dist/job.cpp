#include "strata/dist/job.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>

#include <unistd.h>

#include "strata/core/error.h"

namespace strata::distributed {
namespace {

constexpr std::string_view kOp = "job";
constexpr int kMostRanks = 1 << 20;
constexpr size_t kLongestText = 1 << 16;  // of a variable

enum class Kind { strata, torchrun, by_hand, open_mpi, pmi, slurm };

// What a launcher sets. Of several names the first that is set counts.
struct Launcher {
  using Names = std::array<const char*, 3>;
  Kind kind;
  const char* name;
  const char* marker;  // set by this launcher alone; nullptr: its rank or size says that it is there
  Names rank, size, local_rank, local_size;
  Names job;           // together they tell this job from others of this user
  bool starts_itself;  // it starts its own processes inside an allocation, whose variables they inherit
};

// Inner ones first: who is started by an outer one inherits its variables.
constexpr Launcher kLaunchers[] = {
    {Kind::strata,
     "strata launch",
     "STRATA_LAUNCH",
     {"RANK"},
     {"WORLD_SIZE"},
     {"LOCAL_RANK"},
     {"LOCAL_WORLD_SIZE"},
     {"MASTER_PORT"},
     true},
    {Kind::torchrun,
     "torchrun",
     "TORCHELASTIC_RUN_ID",
     {"RANK"},
     {"WORLD_SIZE"},
     {"LOCAL_RANK"},
     {"LOCAL_WORLD_SIZE"},
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
     true},
    {Kind::by_hand,
     "RANK",
     nullptr,
     {"RANK"},
     {"WORLD_SIZE"},
     {"LOCAL_RANK"},
     {"LOCAL_WORLD_SIZE"},
     {"MASTER_PORT"},
     false},
    {Kind::open_mpi,
     "mpirun",
     nullptr,
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     true},
    {Kind::pmi,
     "mpiexec",
     nullptr,
     {"PMI_RANK"},
     {"PMI_SIZE"},
     {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
     {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
     {"PMI_JOBID"},
     true},
    // Only a step's tasks have the marker: a batch script has the other variables, too, and is one process.
    {Kind::slurm,
     "srun",
     "SLURM_STEP_NODELIST",
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     {"SLURM_NTASKS_PER_NODE"},
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     false},
};

struct Variable {
  const char* name = nullptr;
  std::string_view text;
  explicit operator bool() const { return name != nullptr; }
};

struct Number {
  const char* name = nullptr;  // nullptr: none is set
  int value = 0;
};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  // An empty variable is as good as none.
  Variable text(const char* name) const {
    const char* text = environment_(name);
    if (text == nullptr || *text == '\0') return {};
    const std::string_view view = text;
    check(view.size() <= kLongestText, kOp, name, " has ", view.size(), " bytes, at most ", kLongestText,
          " make sense");
    return {name, view};
  }
  Variable first(const Launcher::Names& names) const {
    for (const char* name : names)
      if (name != nullptr)
        if (const Variable v = text(name)) return v;
    return {};
  }
  Number number(const Variable& v, int least, int most) const {
    if (!v) return {};
    int value = 0;
    const char* const end = v.text.data() + v.text.size();
    const auto [stop, error] = std::from_chars(v.text.data(), end, value);
    check(error == std::errc() && stop == end && value >= least && value <= most, kOp, v.name, " is '",
          v.text.substr(0, 80), "', it must be an integer from ", least, " to ", most);
    return {v.name, value};
  }
  Number number(const char* name, int least, int most) const { return number(text(name), least, most); }

 private:
  const Environment& environment_;
};

// What one launcher says.
struct Said {
  const Launcher* by = nullptr;
  Number rank, size, local_rank, local_size;
};

// Slurm's "4(x2),2": tasks on the node of that number.
Number tasks_on_node(const Reader& reader) {
  const Variable counts = reader.text("SLURM_STEP_TASKS_PER_NODE");
  const Number node = reader.number("SLURM_NODEID", 0, kMostRanks);
  if (!counts || node.name == nullptr) return {};
  std::string_view rest = counts.text;
  const auto take = [&](int& value) {
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 1 || value > kMostRanks) return false;
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
    return true;
  };
  for (int64_t before = 0; !rest.empty();) {
    int count = 0, times = 1;
    bool good = take(count);
    if (good && rest.starts_with("(x")) {
      rest.remove_prefix(2);
      good = take(times) && rest.starts_with(')');
      if (good) rest.remove_prefix(1);
    }
    good = good && (rest.empty() || (rest.starts_with(',') && rest.size() > 1));
    check(good, kOp, counts.name, " is '", counts.text.substr(0, 80), "', it must read like '4(x2),2'");
    before += times;
    if (node.value < before) return {counts.name, count};
    if (!rest.empty()) rest.remove_prefix(1);
  }
  throw ValueError(kOp, cat(counts.name, " is '", counts.text.substr(0, 80), "', which has no node ", node.value, " (",
                            node.name, ")"));
}

// The first host of "gpu[01-03,07]-ib,login".
std::string first_host(const Variable& list) {
  std::string host;
  std::string_view rest = list.text;
  bool good = true;
  while (good && !rest.empty() && rest[0] != ',') {
    if (rest[0] != '[') {
      host += rest[0];
      rest.remove_prefix(1);
      continue;
    }
    const size_t close = rest.find(']');
    good = close != std::string_view::npos;
    if (!good) break;
    const std::string_view inside = rest.substr(1, close - 1);
    const std::string_view number = inside.substr(0, inside.find_first_of(",-"));
    good = !number.empty() && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    host += number;
    rest.remove_prefix(close + 1);
  }
  const bool name = !host.empty() && host.size() <= 253 && std::ranges::all_of(host, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
           c == '_';
  });
  check(good && name, kOp, list.name, " is '", list.text.substr(0, 80), "', it must read like 'node[01-03,07]'");
  return host;
}

// FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t hash_of(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return h;
}

Said read(const Reader& reader, const Launcher& by) {
  Said said{&by, reader.number(reader.first(by.rank), 0, kMostRanks - 1),
            reader.number(reader.first(by.size), 1, kMostRanks),
            reader.number(reader.first(by.local_rank), 0, kMostRanks - 1),
            reader.number(reader.first(by.local_size), 1, kMostRanks)};
  if (by.kind == Kind::slurm)
    if (const Number here = tasks_on_node(reader); here.name != nullptr) said.local_size = here;
  return said;
}

// Every launcher that has left something, the one that started this process first. A step's tasks have Slurm's
// variables, and so have the processes of a launcher that was started as a task: there they tell of the launcher.
std::vector<Said> all_said(const Reader& reader) {
  std::vector<Said> found;
  for (const Launcher& by : kLaunchers) {
    const bool there = by.marker != nullptr ? bool(reader.text(by.marker))
                                            : bool(reader.first(by.rank)) || bool(reader.first(by.size));
    const bool same_names =
        std::ranges::any_of(found, [&](const Said& s) { return std::string_view(s.by->rank[0]) == by.rank[0]; });
    if (!there || same_names) continue;
    const Said said = read(reader, by);
    for (const auto& [number, other, names] :
         {std::tuple{said.rank, said.size, &by.rank}, std::tuple{said.size, said.rank, &by.size}})
      check(number.name != nullptr, kOp, other.name != nullptr ? other.name : by.marker, " is set and ", (*names)[0],
            " is not: ", by.name, " sets both");
    check(said.rank.value < said.size.value, kOp, said.rank.name, " is ", said.rank.value, ", it must be less than ",
          said.size.name, " = ", said.size.value);
    if (!found.empty()) {
      const Said& inner = found.front();
      // Slurm's own PMI says nothing of the host.
      if (by.kind == Kind::slurm && inner.by->starts_itself && inner.local_size.name != nullptr) continue;
      for (const auto& [a, b] : {std::pair{inner.size, said.size}, std::pair{inner.rank, said.rank}})
        check(a.value == b.value, kOp, a.name, " is ", a.value, " and ", b.name, " is ", b.value,
              ": two launchers contradict each other; unset what one of them has left");
    }
    found.push_back(said);
  }
  return found;
}

// The first of them that knows.
Number known(const std::vector<Said>& all, Number Said::*member, const char* wanted) {
  for (const Said& said : all)
    if ((said.*member).name != nullptr) return said.*member;
  throw ValueError(kOp, cat(all[0].rank.name, " is set and ", wanted, " is not: where are this host's other ranks?"));
}

// What the launchers call this job; of one that says nothing, the process that started this one.
std::string id_of(const Reader& reader, const std::vector<Said>& all) {
  std::string id = cat(static_cast<int64_t>(::geteuid()));
  bool named = false;
  for (const Said& said : all)
    for (const char* name : said.by->job)
      if (name != nullptr)
        if (const Variable v = reader.text(name)) {
          id += cat(" ", v.name, "=", v.text);
          named = true;
        }
  return named ? id : id + cat(" parent=", static_cast<int64_t>(::getppid()));
}

void needs(const Variable& v, const char* name, const Job& job, std::string_view why) {
  check(bool(v), kOp, name, " is not set: ", why, " (rank ", job.rank, " of ", job.size, ", started by ", job.launcher,
        ")");
}

std::string address(std::string_view host, int port) {
  return host.find(':') != std::string_view::npos && !host.starts_with('[') ? cat("[", host, "]:", port)
                                                                            : cat(host, ":", port);
}

void over_network(const Reader& reader, const std::vector<Said>& all, Job& job) {
  const Kind kind = all[0].by->kind;
  Variable host = reader.text("MASTER_ADDR");
  std::string first;
  if (!host && kind != Kind::strata)
    if (const Variable list = reader.text("SLURM_STEP_NODELIST"); list && all.back().by->kind == Kind::slurm) {
      first = first_host(list);
      host = {list.name, first};
    }
  needs(host, "MASTER_ADDR", job, "it is the host of rank 0");
  Number port = reader.number("MASTER_PORT", 1, 65535);
  const Variable agent = reader.text("TORCHELASTIC_USE_AGENT_STORE");
  if (kind == Kind::torchrun && agent.text == "True" && port.name != nullptr) {
    // torchrun itself listens there.
    port.value = port.value < 65535 ? port.value + 1 : 65534;
  } else if (port.name == nullptr && kind != Kind::strata && kind != Kind::by_hand) {
    // Below the ports that systems give to whoever wants any.
    port = {"", 20000 + static_cast<int>(hash_of(id_of(reader, all)) % 12000)};
  }
  needs(port.name != nullptr ? Variable{port.name, ""} : Variable{}, "MASTER_PORT", job,
        "it is the port of the coordinator at MASTER_ADDR");
  const Variable secret = reader.text("STRATA_JOB_SECRET");
  needs(secret, "STRATA_JOB_SECRET", job,
        "ranks on several hosts know each other by it; export STRATA_JOB_SECRET=$(openssl rand -hex 16) before "
        "starting them");
  job.coordinator = address(host.text, port.value);
  job.coordinator_runs = kind == Kind::strata;
  job.secret = secret.text;
}

}  // namespace

std::optional<Job> job_of(const Environment& environment) {
  const Reader reader(environment);
  const std::vector<Said> all = all_said(reader);
  if (all.empty()) return std::nullopt;
  Job job{.rank = all[0].rank.value, .size = all[0].size.value, .launcher = all[0].by->name};
  const Launcher& by = *all[0].by;
  if (by.kind == Kind::strata) {
    job.replaces = reader.number("STRATA_REPLACES", 0, 1).value == 1;
    if (const Number n = reader.number("STRATA_JOINS", 0, kMostRanks); n.name != nullptr) job.joins = n.value;
  }
  if (job.size == 1) return job;
  const Number local_rank = known(all, &Said::local_rank, by.local_rank[0]);
  const Number local_size = known(all, &Said::local_size, by.local_size[0]);
  for (const auto& [small, large, bound] : {std::tuple{local_rank, local_size, local_size.value - 1},
                                            std::tuple{local_size, all[0].size, all[0].size.value}})
    check(small.value <= bound, kOp, small.name, " is ", small.value, " and ", large.name, " is ", large.value,
          ": they do not fit together");
  job.local_rank = local_rank.value;
  job.local_size = local_size.value;
  if (by.kind == Kind::strata || job.local_size < job.size) {
    over_network(reader, all, job);
  } else {
    const Variable folder = reader.text("TMPDIR");
    char name[17] = {};
    const uint64_t h = hash_of(id_of(reader, all));
    for (int i = 0; i < 16; ++i) name[i] = "0123456789abcdef"[(h >> (60 - 4 * i)) & 15];
    job.meeting = cat(folder && folder.text[0] == '/' ? folder.text : "/tmp", "/strata-",
                      static_cast<int64_t>(::geteuid()), "-", static_cast<const char*>(name));
    if (const Variable secret = reader.text("STRATA_JOB_SECRET")) job.secret = secret.text;
  }
  return job;
}

std::vector<std::string> job_variables() {
  std::set<std::string> names{"MASTER_ADDR",
                              "MASTER_PORT",
                              "STRATA_JOB_SECRET",
                              "STRATA_LAUNCHED_AS",
                              "TORCHELASTIC_USE_AGENT_STORE",
                              "SLURM_STEP_TASKS_PER_NODE",
                              "SLURM_NODEID",
                              "STRATA_REPLACES",
                              "STRATA_JOINS"};
  for (const Launcher& by : kLaunchers) {
    if (by.marker != nullptr) names.insert(by.marker);
    for (const Launcher::Names& of : {by.rank, by.size, by.local_rank, by.local_size})
      for (const char* name : of)
        if (name != nullptr) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::optional<Job> current_job() {
  return job_of([](const char* name) { return std::getenv(name); });
}

}  // namespace strata::distributed
