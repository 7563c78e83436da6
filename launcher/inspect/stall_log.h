#pragma once

#include "launcher/inspect/deadlock_detector.h"

#include <map>
#include <string>
#include <vector>

namespace dtrun::inspect {

/// Tells once of each thing for which ranks wait too long, and once more when they do not any more. Pure: no
/// sockets, no clock.
class StallLog {
public:
    struct News {
        LongWait wait;
        bool over = false;
    };
    /// \param waits  of this moment
    std::vector<News> look(std::vector<LongWait> waits, Deadline now);

private:
    struct Open {
        LongWait wait{};
        Deadline seen{};  ///< for the first time
        bool told = false;
    };
    std::map<std::string, Open> open_;  ///< by what is waited for
};

}  // namespace dtrun::inspect
