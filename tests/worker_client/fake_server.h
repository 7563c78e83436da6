#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Without the headers of rendezvous/, so that it goes together with <dtrun/worker.h>.

namespace dtrun::testing {

/// In a thread of the test: what an agent is to its ranks, or a daemon to its members. Requests and
/// fences are dealt with by rendezvous/'s Hub; every other frame that comes is written down.
class FakeServer {
public:
    /// Serves `ranks` ranks over an abstract Unix socket.
    static FakeServer agent(std::uint32_t ranks);
    /// The same in an elastic job: ranks that want it get a board, and can rejoin.
    static FakeServer elastic_agent(std::uint32_t ranks);
    /// Serves a job of a daemon over TCP; a generation begins when `ranks` members have entered.
    /// \param port  0: any
    static FakeServer daemon(std::uint32_t ranks, const std::string& secret,
                             const std::string& job_name = "test", std::uint16_t port = 0);
    FakeServer(FakeServer&&) noexcept;
    ~FakeServer();

    /// Value of DTRUN_SOCKET or DTRUN_SERVE.
    const std::string& address() const;

    /// To all ranks.
    void announce(std::uint8_t kind, std::uint64_t generation, std::uint32_t grace_ms,
                  const std::string& why);
    /// Writes the board, and then tells all ranks. \param reason  a ChangeReason
    void change(std::uint64_t next, std::uint8_t reason, std::uint64_t stop_step = 0);
    /// A generation begins, in which all who have asked are ranks in the reverse order.
    void begin(std::uint64_t generation);
    /// Tells members that a generation is coming, which begins when all have asked for their places.
    void notify(std::uint64_t generation);
    void stop_job(std::uint32_t grace_ms, const std::string& why);
    /// As a daemon that was given another heartbeat timeout: says it in every heartbeat, and now.
    void say_timeout(std::uint32_t timeout_ms);
    /// A rank has ended.
    void fail_fences(const std::string& why);

    void drop_connections();
    /// Keeps connections, but neither reads nor writes.
    void freeze();
    void thaw();

    /// What has come: "hello 0", "progress 0 7", "enter 1", "unfence name", "leave finished", ….
    std::vector<std::string> log() const;
    /// Whether that line comes within five seconds, or has come.
    bool saw(const std::string& line) const;

private:
    class State;
    explicit FakeServer(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace dtrun::testing
