#pragma once

#include "base/result.h"
#include "contracts/variables.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/ranks/rank_process.h"

#include <string>
#include <vector>

namespace dtrun::ranks {

/// The commands of --wrap on one host: by them the programs of ranks are run.
class Wrappers {
public:
    Wrappers() = default;
    /// Finds the program of each, as find_program() does. Errc: not_found, denied
    static Result<Wrappers> find(const std::vector<Wrap>& wraps, const std::string& directory,
                                 const std::string& path);

    /// Every rank has one, so that to find the program is the wrapper's business: it may be in another
    /// root, as with `apptainer exec`.
    bool are_for_all() const;

    /// Puts those of the rank around its command, the first outermost.
    /// \param env  of the rank, for macros
    void apply(RankCommand& command, const RankSlot& slot, const std::string& host,
               const contracts::Environment& env) const;

private:
    struct Wrapper {
        Wrap wrap;
        std::string path;
    };
    std::vector<Wrapper> wrappers_;
};

}  // namespace dtrun::ranks
