#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "launcher/holder/held_host.h"
#include "launcher/transport/agent_starter.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/warm_messages.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::holder {

/// Keeps log-ins, and gives jobs of the same user agents in them, over a Unix socket.
///
/// Thread: the executor's. Lifetime: run() has ended before it is destroyed, unless the process ends.
class Holder final : public HeldEvents {
public:
    struct Host {
        std::string name, key;
        HeldHost::Open open;
        std::function<std::string()> seen_as;
    };
    struct Options {
        std::chrono::milliseconds connect_timeout{};
        std::chrono::milliseconds keep{};
        unsigned log_ins_at_once = 1;
    };
    Holder(asio::any_io_executor executor, std::vector<Host> hosts, const Options& options);
    ~Holder() override;

    /// Listens at a new name in the folder. Errc: denied (it is not ours alone), invalid_input (its name is too long),
    /// internal
    Result<void> listen(const std::string& folder);
    /// Until nothing is held any more.
    /// \param tried  called when the first log-in to each host has ended
    asio::awaitable<void> run(std::function<void()> tried);
    std::vector<HeldStatus> hosts() const;
    /// Leaves all hosts, those with jobs when these have ended.
    void release_all();

    void said(const WarmStream& said) override;
    void changed(const std::string& key) override;

private:
    using CallerId = std::uint64_t;
    struct Caller {
        explicit Caller(Unix::socket socket) : link(std::move(socket)) {}
        Link link;
        bool asked = false;
        HeldHost* host = nullptr;  ///< of which it wants an agent, or has one
        std::uint32_t stream = 0;  ///< 0: it has none
        bool is_answered = false;
        std::vector<Bytes>
            early{};  ///< what its agent has written to standard error before it is known to run
        std::vector<HeldHost*> leaving{};  ///< that it waits for
    };

    asio::awaitable<void> log_in_all(std::size_t& next);
    asio::awaitable<void> watch();
    asio::awaitable<void> accept();
    asio::awaitable<void> serve(CallerId id);
    asio::awaitable<void> wait_for_agent(std::uint32_t stream);
    asio::awaitable<void> wait_for_end(HeldHost& host);
    Result<void> handle(CallerId id, const FrameView& frame);
    void take(Caller& caller, const WarmRequest& request);
    void refuse(Caller& caller);
    void begin(CallerId id, HeldHost& host);
    void keep(Caller& caller, const WarmRequest& request);
    void release(Caller& caller, const WarmRequest& request);
    void release(HeldHost& host);
    bool is_at_end() const;
    void look_at_leaving();
    void leave(HeldHost& host);
    void say(HeldHost& host, std::uint32_t stream, WarmEvent event, std::string_view bytes = {});
    void answer(Caller& caller, WarmAnswer answer);
    HeldHost* find(const std::string& key);
    bool is_over() const;
    void remove_socket() noexcept;

    asio::any_io_executor executor_;
    Options options_;
    transport::AgentCopies copies_;
    std::vector<std::unique_ptr<HeldHost>> hosts_;
    std::string path_;
    Unix::acceptor acceptor_;
    Fd folder_;  ///< locked, so that who cleans /tmp leaves it alone
    std::map<CallerId, std::unique_ptr<Caller>> callers_;
    CallerId last_caller_ = 0;
    std::map<std::uint32_t, CallerId> caller_of_;  ///< by stream
    std::uint32_t last_stream_ = 0;
    Timer changed_;  ///< cancelled when watch() is to look again
    Deadline alive_said_{};
    bool tried_ = false;
    bool nothing_held_ = false;  ///< no log-in was successful
    TaskGroup limits_;           ///< which end when their time has come, or nobody waits any more
    TaskGroup tasks_;
};

}  // namespace dtrun::holder
