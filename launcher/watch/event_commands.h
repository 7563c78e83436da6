#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "launcher/plan/options.h"
#include "launcher/transport/process_channel.h"
#include "launcher/watch/event.h"

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::watch {

/// Names of events of which a person wants to hear who names none.
std::vector<std::string> events_by_default();

/// Runs commands, one after the other in the order of events; each reads its event, as one line of JSON, from
/// its standard input. One that takes too long is killed. The job does not wait for them, but its dtrun does at
/// the end, for some seconds.
///
/// Thread: the loop's. Lifetime: finish() before destruction, unless the process ends.
class EventCommands final : public EventListener {
public:
    EventCommands(asio::any_io_executor executor, std::vector<plan::EventCommand> commands,
                  std::string job);

    void happened(const Event& event) override;
    /// Returns once all have run, or at the deadline; what is left then is killed, or not run.
    asio::awaitable<void> finish(Deadline deadline);
    void hurry();  ///< finish() waits no longer

    static constexpr std::chrono::seconds kRunLimit{30};

private:
    struct Call {
        std::string line;   ///< of the shell
        std::string event;  ///< its name
        std::string input;
    };

    asio::awaitable<void> run_calls();
    asio::awaitable<void> run(Call call);

    asio::any_io_executor executor_;
    std::vector<plan::EventCommand> commands_;
    std::string job_;
    std::deque<Call> calls_;
    std::unique_ptr<transport::Process> process_;
    bool running_ = false;
    bool hurry_ = false;
    std::size_t dropped_ = 0;
    Timer idle_;  ///< cancelled when nothing is left to run
    TaskGroup tasks_;
};

}  // namespace dtrun::watch
