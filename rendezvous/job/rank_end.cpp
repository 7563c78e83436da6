#include "rendezvous/job/rank_end.h"

#include <fmt/format.h>
#include <csignal>
#include <utility>

namespace dtrun {

std::string end_text(const Exited& exited) {
    if (exited.sent_signal != 0)
        return fmt::format("rank {} was ended by the agent of its host", exited.rank);
    return exited.signal != 0
               ? fmt::format("rank {} was ended by signal {}", exited.rank, exited.signal)
               : fmt::format("rank {} exited with code {}", exited.rank, exited.code);
}

Membership::RankEnd rank_end(const Exited& exited, std::string who) {
    const bool is_well = exited.code == 0 && exited.signal == 0 && exited.mpi != MpiUse::aborted;
    // Signals that end a program from outside.
    const bool was_ended = exited.signal == SIGKILL || exited.signal == SIGTERM ||
                           exited.signal == SIGINT || exited.signal == SIGHUP;
    return {is_well, exited.out_of_memory || !was_ended, std::move(who), exited.was_none(),
            exited.sent_signal != 0};
}

}  // namespace dtrun
