#pragma once

#include "base/result.h"
#include "launcher/plan/job_plan.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::mpirun {

/// The program that starts the ranks with --mpi mpirun.
struct MpirunProgram {
    enum class Kind : std::uint8_t {
        openmpi,  ///< also IBM Spectrum MPI, which is made of it
        mpich,    ///< Hydra: MPICH, MVAPICH
        intel,    ///< Hydra with options of its own
    };
    std::string path;
    Kind kind = Kind::openmpi;
    int major = 0;     ///< of Open MPI: since 5 another run-time is underneath; else 0
    std::string name;  ///< "Open MPI 4.1.4", for a person
};

/// Tells the implementation by what `mpirun --version` prints.
/// \return not_found if it is none of those above
Result<MpirunProgram> identify_mpirun(std::string path, std::string_view version_text);

/// What dtrun starts in its own place.
struct MpirunCommand {
    std::vector<std::string> argv;  ///< [0] is the program's path
    std::vector<plan::Options::Variable>
        environment;       ///< of mpirun alone, over environment.local of JobSpec
    std::string hostfile;  ///< content of the file that argv names; empty: it names none
};

/// The most hosts that mpirun gets on its command line instead of in a file.
inline constexpr std::size_t kHostsInWords = 16;

struct MpirunCircumstances {
    bool as_root = false;         ///< which Open MPI wants to be told
    bool in_slurm_step = false;   ///< srun started dtrun, and mpirun would call srun once more
    std::string hostfile_path{};  ///< the name that argv has for `hostfile`
};

/// Turns a job into the command line of an mpirun that starts the same ranks in the same places, with
/// the same variables of the user's.
/// \return invalid_input for what this implementation cannot be told
Result<MpirunCommand> compose_mpirun(const plan::JobSpec& spec, const MpirunProgram& mpirun,
                                     const MpirunCircumstances& circumstances);

/// The command as a person would type it.
std::string mpirun_command_text(const MpirunCommand& command);

}  // namespace dtrun::mpirun
