#pragma once

#include "rendezvous/exchange/rank_rounds.h"
#include "rendezvous/wire/exchange_messages.h"
#include "worker/client/client_membership.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/server_connection.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::embedded {

/// Fences at which a rank waits. It counts how often it has been at each name in this generation,
/// so that ranks meet round by round; a frame is kept while its fence is under way, to be sent again
/// over another connection. So is one that gives a fence up, until it is answered: others may wait
/// there that would never hear of it.
///
/// Thread: any may meet(); the rest is called with the connection's lock held, which guards
/// everything.
class Fences {
public:
    /// \param group_client  by which a daemon that has not numbered the ranks knows this process;
    ///                      otherwise nothing
    Fences(ServerConnection& connection, const ClientMembership& membership,
           std::optional<std::uint64_t> group_client)
        : connection_(connection), membership_(membership), group_client_(group_client) {}

    /// \param bytes  std::nullopt for a barrier
    /// \return what ranks brought, by rank; those that brought nothing are missing
    Outcome<std::vector<FenceEntry>> meet(std::string_view name,
                                          std::optional<std::string_view> bytes,
                                          std::int64_t timeout_ms, std::function<bool()> give_up);

    Result<void> on_fenced(std::string_view payload);
    /// A generation has begun: rounds are counted anew, and who waits at an earlier one's fences is
    /// told that it is over.
    void begin(std::uint64_t generation);
    /// Adds the frames of all that are under way.
    void add_unfinished(std::vector<Bytes>& frames) const;

private:
    struct Call : ServerConnection::Waiter {
        Fence fence;
        std::optional<GroupFence> of_group;  ///< the same, if there is a group_client_
        Bytes frame;
        Fenced result;
    };

    Outcome<std::vector<FenceEntry>> result_of(Call& call) const;
    static Bytes give_up_frame(const Call& call, std::string why);

    ServerConnection& connection_;
    const ClientMembership& membership_;
    const std::optional<std::uint64_t> group_client_;
    std::vector<Call*> calls_;
    std::map<std::pair<std::string, std::uint64_t>, Bytes> given_up_;  ///< frames by name and round
    RankRounds rounds_;
};

}  // namespace dtrun::embedded
