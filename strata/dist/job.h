#pragma once
// Which rank of which job this process is, as its launcher says.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::distributed {

/// What a launcher tells a process in its environment. A job of one needs nobody to meet: what is behind `launcher` is
/// empty.
struct Job {
  int rank = 0;          ///< 0 <= rank < size
  int size = 1;          ///< processes of the job
  int local_rank = 0;    ///< among those of this host: the number of its card
  int local_size = 1;    ///< processes on this host
  std::string launcher;  ///< "strata launch", "torchrun", "mpirun", "mpiexec", "srun", "RANK" for variables set by hand
  std::string coordinator;        ///< "host:port" of the coordinator; empty where `meeting` tells it
  bool coordinator_runs = false;  ///< the launcher holds the coordinator; otherwise rank 0 starts it
  std::string meeting;            ///< a file that rank 0 writes its coordinator's address and secret into, on one host
  std::string secret;             ///< what requests to the coordinator must carry; empty where `meeting` tells it
  /// The launcher puts other processes in the place of those that die, or lets the others go on without them
  /// (STRATA_REPLACES=1 of `strata launch --restarts` and `--min-ranks`): rejoin() may be called.
  bool replaces = false;
  /// Of a process that takes another's place (STRATA_JOINS): how often the job had been formed when it was started; it
  /// becomes part of the next forming. -1 for the first processes.
  int joins = -1;
};

/// Reads a variable of the environment: nullptr where it is not set.
using Environment = std::function<const char*(const char* name)>;

/// The job that the environment describes, std::nullopt for a process that was started alone. Understands
/// `strata launch` and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI
/// (OMPI_COMM_WORLD_*), MPICH and other PMI launchers (PMI_*, MPI_LOCAL*), and Slurm (SLURM_PROCID, SLURM_NTASKS,
/// SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE or SLURM_NTASKS_PER_NODE, SLURM_STEP_NODELIST).
///
/// On one host ranks meet through a file in $TMPDIR or /tmp that nobody else can read. On several, rank 0 is at
/// MASTER_ADDR:MASTER_PORT (Slurm: the step's first host, a port that follows from the job's number; torchrun:
/// MASTER_PORT + 1, since its own store has that port), and the secret is STRATA_JOB_SECRET, which must be set: nothing
/// else that a launcher tells is known to the job alone.
///
/// Throws ValueError naming the variable for a number that is none or out of range, for a set of which a part is
/// missing, and for two launchers that contradict each other.
std::optional<Job> job_of(const Environment& environment);
/// job_of() of this process's environment.
std::optional<Job> current_job();

/// The variables by which launchers say what job_of() reads: who starts ranks of its own takes them out of their
/// environment first.
std::vector<std::string> job_variables();

}  // namespace strata::distributed
