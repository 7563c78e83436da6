#pragma once

#include "tests/loopback/simulation.h"

#include <functional>
#include <random>
#include <stdexcept>
#include <string>

namespace dtrun::loopback {

/// A promise of dtrun's that a job has broken.
class Broken : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A job that was drawn, and what must be true of its end.
struct HeadJob {
    std::string kind;
    Script script;
    std::function<void(const Ending&)> judge;  ///< throws Broken
};

/// How many kinds of jobs there are.
std::size_t head_job_kinds();
HeadJob draw_head_job(std::size_t kind, std::mt19937& random);

/// What all jobs drawn from a seed have come to.
struct HeadJobs {
    std::size_t jobs = 0, worlds = 0,
                ends = 0;   ///< worlds that ranks have come to; processes that have ended
    std::size_t trace = 0;  ///< of all that has happened
};

/// Plays so many jobs, one of each kind after the other. \throws Broken with the job's story
HeadJobs play_head_jobs(std::uint32_t seed, std::size_t jobs);

}  // namespace dtrun::loopback
