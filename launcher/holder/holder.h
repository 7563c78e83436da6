#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "launcher/control/caller_server.h"
#include "launcher/holder/held_host.h"
#include "launcher/transport/agent_copies.h"
#include "launcher/transport/login_gate.h"
#include "rendezvous/wire/warm_messages.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dtrun::holder {

/// Keeps log-ins, and gives jobs of the same user agents in them, over a Unix socket.
///
/// Thread: the executor's. Lifetime: run() has ended before it is destroyed, unless the process ends.
class Holder final : public HeldEvents, private control::CallerEvents {
public:
    struct Host {
        std::string name, key, route;  ///< how jobs know it, and what leads to it; empty: nothing
        HeldHost::Open open;
        std::function<std::string()> seen_as;
    };
    struct Options {
        transport::Patience patience{};
        std::chrono::milliseconds keep{};
        unsigned log_ins_at_once = transport::LoginGate::kLoginsMax;
    };
    Holder(asio::any_io_executor executor, std::vector<Host> hosts, const Options& options);

    /// Listens at a new name in the folder. Errc: denied (it is not ours alone), invalid_input (its name is too long),
    /// internal
    Result<void> listen(const std::string& folder);
    /// Until nothing is held any more.
    /// \param tried  called when the first log-in to each host has ended, of those that are awaited the last one
    asio::awaitable<void> run(std::function<void()> tried);
    std::vector<HeldStatus> hosts() const;
    /// Leaves all hosts, those with jobs when these have ended.
    void release_all();
    /// Leaves all hosts at once, with all that jobs run there.
    void end(const std::string& why);

    void said(const WarmStream& said) override;
    void changed(const std::string& key) override;

private:
    using CallerId = control::CallerId;
    struct Caller {
        CallerId id = 0;
        HeldHost* host = nullptr;  ///< of which it wants an agent, or has one
        std::uint32_t stream = 0;  ///< 0: it has none
        bool is_answered = false;
        /// What its agent has written to standard error before it is known to run.
        std::vector<Bytes> early{};
        std::vector<HeldHost*> leaving{};  ///< that it waits for
    };
    struct Held {
        std::unique_ptr<HeldHost> host;
        std::set<CallerId> callers{};  ///< that want an agent there, or have one
    };

    Result<void> heard(CallerId caller, const FrameView& frame) override;
    void left(CallerId caller) override;
    asio::awaitable<void> watch();
    asio::awaitable<void> wait_for_agent(std::uint32_t stream);
    asio::awaitable<void> wait_for_end(HeldHost& host);
    Result<void> pass_input(Caller& caller, const FrameView& frame);
    void take(Caller& caller, const WarmRequest& request);
    void refuse(Caller& caller);
    void begin(Caller& caller);
    void use(Caller& caller, HeldHost* host);
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
    void say_alive();

    asio::any_io_executor executor_;
    Options options_;
    transport::AgentCopies copies_;
    transport::LoginGate gate_;
    std::vector<HeldHost*> hosts_;                 ///< in the order in which they were named
    std::map<std::string, Held> held_;             ///< the same, by key
    std::map<CallerId, Caller> callers_;           ///< that have asked
    std::map<std::uint32_t, CallerId> caller_of_;  ///< by stream
    std::uint32_t last_stream_ = 0;
    Timer changed_;  ///< cancelled when watch() is to look again
    Deadline alive_said_{};
    bool tried_ = false;
    bool nothing_held_ = false;  ///< no log-in was successful
    TaskGroup limits_;           ///< which end when their time has come, or nobody waits any more
    TaskGroup tasks_;
    control::CallerServer server_;
};

}  // namespace dtrun::holder
