#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "worker/stores/job_store.h"
#include "worker/stores/key_watches.h"
#include "worker/stores/session_failure.h"
#include "worker/stores/tcp_store_input.h"
#include "worker/stores/tcp_store_output.h"
#include "worker/stores/torch_operation.h"
#include "worker/stores/unconfirmed_requests.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::stores {

/// One client of torch's TCPStore: its bytes in, bytes for it out, and what it asks of a JobStore.
/// No sockets.
///
/// Requests are carried out in their order. Those without a reply may be under way together; behind
/// one with a reply nothing is begun until that is there, except CANCEL_WAIT behind a WAIT.
///
/// Thread: one. Lifetime: `store` outlives it; with the session its waits end.
class TcpStoreSession {
public:
    struct Hooks {
        /// Something came of an answer: there is output, more input is wanted, or it has failed.
        /// May not destroy the session.
        std::function<void()> changed;
        /// See TcpStoreInput.
        std::function<bool()> has_idle_sibling;
        /// This client has published that it is this rank of torch's default group.
        std::function<void(std::uint32_t)> is_rank;
    };

    TcpStoreSession(JobStore& store, Hooks hooks);
    TcpStoreSession(const TcpStoreSession&) = delete;
    TcpStoreSession& operator=(const TcpStoreSession&) = delete;

    /// Where the next bytes belong, while wants_input(). Not to be called again before received().
    std::span<char> room() { return input_.room(); }
    /// \param bytes  so many, at the beginning of room()
    void received(std::size_t bytes);
    bool wants_input() const;

    bool has_output() const { return !output_.empty(); }
    /// All that is to be sent now.
    std::string_view output() const { return output_.bytes(); }
    void sent(std::size_t bytes);
    /// The same, to keep while it is being sent.
    Bytes take_output() { return output_.take(); }
    /// Whether the client reads what it is sent: nothing is done for one that does not.
    void set_writable(bool writable);

    /// The connection is to be closed. invalid_input: because of what the client has sent or asked,
    /// which is worth a warning; closed: the generation is over.
    const std::optional<Error>& failure() const { return failure_.error(); }
    /// Looks again at what only another connection could decide.
    void reconsider();
    bool undecided() const { return input_.undecided(); }

    /// What the client waits for; valid until something else is done here.
    std::optional<TorchWaiting> waiting() const;
    std::uint32_t pid() const { return pid_; }  ///< of the client; 0: not known
    bool has_spoken() const { return input_.has_spoken(); }

private:
    void run();
    void answered();
    bool step();
    bool find_request();
    void execute();
    void ask();
    void take(const StoreReply& reply);
    void finish();
    bool during_wait();
    void tell(Op op);
    void confirmed(const StoreReply& reply, bool was_full);

    JobStore& store_;
    Hooks hooks_;
    SessionFailure failure_;
    TcpStoreInput input_;
    TcpStoreOutput output_;
    StoreQuery store_query_;
    KeyWatches watches_;
    UnconfirmedRequests unconfirmed_;
    /// The request that has a reply, until that is in the output.
    std::unique_ptr<TorchOperation> operation_;
    PendingQuery query_;      ///< its question to the store, if that was asked
    bool may_wait_ = false;   ///< this is answered when something happens, not at once
    Deadline waits_since_{};  ///< if it is
    bool writable_ = true;
    std::uint32_t pid_ = 0;
    std::optional<std::string> waited_for_;  ///< the key of the last request, a WAIT for it alone
};

}  // namespace dtrun::stores
