#pragma once

#include "base/numbered.h"

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::inspect {

/// What hosts have to say to the user while a job runs. Many say the same in the same moment, as where all lack something: that
/// becomes one line, with all of them and their ranks in it. What is the same but for the host's name and a rank's number is
/// alike. Pure: notes in, lines out.
class HostNotes {
public:
    /// How long a note waits for others like it.
    static constexpr std::chrono::seconds kPatience{1};

    /// \param note  "n1: …", or without the host's name
    /// \return whether it is the first one that waits
    bool add(HostId host, const std::string& name, std::string note);
    /// What has come, in the order in which it came first.
    std::vector<std::string> take();

private:
    struct Alike {
        std::string first;  ///< note, as it came
        std::string text;   ///< of all of them: without a name, and with "rank …"
        std::map<HostId, std::string> hosts{};
        std::set<Rank> ranks{};
    };
    std::vector<Alike> notes_;
    std::map<std::string, std::size_t> places_;  ///< in them, by text
};

}  // namespace dtrun::inspect
