#pragma once

#include "collectives/tcp/directory.h"
#include "collectives/tcp/socket.h"

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::collectives::over_tcp {

/// The first words of a connection, from the rank that asks for it.
struct Greeting {
    static constexpr std::array<char, 8> kMagic{'d', 't', 'r', 'u', 'n', 'c', 'c', '1'};

    std::array<char, 8> magic = kMagic;
    std::uint32_t kind = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t zero = 0;
    Sha256 proof{};
};
static_assert(sizeof(Greeting) == 56, "what is on the wire has no gaps");

/// Where the peers of a group come in. A connection stays here until its rank is asked for, since a peer may
/// come before this rank knows that it needs it.
///
/// Thread: one at a time. Nothing waits.
class Door {
public:
    /// \param size  of the group, whose ranks may all come at once
    static Result<std::unique_ptr<Door>> open(const std::string& ip, std::uint32_t size);

    sockaddr_storage address() const { return listener_.local_address(); }
    /// Lets in who has come, and hears what they say.
    void advance();
    /// The connection of this kind that `peer` has asked for; none if it has not come. Whoever cannot prove
    /// to be that rank is turned away.
    Socket take(const Directory& directory, Kind kind, std::uint32_t peer);
    /// Adds what advance() waits for.
    void add_to(std::vector<pollfd>& waits) const;

private:
    struct Caller {
        Socket socket;
        Greeting greeting{};
        std::size_t heard = 0;  ///< bytes of the greeting
    };

    Door(Socket listener, std::size_t callers_max)
        : listener_(std::move(listener)), callers_max_(callers_max) {}
    bool let_one_in();
    void hear();
    bool turn_one_away();

    Socket listener_;
    const std::size_t callers_max_;  ///< of those that say nothing, and of those that have spoken
    bool full_ = false;              ///< this process has no descriptor left for whoever is next
    std::list<Caller> silent_;       ///< have not said everything, in the order in which they came
    std::list<Caller> callers_;
};

}  // namespace dtrun::collectives::over_tcp
