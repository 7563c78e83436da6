#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "rendezvous/links/link.h"
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
    RankStreams(asio::any_io_executor executor, Link& link, std::uint32_t window_bytes,
                std::function<void()> ended);

    void add(ranks::RankRunner::Start& start);
    /// Bytes for every rank here that reads; none: the end of input.
    void input(std::string bytes);
    void credit(std::uint64_t bytes) { pump_.credit(bytes); }
    void rank_ended(SlotIndex place) { feeds_.erase(place); }
    /// The user's terminal, and so that of a rank, has another size.
    void resize(TerminalSize size);
    void hurry() { pump_.hurry(); }
    bool all_ended() const { return pump_.all_ended(); }
    void close();  ///< nobody is to be told of anything any more

private:
    void add_terminal(ranks::RankRunner::Start& start);

    asio::any_io_executor executor_;
    Link& link_;
    bool closed_ = false;  // before the feeds, which ask for it when they go
    ranks::OutputPump pump_;
    std::map<SlotIndex, std::unique_ptr<ranks::InputFeed>> feeds_;
    std::map<SlotIndex, std::shared_ptr<ranks::TerminalCopier>> terminals_;
};

}  // namespace dtrun::agent
