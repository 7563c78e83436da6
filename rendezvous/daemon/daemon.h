#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "rendezvous/daemon/job_table.h"
#include "rendezvous/daemon/state_db.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/links/link.h"
#include "rendezvous/links/server.h"
#include "rendezvous/wire/heartbeat.h"

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dtrun {

struct DaemonOptions {
    Secret secret;
    bool encrypt = false;
    std::chrono::milliseconds heartbeat_timeout{kHeartbeatTimeout};
    std::string state_directory;  ///< empty: nothing is kept
    /// How long a store is kept that nobody is connected to; nothing: until it is dropped.
    std::optional<std::chrono::milliseconds> keep_unused;
    /// Of the stores of all jobs together.
    std::uint64_t store_bytes_max = UINT64_MAX;
};

/// The rendezvous server for many jobs, alone: `dtrun serve`.
///
/// With a state directory, frames are held until the changes they report are on disk: one commit
/// for everything that arrived in one turn of the loop, or while the disk was busy. Heartbeats are
/// not held. A peer is not read while many bytes are held for it, or while the disk is behind.
///
/// Thread: the executor's. Lifetime: the owner awaits stop() before destruction, unless it has neither listened
/// nor started.
class Daemon final : private Outbox {
public:
    Daemon(asio::any_io_executor executor, DaemonOptions options);

    /// Opens the state and goes on with its jobs. Errc: those of StateDb::open()
    Result<void> restore();
    /// As Server::listen() and Server::adopt(). One that fails leaves nothing running.
    Result<std::uint16_t> listen(const std::vector<std::string>& addresses, std::uint16_t port);
    Result<std::uint16_t> adopt(int fd);
    /// Sends heartbeats from now on, and misses those of others; after listen() or adopt().
    void start();
    /// Serves a connection that was accepted elsewhere.
    void serve(tcp::socket socket) { server_->meet(std::move(socket)); }

    /// Returns when no job and no connection is left, or after stop().
    asio::awaitable<void> idle();
    /// Tells all connections, and ends; jobs kept on disk go on when a daemon is started again.
    /// \param why  of the end of the others
    /// \return false: the disk of the state is full or does not answer, and changes that nobody was told of are lost
    asio::awaitable<bool> stop(std::string why = "dtrun serve was stopped");

    /// What `dtrun status` shows, as JSON. \param job_name  of one job; empty: of all
    std::string status(const std::string& job_name) const;

private:
    /// A frame to be sent once all batches up to `number` are on disk.
    struct Held {
        std::uint64_t number = 0;
        FrameType type{};
        Bytes payload;
        SharedBytes rest;  ///< sent after the payload; may be null

        std::size_t bytes() const { return payload.size() + (rest ? rest->size() : 0); }
    };
    struct Peer final : Backpressure {
        Peer(Connection connection, const JobId& job_, Daemon& daemon_)
            : daemon(daemon_), link(std::move(connection)), job(job_) {}
        /// Whether too many bytes are held for this peer or wait for the disk (its link has its own
        /// queue).
        bool is_full() const override;
        asio::awaitable<void> room() override;

        Daemon& daemon;
        std::string remote, local;
        Link link;
        JobId job;
        bool entered = false;
        bool is_member = false;
        bool is_leaving = false;  ///< its job is over: it is sent the rest, and not heard any more
        bool is_stopped = false;  ///< its user has stopped it (Ctrl-Z): silence is no loss
        std::deque<Held> held;
        std::size_t held_bytes = 0;
    };

    void to_peer(PeerId peer, FrameType type, std::string_view payload) override;
    void tell_peer(PeerId peer, FrameType type, std::string_view payload) override;
    void share_with_peer(PeerId peer, FrameType type, std::string_view payload,
                         const SharedBytes& rest) override;
    void to_root(FrameType type, std::string_view payload) override;
    void hold(PeerId peer, Held frame);
    void release();
    asio::awaitable<void> release_when_durable();
    void send(Peer& peer, FrameType type, std::string_view payload,
              const SharedBytes& rest = nullptr);

    void admit(const JobId& job, Connection connection);
    asio::awaitable<void> run_peer(PeerId id);
    Result<void> on_frame(PeerId id, Peer& peer, const FrameView& frame);
    Result<void> first_frame(PeerId id, Peer& peer, const FrameView& frame);
    Result<void> on_signal(Peer& peer, std::string_view payload);
    ServedJob& job_for(const JobId& id, const std::string& name);
    ServedJob::Options job_options(const std::string& name);
    std::optional<StoreReply> refusal(Op op, std::size_t bytes);
    void count_request(std::string_view payload);
    void changed(const JobId& job);
    void save_touched();
    static asio::awaitable<void> flush_peer(std::shared_ptr<Peer> peer);
    static asio::awaitable<void> let_go(std::shared_ptr<Peer> peer);
    void settle();
    void give_memory_back();
    void flush();
    void retire(const JobId& job);
    void arm_timer();
    void look_for_pause();
    void beat();
    void look_for_end();

    asio::any_io_executor executor_;
    DaemonOptions options_;
    /// An eventfd, by which the disk's thread says that more is durable. It outlives `db_`.
    asio::posix::stream_descriptor durable_;
    std::unique_ptr<StateDb> db_;
    std::unique_ptr<Server> server_;
    JobTable jobs_;
    std::map<PeerId, std::shared_ptr<Peer>> peers_;  ///< shared with flush_peer()
    PeerId last_peer_ = 0;
    std::set<PeerId> holding_;  ///< peers with held frames
    bool settle_soon_ = false;
    std::vector<JobId> touched_;     ///< jobs with events, for settle()
    std::uint64_t store_bytes_ = 0;  ///< of all jobs, at the last settle() and taken since then
    // Since it was started: requests to stores, all and by operation, and bytes of frames.
    std::uint64_t requests_ = 0;
    std::array<std::uint64_t, UINT8_MAX + 1> operations_{};
    std::uint64_t received_bytes_ = 0, sent_bytes_ = 0;
    std::uint64_t most_bytes_ = 0;  ///< the most that it was since memory was given back
    Deadline give_back_again_{};    ///< when memory may be given back again
    bool stopping_ = false;
    Deadline started_ = Clock::now();
    FailureDetector detector_;
    Deadline ran_at_ = Clock::now();  ///< when this process is known to have run
    Deadline next_beat_{};            ///< when it has to run again
    Timer timer_;                     ///< expires at the jobs' next deadline
    Timer released_;                  ///< cancelled to wake coroutines when held frames were sent
    Timer idle_;                      ///< cancelled to wake idle()
    TaskGroup heart_;
    TaskGroup tasks_;  ///< one for each connection
};

}  // namespace dtrun
