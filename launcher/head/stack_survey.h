#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "launcher/head/stacks_text.h"
#include "rendezvous/wire/look_messages.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dtrun::head {

/// The answers of hosts to one Look.
struct Survey {
    FoldedStacks stacks;
    std::uint32_t signalled = 0;
    std::vector<HostId> silent;  ///< hosts that have not answered in time
};

/// Asks all hosts where their ranks are.
///
/// Thread: the loop's. Lifetime: `hosts` outlives it; ask() must have ended before destruction.
class StackSurvey {
public:
    StackSurvey(asio::any_io_executor executor, Hosts& hosts)
        : executor_(std::move(executor)), hosts_(hosts) {}

    /// Returns when all connected hosts have answered, or some time after `look.limit_ms`.
    /// \param look  its number is set here
    asio::awaitable<Survey> ask(Look look);

    void answered(HostId host, Stacks stacks);
    void host_gone(HostId host);

private:
    struct Question {
        explicit Question(const asio::any_io_executor& executor) : over(executor) {}
        Survey survey{};
        std::set<HostId> missing{};
        Timer over;
    };

    asio::any_io_executor executor_;
    Hosts& hosts_;
    std::map<std::uint32_t, Question*> questions_;
    std::uint32_t last_number_ = 0;
};

}  // namespace dtrun::head
