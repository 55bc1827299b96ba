#pragma once
// Which rank of which job this process is, as its launcher says.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace strata::distributed {

/// What a launcher tells a process in its environment.
struct Job {
  int rank = 0;             ///< 0 <= rank < size
  int size = 1;             ///< processes of the job
  int local_rank = 0;       ///< among those of this host: the number of its card
  int local_size = 1;       ///< processes on this host
  std::string launcher;     ///< "strata launch", "torchrun", "mpirun", "srun"; empty for a process started alone
  std::string coordinator;  ///< "host:port" of the coordinator; empty where rank 0 starts one itself
  std::string meeting;      ///< a file that rank 0 writes its coordinator's address into, for launchers that name none
  std::string secret;       ///< what requests to the coordinator must carry; empty only for a job of one
};

/// Reads a variable of the environment: nullptr where it is not set.
using Environment = std::function<const char*(const char* name)>;

/// The job that the environment describes, std::nullopt for a process that was started alone. Understands
/// `strata launch` and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
/// STRATA_JOB_SECRET), Open MPI (OMPI_COMM_WORLD_*), MPICH and other PMI launchers (PMI_*, MPI_LOCAL*), and Slurm
/// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NTASKS_PER_NODE, SLURM_STEP_NODELIST). Throws ValueError naming
/// the variable for a number that is none or out of range, for a set of which a part is missing, and for two launchers
/// that contradict each other.
std::optional<Job> job_of(const Environment& environment);
/// job_of() of this process's environment.
std::optional<Job> current_job();

}  // namespace strata::distributed
