#include "strata/dist/job.h"

#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "strata/core/error.h"

namespace strata::distributed {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Job> job(const Variables& variables) {
  return job_of([&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

std::string error(const Variables& variables) {
  try {
    (void)job(variables);
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, text] : more) {
    if (text.empty())
      variables.erase(name);
    else
      variables[name] = text;
  }
  return variables;
}

const Variables kStrata{{"STRATA_LAUNCH", "1"},    {"RANK", "1"},
                        {"WORLD_SIZE", "4"},       {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"},
                        {"MASTER_PORT", "4321"},   {"STRATA_JOB_SECRET", "s3cret"}};
const Variables kTorchrun{{"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "3"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "localhost"},
                          {"MASTER_PORT", "29500"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "1425670145"}};
const Variables kPmi{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{
    {"SLURM_STEP_NODELIST", "gpu[07-09,12]"}, {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"},    {"SLURM_LOCALID", "1"},
    {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},   {"SLURM_NODEID", "2"}, {"SLURM_JOB_ID", "8812"}, {"SLURM_STEP_ID", "0"},
    {"STRATA_JOB_SECRET", "s3cret"}};

TEST(Job, AloneIsNone) {
  EXPECT_FALSE(job({}));
  EXPECT_FALSE(job({{"MASTER_ADDR", "a"}, {"SLURM_JOB_ID", "3"}, {"STRATA_JOB_SECRET", "x"}, {"LOCAL_RANK", "0"}}));
  // A batch script is one process, whatever its allocation may run.
  EXPECT_FALSE(job({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}}));
  EXPECT_FALSE(job({{"RANK", ""}, {"WORLD_SIZE", ""}}));
}

TEST(Job, StrataLaunch) {
  const Job j = job(kStrata).value();
  EXPECT_EQ(j.launcher, "strata launch");
  EXPECT_EQ(j.rank, 1);
  EXPECT_EQ(j.size, 4);
  EXPECT_EQ(j.local_rank, 1);
  EXPECT_EQ(j.local_size, 2);
  EXPECT_EQ(j.coordinator, "node1:4321");
  EXPECT_TRUE(j.coordinator_runs);
  EXPECT_EQ(j.secret, "s3cret");
  EXPECT_EQ(j.meeting, "");
  // On one host as well: its coordinator runs.
  EXPECT_EQ(job(with(kStrata, {{"LOCAL_WORLD_SIZE", "4"}}))->coordinator, "node1:4321");
  EXPECT_EQ(job(with(kStrata, {{"MASTER_ADDR", "fe80::1"}}))->coordinator, "[fe80::1]:4321");
  // Started as one of a step's tasks it tells of its own processes.
  EXPECT_EQ(job(with(kStrata, kSlurm))->size, 4);
}

TEST(Job, AJobOfOneMeetsNobody) {
  const Job j = job(with(kStrata, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", ""}})).value();
  EXPECT_EQ(j.size, 1);
  EXPECT_EQ(j.local_size, 1);
  EXPECT_EQ(j.coordinator + j.meeting + j.secret, "");
}

TEST(Job, TorchrunKeepsItsPort) {
  const Job one = job(kTorchrun).value();
  EXPECT_EQ(one.launcher, "torchrun");
  EXPECT_EQ(one.coordinator, "");
  EXPECT_TRUE(one.meeting.starts_with("/tmp/strata-" + std::to_string(::geteuid()) + "-")) << one.meeting;
  const Variables two =
      with(kTorchrun,
           {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "node7"}, {"STRATA_JOB_SECRET", "x"}});
  EXPECT_EQ(job(two)->coordinator, "node7:29501");
  EXPECT_FALSE(job(two)->coordinator_runs);
  EXPECT_EQ(job(with(two, {{"MASTER_PORT", "65535"}}))->coordinator, "node7:65534");
  EXPECT_EQ(job(with(two, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->coordinator, "node7:29500");
  EXPECT_NE(error(with(two, {{"STRATA_JOB_SECRET", ""}})).find("STRATA_JOB_SECRET is not set"), std::string::npos);
  // One torchrun a node, started by srun: its agents have Slurm's numbers.
  EXPECT_EQ(job(with(two, with(kSlurm, {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}})))->rank, 3);
}

TEST(Job, OneHostMeetsInAFileOfThisJob) {
  const std::string mine = job(kOpenMpi)->meeting;
  EXPECT_EQ(job(kOpenMpi)->launcher, "mpirun");
  EXPECT_EQ(job(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))->meeting, mine);
  EXPECT_NE(job(with(kOpenMpi, {{"PMIX_NAMESPACE", "77"}}))->meeting, mine);
  EXPECT_TRUE(job(with(kOpenMpi, {{"TMPDIR", "/scratch/me"}}))->meeting.starts_with("/scratch/me/strata-"));
  EXPECT_TRUE(job(with(kOpenMpi, {{"TMPDIR", "relative"}}))->meeting.starts_with("/tmp/strata-"));
  EXPECT_EQ(job(kOpenMpi)->secret, "");
  EXPECT_EQ(job(kPmi)->launcher, "mpiexec");
  EXPECT_FALSE(job(kPmi)->meeting.empty());  // named after the process that started it
  const Variables by_hand{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_NE(job(by_hand)->meeting, job(with(by_hand, {{"MASTER_PORT", "1234"}}))->meeting);
}

TEST(Job, SeveralHostsOfMpi) {
  const Variables two = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_NE(error(two).find("MASTER_ADDR is not set: it is the host of rank 0 (rank 1 of 2, started by mpirun)"),
            std::string::npos)
      << error(two);
  const Variables at = with(two, {{"MASTER_ADDR", "node1"}, {"STRATA_JOB_SECRET", "x"}});
  const std::string found = job(at)->coordinator;
  EXPECT_TRUE(found.starts_with("node1:2") || found.starts_with("node1:3")) << found;
  EXPECT_EQ(job(with(at, {{"MASTER_PORT", "999"}}))->coordinator, "node1:999");
  EXPECT_EQ(error(with(at, {{"MASTER_PORT", "70000"}})),
            "job: MASTER_PORT is '70000', it must be an integer from 1 to 65535");
}

TEST(Job, Slurm) {
  const Job j = job(kSlurm).value();
  EXPECT_EQ(j.launcher, "srun");
  EXPECT_EQ(j.rank, 5);
  EXPECT_EQ(j.local_rank, 1);
  EXPECT_EQ(j.local_size, 2);
  const int port = std::stoi(j.coordinator.substr(6));
  EXPECT_EQ(j.coordinator.substr(0, 6), "gpu07:");
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 32000);
  EXPECT_EQ(job(with(kSlurm, {{"SLURM_PROCID", "0"}}))->coordinator, j.coordinator);
  EXPECT_NE(job(with(kSlurm, {{"SLURM_STEP_ID", "1"}}))->coordinator, j.coordinator);
  EXPECT_EQ(job(with(kSlurm, {{"MASTER_ADDR", "ib1"}, {"MASTER_PORT", "5"}}))->coordinator, "ib1:5");
  EXPECT_EQ(job(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}))->size, 1);
  EXPECT_EQ(job(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_NTASKS_PER_NODE", "3"}}))->local_size, 3);
  EXPECT_EQ(job(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "1,5"}, {"SLURM_NODEID", "1"}}))->local_size, 5);
  // Slurm's own PMI says the same twice, without the host; mpiexec in a step is a launcher of its own.
  EXPECT_EQ(job(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}}))->coordinator, j.coordinator);
  EXPECT_NE(error(with(kSlurm, {{"PMI_RANK", "4"}, {"PMI_SIZE", "6"}})).find("PMI_RANK is 4 and SLURM_PROCID is 5"),
            std::string::npos);
  EXPECT_EQ(job(with(kSlurm, kPmi))->size, 2);
  EXPECT_NE(error(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}})).find("has no node 2 (SLURM_NODEID)"),
            std::string::npos);
  EXPECT_NE(error(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", ""}})).find("SLURM_NTASKS_PER_NODE is not"),
            std::string::npos);
}

TEST(Job, FirstHostOfALlist) {
  const std::pair<const char*, const char*> lists[] = {{"a", "a"},
                                                       {"node7,node9", "node7"},
                                                       {"node[01-03,07]", "node01"},
                                                       {"n[9,12]x", "n9x"},
                                                       {"r[1-2]n[04-05]", "r1n04"},
                                                       {"a.b-c_d", "a.b-c_d"},
                                                       {"n[010-020],m", "n010"}};
  for (const auto& [list, host] : lists) {
    const std::string at = job(with(kSlurm, {{"SLURM_STEP_NODELIST", list}}))->coordinator;
    EXPECT_EQ(at.substr(0, at.find(':')), host) << list;
  }
  for (const char* list : {"node[01", "node[]", "node[a-b]", ",a", "[1-2", "a b", "n[-3]", "\x80", "a/b", "a]"})
    EXPECT_NE(error(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})).find("SLURM_STEP_NODELIST is '"), std::string::npos)
        << list;
  EXPECT_NE(error(with(kSlurm, {{"SLURM_STEP_NODELIST", std::string(300, 'a')}})).find("SLURM_STEP_NODELIST"),
            std::string::npos);
  EXPECT_NE(error(with(kSlurm, {{"SLURM_STEP_NODELIST", std::string(70000, 'a')}})).find("70000 bytes"),
            std::string::npos);
  // Whatever stands there, an answer or an error that names the variable.
  std::minstd_rand random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string list, counts;
    for (unsigned n = random() % 20; n > 0; --n) list += "ab01[]-,() x"[random() % 12];
    for (unsigned n = random() % 12; n > 0; --n) counts += "0129(x),"[random() % 8];
    if (list.empty() || counts.empty()) continue;
    const std::string e = error(with(kSlurm, {{"SLURM_STEP_NODELIST", list}, {"SLURM_STEP_TASKS_PER_NODE", counts}}));
    EXPECT_TRUE(e == "no error" || e.find("SLURM_") != std::string::npos) << list << " " << counts << ": " << e;
  }
}

TEST(Job, NumbersAreChecked) {
  for (const char* bad : {"x", "-1", "1.5", " 1", "1 ", "99999999999", "0x1", "1048577"})
    EXPECT_NE(error(with(kStrata, {{"RANK", bad}})).find("RANK is '"), std::string::npos) << bad;
  EXPECT_EQ(error(with(kStrata, {{"WORLD_SIZE", "0"}})),
            "job: WORLD_SIZE is '0', it must be an integer from 1 to 1048576");
  EXPECT_EQ(error(with(kStrata, {{"RANK", "4"}})), "job: RANK is 4, it must be less than WORLD_SIZE = 4");
  EXPECT_EQ(error(with(kStrata, {{"LOCAL_RANK", "2"}})),
            "job: LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2: they do not fit together");
  EXPECT_EQ(error(with(kStrata, {{"LOCAL_WORLD_SIZE", "5"}})),
            "job: LOCAL_WORLD_SIZE is 5 and WORLD_SIZE is 4: they do not fit together");
}

TEST(Job, PartsAreMissing) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "STRATA_JOB_SECRET"})
    EXPECT_NE(error(with(kStrata, {{name, ""}})).find(std::string(name) + " is not"), std::string::npos)
        << name << ": " << error(with(kStrata, {{name, ""}}));
  EXPECT_EQ(error({{"RANK", "0"}}), "job: RANK is set and WORLD_SIZE is not: RANK sets both");
  EXPECT_EQ(error({{"PMI_SIZE", "2"}}), "job: PMI_SIZE is set and PMI_RANK is not: mpiexec sets both");
}

TEST(Job, LaunchersContradictEachOther) {
  const Variables by_hand{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(error(with(kOpenMpi, by_hand)),
            "job: RANK is 0 and OMPI_COMM_WORLD_RANK is 1: two launchers contradict each other; unset what one of "
            "them has left");
  EXPECT_NE(
      error(with(kOpenMpi, with(by_hand, {{"WORLD_SIZE", "8"}}))).find("WORLD_SIZE is 8 and OMPI_COMM_WORLD_SIZE is 2"),
      std::string::npos);
  EXPECT_NE(error(with(kOpenMpi, kPmi)).find("OMPI_COMM_WORLD_RANK is 1 and PMI_RANK is 0"), std::string::npos);
  // What is exported once for all tasks.
  EXPECT_NE(error(with(kSlurm, with(by_hand, {{"WORLD_SIZE", "6"}}))).find("RANK is 0 and SLURM_PROCID is 5"),
            std::string::npos);
  EXPECT_EQ(job(with(kOpenMpi, with(by_hand, {{"RANK", "1"}, {"LOCAL_RANK", "1"}})))->rank, 1);
  // Where one is silent about its host, the other knows.
  EXPECT_EQ(job(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}))->local_rank, 1);
}

}  // namespace
}  // namespace strata::distributed
