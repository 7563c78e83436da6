#include "launcher/inspect/stall_log.h"

#include <chrono>
#include <set>
#include <utility>

namespace dtrun::inspect {
namespace {

/// Until the hosts of all ranks that wait have said so.
constexpr std::chrono::milliseconds kTogether{1'500};

}  // namespace

std::vector<StallLog::News> StallLog::look(std::vector<LongWait> waits, Deadline now) {
    std::vector<News> news;
    std::set<std::string> still;
    for (LongWait& wait : waits) {
        still.insert(wait.what);
        Open& open = open_.try_emplace(wait.what, Open{.wait = {}, .seen = now}).first->second;
        open.wait = std::move(wait);
        if (open.told || now - open.seen < kTogether) continue;
        open.told = true;
        news.push_back({open.wait, false});
    }
    std::erase_if(open_, [&](auto& entry) {
        if (still.contains(entry.first)) return false;
        if (entry.second.told) news.push_back({std::move(entry.second.wait), true});
        return true;
    });
    return news;
}

}  // namespace dtrun::inspect
