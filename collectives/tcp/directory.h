#pragma once

#include "base/crypto.h"
#include "base/result.h"
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

/// What a connection is for. Each pair of ranks has at most one of each kind.
enum class Kind : std::uint32_t {
    streams = 1,   ///< of a collective operation: both ends are in the same call
    messages = 2,  ///< of start(): matched by number, as many under way as one likes
};

/// Where the ranks of a group listen, and what they prove to each other that they know.
///
/// Each rank puts its address and a random number, the nonce, into the job's store, which only ranks of the
/// job can read. Two ranks whose nonces are known to each other are authenticated by an HMAC over both of
/// them; whoever else reaches the port is turned away.
///
/// Thread: one at a time.
class Directory {
public:
    explicit Directory(const GroupSpec& spec) : spec_(spec), cards_(spec.size) {}

    /// Lets the others know where this rank listens.
    Result<void> publish(const sockaddr_storage& address);
    /// Tells the others why this rank will not come.
    static void refuse(const GroupSpec& spec, const std::string& why);
    /// Waits for the cards of `peers`. Errc: timed_out (names who has not come), closed, cancelled (once
    /// `ended`), invalid_input (a peer told why it cannot come, or uses the other IP)
    Result<void> fetch(std::span<const std::uint32_t> peers, const std::atomic<bool>& ended);
    /// Whether it makes sense to wait on for peers. Errc: closed (the job or its membership is over), cancelled
    Result<void> still_wanted() const;
    /// From now on peers may come as late as they like.
    void wait_forever();
    std::chrono::milliseconds timeout() const { return spec_.timeout; }

    /// Of a rank that was fetched.
    const sockaddr_storage& address(std::uint32_t peer) const { return cards_[peer]->address; }
    bool knows(std::uint32_t peer) const { return cards_[peer].has_value(); }
    /// What `from` proves to `to` with a connection of this kind, which `from` has asked for or answered.
    /// \param word  "asks" or "answers"
    Sha256 proof(std::string_view word, Kind kind, std::uint32_t from, std::uint32_t to) const;

    std::uint32_t rank() const { return spec_.rank; }
    std::uint32_t size() const { return spec_.size; }
    /// The rank of the job, for messages to users.
    std::uint32_t name_of(std::uint32_t peer) const;
    KeyStore& store() const { return *spec_.store; }
    /// A key of this group in the store.
    std::string key(std::string_view name) const;

private:
    struct Card {
        sockaddr_storage address{};
        std::string nonce;
    };

    Error not_come(const std::vector<std::string>& keys, std::span<const std::uint32_t> peers);
    Result<Card> read(std::uint32_t peer, const std::string& value) const;

    GroupSpec spec_;
    std::vector<std::optional<Card>> cards_;
};

}  // namespace dtrun::collectives::over_tcp
