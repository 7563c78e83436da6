#include "lab/rank/run_program.h"

#include "base/process/command_output.h"

namespace dtrun::lab::rank {

std::optional<std::string> output_of(const std::vector<std::string>& words,
                                     std::chrono::milliseconds limit) {
    auto ended = command_output(words, Captured::out_alone, limit);
    if (!ended || ended->status != 0) return std::nullopt;
    return std::move(ended->text);
}

}  // namespace dtrun::lab::rank
