#pragma once

#include "collectives/backends/tcp/handshake.h"
#include "collectives/backends/tcp/socket.h"

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::collectives::over_tcp {

/// A connection whose other end has proved to be a rank of the group.
struct Admitted {
    Socket socket{};
    std::optional<Sealing> sealing{};  ///< if it is encrypted
};

/// Where the peers of a group come in. Whoever comes has to prove himself at once; who has done that stays here
/// until he is asked for, since a peer may come before this rank knows that it needs it.
///
/// Thread: one at a time. Nothing waits.
class PeerListener {
public:
    /// \param size  of the group, whose ranks may all come at once
    static Result<std::unique_ptr<PeerListener>> open(const std::string& ip, std::uint32_t size);

    sockaddr_storage address() const { return listener_.local_address(); }
    /// Lets in who has come, and hears what they say.
    /// \param rank  this one
    void advance(std::uint32_t rank, const Terms& terms);
    /// The connection of this kind that `peer` has asked for, if it has come.
    std::optional<Admitted> take(ConnectionKind kind, std::uint32_t peer);
    /// Adds what advance() waits for, once.
    void add_to(std::vector<pollfd>& waits) const;
    /// Somebody is there for whom this process has no descriptor, and nothing tells when it has one.
    bool is_full() const { return full_; }

private:
    /// Of whom nobody knows yet who he is.
    struct Stranger {
        Socket socket;
        std::string from;                     ///< his address, or his network
        std::optional<RankHandshake> side{};  ///< once it is known what the ranks share
    };
    using Strangers = std::list<Stranger>;  ///< in the order in which they came

    PeerListener(Socket listener, std::uint32_t size);
    bool let_some_in();
    void hear(std::uint32_t rank, const Terms& terms);
    bool turn_one_away();
    Strangers::iterator forget(Strangers::iterator stranger);

    Socket listener_;
    const std::size_t strangers_max_;
    bool full_ = false;  ///< this process has no descriptor left for whoever is next
    Strangers strangers_;
    std::map<std::string, std::size_t> strangers_from_;
    std::map<std::pair<ConnectionKind, std::uint32_t>, Admitted> admitted_;
};

}  // namespace dtrun::collectives::over_tcp
