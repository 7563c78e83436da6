#include "base/process/ending_signals.h"
#include "lab/rank/backends_here.h"
#include "lab/rank/commands.h"
#include "lab/rank/host_facts.h"
#include "lab/record_json.h"

#include <unistd.h>
#include <cstdio>

namespace {

using namespace dtrun::lab::rank;
using dtrun::Result;
using dtrun::lab::ErrorRecord;

constexpr int kFailed = 1;
constexpr int kMisused = 2;

void print_line(const std::string& line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
}

Result<void> run(const RankOptions& options, const RankGroup& group, const Print& print) {
    if (options.command == Command::facts) return run_facts(options, group, print);
    if (options.command == Command::sweep) return run_sweep(options, group, print);
    return run_pairs(options, group, print);
}

int run_as_rank(const RankOptions& options) {
    auto group = RankGroup::join();
    if (!group) {
        print_line(line_of(ErrorRecord{group.error().message}));
        return kFailed;
    }
    const std::uint32_t rank = group->rank();
    const Print print = [rank](const std::string& line) {
        if (rank == 0) print_line(line);
    };
    const auto done = run(options, *group, print);
    if (!done) {
        print(line_of(ErrorRecord{done.error().message}));
        std::fprintf(stderr, "dtrun-bench-rank: rank %u: %s\n", rank, done.error().message.c_str());
    }
    group->leave(done ? "" : done.error().message);
    return done ? 0 : kFailed;
}

}  // namespace

int main(int argc, char** argv) {
    dtrun::hear_signals();  // other launchers start it, too
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    const auto options = parse_options(words);
    if (!options) {
        std::fprintf(stderr, "dtrun-bench-rank: %s\n%s", options.error().message.c_str(), kUsage);
        return kMisused;
    }
    if (options->command == Command::help) {
        std::fputs(kUsage, stdout);
        return 0;
    }
    if (options->command == Command::backends) {
        std::fputs(backends_text().c_str(), stdout);
        return 0;
    }
    if (options->command == Command::version_of) {
        print_line(version_of(options->library));
        ::_exit(0);  // libraries that were only asked are not to end in their own ways
    }
    if (options->command == Command::script) return run_script(options->script);
    if (options->command == Command::train) return run_trainer(options->script);
    return run_as_rank(*options);
}
