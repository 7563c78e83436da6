#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/router.h"
#include "worker/ranks/input_feed.h"
#include "worker/ranks/output_pump.h"
#include "worker/ranks/rank_runner.h"
#include "worker/ranks/rank_terminal.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace dtrun::agent {

/// Standard input, output and error of the ranks of a host.
///
/// Thread: the executor's. Lifetime: the link outlives it.
class RankStreams {
public:
    /// \param ended  called when an output stream has reached its end and everything of it was sent
    /// \param router  brings what the head says
    RankStreams(asio::any_io_executor executor, Link& link, Router<>& router,
                std::uint32_t window_bytes, std::function<void()> ended);

    void add(ranks::RankRunner::Start& start);
    void rank_ended(SlotIndex place) { feeds_.erase(place); }
    /// The user's terminal, and so that of a rank, has another size.
    void resize(TerminalSize size);
    void hurry() { pump_.hurry(); }
    bool all_ended() const { return pump_.all_ended(); }
    void close();  ///< nobody is to be told of anything any more

private:
    void input(Input input);
    void add_terminal(ranks::RankRunner::Start& start);

    asio::any_io_executor executor_;
    Link& link_;
    bool closed_ = false;  // before the feeds, which ask for it when they go
    ranks::OutputPump pump_;
    std::map<SlotIndex, std::unique_ptr<ranks::InputFeed>> feeds_;
    std::map<SlotIndex, std::shared_ptr<ranks::TerminalCopier>> terminals_;
};

}  // namespace dtrun::agent
