#pragma once

#include "base/loop/asio.h"
#include "launcher/control/control_client.h"
#include "launcher/watch/top_text.h"

#include <chrono>

namespace dtrun::commands {

/// How `dtrun top` shows a job.
struct TopCommand {
    bool json = false;
    bool once = false;
    watch::TopOrder order = watch::TopOrder::trouble;
    std::chrono::milliseconds interval{2'000};
};

/// Shows a job: on a terminal again and again until it ends, Ctrl-C or 'q', else once. \return the exit status
int show_top(asio::io_context& io, control::JobSocket job, const TopCommand& command);

}  // namespace dtrun::commands
