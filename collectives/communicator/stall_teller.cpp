#include "collectives/communicator/stall_teller.h"

#include <algorithm>
#include <utility>

namespace dtrun::collectives {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTellAgainWithin{3'600'000};

}  // namespace

bool StallTeller::is_due(milliseconds waited) const {
    const milliseconds limit = limit_;
    return limit.count() > 0 && waited >= std::max(limit, next_);
}

void StallTeller::tell(const std::string& what, const std::string& line, milliseconds waited) {
    look_again(waited);
    if (!line.empty() && options_.tell_user) options_.tell_user(line);
    // Who is missing may have changed; the first report holds as long as the operation waits.
    if (!told_.empty() || !options_.report) return;
    told_ = what;
    options_.report(what, waited);
}

void StallTeller::look_again(milliseconds waited) {
    next_ = waited + std::min(waited, kTellAgainWithin);
}

void StallTeller::all_there(milliseconds waited) {
    end();
    look_again(waited);
}

void StallTeller::end() {
    next_ = {};
    if (const std::string what = std::exchange(told_, {}); !what.empty())
        options_.report(what, std::nullopt);
}

}  // namespace dtrun::collectives
