#pragma once

#include <string>
#include <vector>

namespace dtrun::lab::rank {

/// Somebody's program, whose steps are measured.
struct ScriptOptions {
    std::string backend;         ///< for dtrun's communicators in it; empty: it is not told
    std::string step_regex;      ///< empty: it tells of its steps itself, or in the usual way
    std::string accuracy_regex;  ///< empty: the usual ones
    std::string compress;        ///< a format for gradients that dtrun.torch reduces; empty: none
    std::vector<std::string> words;  ///< the program and its arguments
};

/// Runs the program in this rank's place. Lines of it that are records of training go to standard output if this is
/// rank 0, all others to standard error; at last a StepsRecord follows.
/// \return its exit code; 128+n after signal n
int run_script(const ScriptOptions& options);

/// The same with the trainer of examples/torch, which lies in "torch" beside this program.
/// \param options  whose words are a Python and the trainer's arguments
int run_trainer(ScriptOptions options);

}  // namespace dtrun::lab::rank
