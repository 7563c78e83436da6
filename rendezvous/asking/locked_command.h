#pragma once

#include "base/loop/asio.h"
#include "base/process/ending_signals.h"
#include "base/result.h"
#include "rendezvous/asking/store_client.h"

#include <sys/types.h>
#include <cstdint>
#include <span>
#include <string>

namespace dtrun::asking {

/// A command that runs while we hold a lock. It is ended when the lock is lost, with all of its process group,
/// which is ours in the foreground of a terminal: then it alone is.
///
/// Thread: the executor's, the only one that takes signals. Lifetime: outlives run(), as do the client, which
/// nobody else uses meanwhile, and the words.
class LockedCommand {
public:
    /// \param key    the lock's
    /// \param token  with which we hold it
    LockedCommand(StoreClient& client, const std::string& key, std::uint64_t token,
                  std::span<const std::string> words);

    /// \return its exit code. Errc: not_found, denied, internal (it cannot be executed); closed (the lock was lost,
    /// and it was ended)
    asio::awaitable<Result<int>> run();

private:
    Result<void> start(const EndingSignals& signals);
    asio::awaitable<void> pass_signals_on(EndingSignals& signals);
    asio::awaitable<void> watch_lock();
    asio::awaitable<int> wait_for_end();
    void kill_when_due();

    StoreClient& client_;
    const std::string& key_;
    std::uint64_t token_;
    std::span<const std::string> words_;
    pid_t pid_ = 0;         ///< 0: it has ended
    pid_t receiver_ = 0;    ///< of signals: the process, or less than 0: its group
    bool is_lost_ = false;  ///< the lock is not ours any more
    Deadline kill_at_ = Deadline::max();
    Timer wake_;  ///< cancelled when wait_for_end() has something to look at
};

}  // namespace dtrun::asking
