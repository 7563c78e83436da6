#pragma once

#include "rendezvous/wire/rank_messages.h"
#include "worker/stores/horovod_http.h"
#include "worker/stores/notice_address.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::stores {

/// Where processes under hvd.elastic.run ask for their places: on one host, for as long as each of them lives,
/// through all worlds of the job. Pure: no sockets, no clock.
///
/// A process says once that it can get another place (PUT worker_addresses). When hosts have changed, or a
/// collective has failed, it shuts Horovod down and asks for its place in the next world (GET rank_and_size);
/// its answer is held until that world is certain, as it cannot be taken back. A process that was started for
/// a world which has not begun is held at its very first request. So nobody of a running world waits for the
/// start of a newcomer, and nothing but Horovod's own requests is between the end of one world and the next.
///
/// Who asks is known by the port that was asked, which each process has for itself: the names in requests are
/// those of its current place.
///
/// Thread: one.
class ElasticDesk {
public:
    using Asker = std::uint64_t;
    using Reply = std::function<void(Asker, const HttpAnswer&)>;
    using Tell = std::function<void(const DeskNews&)>;

    /// \param tell  tells the head where a process has come to
    ElasticDesk(Reply reply, Tell tell) : reply_(std::move(reply)), tell_(std::move(tell)) {}

    /// A process is about to be started. \param generation  its first
    void started(SlotIndex place, std::uint64_t generation);
    void ended(SlotIndex place) { processes_.erase(place); }

    /// Takes a request of a process.
    /// \return the request, if it is none for the desk
    std::optional<HttpRequest> ask(SlotIndex place, Asker asker, HttpRequest request);
    /// Nobody waits for that answer any more. Idempotent.
    void forget(Asker asker);

    /// A world begins: processes that have asked for a place are told theirs.
    /// \return first requests of processes that were started for it
    std::vector<std::pair<Asker, HttpRequest>> begin(const Assign& world);

    /// How to tell a process that hosts have changed; nothing while it waits for a place, or cannot be told.
    std::optional<NoticeAddress> notice_for(SlotIndex place) const;

private:
    struct Process {
        std::uint64_t generation = 0;  ///< its world
        bool forming = true;           ///< hvd.init() has not returned in this world
        std::optional<NoticeAddress> notice;
        std::optional<Asker> asker;  ///< of `first`, or of the place in the next world
        std::optional<HttpRequest> first;
    };

    void put_address(SlotIndex place, Process& process, Asker asker, const std::string& body);

    Reply reply_;
    Tell tell_;
    std::uint64_t generation_ = 0;
    std::map<SlotIndex, Process> processes_;
};

}  // namespace dtrun::stores
