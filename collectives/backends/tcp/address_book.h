#pragma once

#include "base/result.h"
#include "collectives/backends/tcp/handshake.h"
#include "collectives/group.h"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::collectives::over_tcp {

/// Where the ranks of a group listen, and the secret by which they know each other.
///
/// Each rank puts its address into the job's store, which only ranks of the job can read, and rank 0 a secret of
/// the group's besides. Whoever reaches a port and does not know that is turned away.
///
/// Thread: one at a time.
class AddressBook {
public:
    explicit AddressBook(const GroupSpec& spec);

    /// Lets the others know where this rank listens.
    Result<void> publish(const sockaddr_storage& address);
    /// Tells the others why this rank will not come.
    static void refuse(const GroupSpec& spec, const std::string& why);
    /// Waits for the cards of `peers`, in ascending order, and for the secret. Errc: timed_out (names who has not come), closed, cancelled (once
    /// `ended`), invalid_input (a peer told why it cannot come, or uses the other IP)
    Result<void> fetch(std::span<const std::uint32_t> peers, const std::atomic<bool>& ended);
    /// Whether it makes sense to wait on for peers. Errc: closed (the job or its membership is over), cancelled
    Result<void> still_wanted() const;
    /// From now on peers may come as late as they like.
    void wait_forever();
    std::chrono::milliseconds timeout() const { return spec_.timeout; }

    /// Of a rank that was fetched.
    const sockaddr_storage& address(std::uint32_t peer) const { return *addresses_[peer]; }
    bool knows(std::uint32_t peer) const { return addresses_[peer].has_value(); }
    /// Once anybody was fetched.
    const Terms& terms() const { return terms_; }

    std::uint32_t rank() const { return spec_.rank; }
    std::uint32_t size() const { return spec_.size; }
    /// The rank of the job, for messages to users.
    std::uint32_t name_of(std::uint32_t peer) const;
    KeyStore& store() const { return *spec_.store; }
    /// A key of this group in the store.
    std::string key(std::string_view name) const;

private:
    Error not_come(const std::vector<std::string>& keys, std::span<const std::uint32_t> peers);
    Result<void> read(std::uint32_t peer, std::string_view card);

    GroupSpec spec_;
    Terms terms_;
    std::vector<std::optional<sockaddr_storage>> addresses_;
};

}  // namespace dtrun::collectives::over_tcp
