#pragma once

#include "base/fd.h"
#include "worker/mpi/pmix_library.h"
#include "worker/mpi/pmix_messages.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace dtrun::mpi {

/// What libpmix wants of the program that it serves in, as messages to the agent; and the agent's
/// answers, as calls of libpmix. One for a process: libpmix' callbacks say nothing of whom they mean.
///
/// Thread: libpmix' own for its callbacks, which send messages or, where that would have to wait, put
/// them into a queue; all else the main thread.
class PmixBridge {
public:
    /// \param socket  to the agent
    explicit PmixBridge(int socket);
    PmixBridge(const PmixBridge&) = delete;
    PmixBridge& operator=(const PmixBridge&) = delete;

    pmix::ServerModule& module() { return module_; }
    /// Names the job whose ranks are served; to be called before they are registered with libpmix.
    void begin(std::string nspace, std::uint32_t world_size);

    /// Any thread.
    void send(const Bytes& frame);
    /// Readable when there is something to flush.
    int wake_fd() const { return wake_.get(); }
    /// Sends what is in the queue. Errc: closed, internal
    Result<void> flush();

    void answer(const PmixAnswer& answer);
    void answer(const PmixFound& found);
    /// Asks libpmix for a rank's data; the answer is taken later.
    void want(const PmixLibrary& library, const PmixWant& want);

private:
    struct Callbacks;
    using Done = std::variant<pmix::OpDone, pmix::ModexDone, pmix::LookupDone>;
    struct Pending {
        Done done;
        void* context;
    };

    std::uint64_t wait_for(Done done, void* context);
    Pending take_pending(std::uint64_t id);
    template <class Message>
    void tell(const Message& message);
    bool ours(const pmix::Proc* proc) const;
    bool meet(PmixCollective collective, std::span<const pmix::Proc> procs,
              std::span<const pmix::Info> infos, std::string bytes, Done done, void* context);

    const int socket_;
    pmix::ServerModule module_{};
    std::string nspace_;
    std::uint32_t world_size_ = 0;
    Fd wake_;
    std::mutex mutex_;  ///< for what follows
    std::string outgoing_;
    std::map<std::uint64_t, Pending> pending_;
    std::uint64_t last_id_ = 0;
};

}  // namespace dtrun::mpi
