#pragma once

#include "worker/stores/horovod_http.h"
#include "worker/stores/notice_address.h"
#include "worker/stores/rejoin_queue.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace dtrun::stores {

/// What processes under hvd.elastic.run say to the RejoinQueue of their host. Pure: no sockets, no clock.
///
/// PUT worker_addresses says that a process can get another place; GET rank_and_size, after it has shut
/// Horovod down, asks for that. The first request of all is held if its world has not begun. So nothing but
/// Horovod's own requests is between the end of one world and the next.
///
/// Who asks is known by the port that was asked, which each process has for itself: the names in requests are
/// those of its current place.
///
/// Thread: one. Lifetime: `rejoins` outlives it.
class HorovodElastic {
public:
    using Asker = std::uint64_t;
    using Reply = std::function<void(Asker, const HttpAnswer&)>;
    using Pass = std::function<void(Asker, HttpRequest)>;

    /// \param pass  takes a process's first request when its world has begun
    HorovodElastic(RejoinQueue& rejoins, Reply reply, Pass pass)
        : rejoins_(rejoins), reply_(std::move(reply)), pass_(std::move(pass)) {}

    /// Takes a request of a process.
    /// \return the request, if it is none about another place
    std::optional<HttpRequest> ask(SlotIndex place, Asker asker, HttpRequest request);
    /// Nobody waits for that answer any more. Idempotent.
    void forget(Asker asker);
    void ended(SlotIndex place) { notices_.erase(place); }

    /// How to tell a process that hosts have changed; nothing while it waits for a place, or cannot be told.
    std::optional<NoticeAddress> notice_for(SlotIndex place) const;

private:
    void put_address(SlotIndex place, Asker asker, const std::string& body);

    RejoinQueue& rejoins_;
    Reply reply_;
    Pass pass_;
    std::map<SlotIndex, NoticeAddress> notices_;
    std::map<Asker, RejoinQueue::Ticket> tickets_;
};

}  // namespace dtrun::stores
