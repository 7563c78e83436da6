#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/look_messages.h"

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dtrun::inspect {

/// Stacks of a job's processes, of which those at the same place are kept once: a job of thousands of ranks is at
/// few places.
class FoldedStacks {
public:
    void add(ProcessStacks process);

    /// How much of it.
    enum class Form {
        all,    ///< all threads of all processes
        brief,  ///< the main thread of each rank, and of a deep stack both ends
    };

    /// For a person, before text(): what to do where Python says nothing, which ranks are in a collective operation, and
    /// which are not.
    /// \param ranks  all of the job: why nothing may be known of one, or nothing
    std::vector<std::string> summary(std::map<Rank, std::string> ranks = {}) const;

    /// For a person: processes of which one tool says the same are one block, under the ranks that are there, the
    /// largest block first. Python comes before native code, ranks before what they have started.
    /// \param host_of    the name of a rank's host
    /// \param lines_max  what is more is left out, and counted
    /// \return lines without '\n', and without what could give orders to a terminal
    std::vector<std::string> text(const std::function<std::string(Rank)>& host_of,
                                  std::size_t lines_max, Form form = Form::all) const;

private:
    /// Processes that are at the same place.
    struct Block {
        ProcessStacks first;
        std::set<Rank> ranks{};
        std::size_t processes = 0;
    };
    using HostOf = std::function<std::string(Rank)>;

    static std::string who(const Block& block, const HostOf& host_of);
    static std::string title(const Block& block, const HostOf& host_of);
    std::vector<const Block*> in_order(Form form) const;
    std::string advice() const;

    std::vector<Block> blocks_;
    std::size_t left_out_ = 0;  ///< processes that are at still other places
};

}  // namespace dtrun::inspect
