#pragma once

#include "base/result.h"
#include "rendezvous/asking/store_client.h"
#include "rendezvous/asking/store_order.h"

#include <functional>
#include <string_view>

namespace dtrun::asking {

// What `dtrun store` exits with besides 0.
inline constexpr int kStoreNotThere = 1;
inline constexpr int kStoreOtherType = 2;
inline constexpr int kStoreRefused = 3;
inline constexpr int kStoreFull = 4;
inline constexpr int kStoreNotExecutable = 126;  ///< the command of `lock`
inline constexpr int kStoreProgramMissing = 127;
inline constexpr int kStoreReaderGone = 141;  ///< of standard output
inline constexpr int kStoreUsage = 200;
inline constexpr int kStoreUnreachable = 201;
inline constexpr int kStoreDenied = 202;
inline constexpr int kStoreLockLost = 204;
inline constexpr int kStoreLockBusy = 205;
inline constexpr int kStoreInternal = 210;

/// Writes to standard output. \return the exit code: 0, or that of what it has not taken
int put(std::string_view text);

/// Tells that a daemon has no such job. \return the exit code
int no_job(std::string_view job);

/// What a command does with words of its own.
struct StoreParts {
    std::function<Result<StoreServer>()> find_server;
    /// What is done with the daemon's answer to Verb::status, which only who has this asks for.
    std::function<Result<int>(std::string_view json)> show_status{};
};

/// Does what is ordered, from the value on standard input to the end. \return the process's exit status
int carry_out(const StoreOrder& order, const StoreParts& parts);

}  // namespace dtrun::asking
