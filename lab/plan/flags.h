#pragma once

#include "base/result.h"
#include "lab/plan/options.h"
#include "launcher/cli/run.h"

#include <string>

namespace dtrun::lab {

/// The words of `dtrun bench`. Its `options` say where ranks run, and how that is reached.
struct ParsedBench : cli::ParsedRun {
    BenchCommand own;
};

/// Errc: invalid_input
Result<ParsedBench> parse_bench(cli::Words words);

const cli::FlagTable<ParsedBench>& bench_flags();
std::string bench_help();

}  // namespace dtrun::lab
