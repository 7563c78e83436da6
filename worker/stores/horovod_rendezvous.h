#pragma once

#include "base/clock.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/stores/horovod_http.h"
#include "worker/stores/job_store.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::stores {

/// What Horovod's HTTP store means on one host of a job, out of the job's own store: who is asked
/// what, who is held back, and what is known here already. Pure: no sockets, no clock.
///
/// Horovod's Gloo meets in *scopes* ("global", "local_<host>", "cross_<n>" and others for process
/// sets), and does so again with every hvd.init(). In one round of a scope, rank r of n there does
///
///     PUT rank_<r>;  GET rank_<i> of i < r, once;  PUT <r>;  GET <i> of all others until there;
///     connect to all, a barrier over these connections;  DELETE <r>
///
/// The names are the same in each round, so rounds are told apart here. A rank begins a round with
/// its PUT of rank_<r> if it has got as far as PUT <r> in the round before (if not, a connection
/// was lost and the client tries again). PUT and DELETE of <r> belong to the round in which r is. A
/// GET does not say who asks; it belongs to the highest round of any rank of this host. That is
/// the asker's own: a rank leaves round k's barrier only when every rank has entered it, and who
/// has entered it has had the answers of all its GETs in round k. So when a first rank begins round
/// k+1, nobody of the scope has a GET of round k left to make; and who asks in round k+1 has begun
/// it. For the same reason a rank's keys can be erased everywhere once that rank says DELETE.
///
/// Who is alone in a scope publishes nothing, and Horovod may then give the same names to others:
/// it names the "cross" scopes of a process set after local ranks in the set, but fills them by
/// local ranks in the job. So nothing is kept of who is alone.
///
/// What belongs to no round (the functions of horovod.run(), addresses for elastic jobs) are bytes
/// under a name.
///
/// Thread: one.
class HorovodRendezvous {
public:
    using Asker = std::uint64_t;
    /// Must not call back.
    using Reply = std::function<void(Asker, const HttpAnswer&)>;
    /// How long a GET waits before it is answered with 404: the client then looks whether its own
    /// timeout (HOROVOD_GLOO_TIMEOUT_SECONDS) has passed, and asks again.
    static constexpr std::uint64_t kHoldMs = 1'000;

    /// \param store  where the job's values are; outlives this
    HorovodRendezvous(JobStore& store, std::uint32_t world_size, std::vector<RankSlot> ranks,
                      Reply reply);

    /// Answers with `reply`, from within this call or later.
    /// \param asker  a new one for each request
    void ask(Asker asker, HttpRequest request, Deadline now);
    /// Nobody waits for that answer any more. Idempotent.
    void forget(Asker asker);

    /// Who waits for others. A rank is named where it is known: in front of the start barrier, and on
    /// a host that has only one. What HTTP tells of others is not worth a search through /proc: the
    /// wait's text names the rank that everybody waits for.
    std::vector<RankWait> waits(Deadline now) const;

    /// Where Gloo listens, on every host whose values have passed here: IPv6 addresses and ports.
    using Endpoints = std::set<std::pair<std::array<std::uint8_t, 16>, std::uint16_t>>;
    const Endpoints& endpoints() const { return endpoints_; }

    std::size_t bytes() const;  ///< of values kept here

private:
    using Value = std::shared_ptr<const std::string>;

    /// A rank of this host in one scope.
    struct Member {
        std::uint64_t round = 0;
        bool settled = false;   ///< has PUT <r> in that round
        bool finished = false;  ///< has said DELETE <r> in that round
        bool alone = false;     ///< its PUT <r> had no addresses: there is nobody else
    };
    /// A key in the highest round of its scope.
    struct Known {
        Value value;         ///< nullptr: not yet
        PendingQuery query;  ///< of the job's store
        std::set<Asker> askers;
        std::optional<Deadline> since;  ///< when it was first asked for
    };
    struct Scope {
        std::uint64_t round = 0;  ///< highest of its members'; 0: it has none
        std::map<std::string, Member, std::less<>> members;  ///< by <r>
        std::map<std::string, Known, std::less<>> values;
    };
    /// Holds ranks before their first PUT of a round of `global`, until every rank of the job is
    /// there: Gloo's clock starts after this PUT.
    struct StartBarrier {
        std::uint64_t round = 0;          ///< for which ranks gather here
        std::uint64_t open_round = 0;     ///< up to which it is open
        std::set<std::uint32_t> arrived;  ///< in that round
        struct Held {
            std::uint32_t rank = 0;
            std::uint64_t round = 0;
            Deadline since{};
        };
        std::map<Asker, Held> held;
    };
    struct Name {
        std::string scope;
        std::string key;
    };
    const Known* find(const Name& name) const;
    Known* find(const Name& name) { return const_cast<Known*>(std::as_const(*this).find(name)); }
    void get(Asker asker, const Name& name, Deadline now);
    void get_bytes(Asker asker, const Name& name);
    void get_in_round(Asker asker, const Name& name, Scope& scope, Deadline now);
    void got(Known& known, const StoreReply& reply);
    void put(Asker asker, const Name& name, std::string body, Deadline now);
    void put_rank(Asker asker, const Name& name, std::string body, Deadline now);
    void put_value(Asker asker, const Name& name, std::uint64_t round, std::string body,
                   std::function<void()> done);
    void found(Known& known, Value value);
    void learn_endpoints(std::string_view value);
    void erase(Asker asker, const Name& name);
    void finish(Scope& scope, Member& member);
    void drop(Scope& scope);
    void give_up(Known& known);

    std::optional<std::string> mistake(const HttpRequest& request, const Name& name) const;
    void refuse(Asker asker, const std::string& why);

    void arrive(Asker asker, std::uint32_t rank, std::uint64_t round, Deadline now);
    void all_here(std::uint64_t round);
    void all_everywhere(std::uint64_t round);
    void opened(std::uint64_t round, const StoreReply& reply);

    void change(Op op, std::string_view key, std::string_view value, JobStore::Answer done);
    void answer(Asker asker, const HttpAnswer& answer);

    JobStore& store_;
    PendingQueries queries_;  ///< but for those of Known
    std::uint32_t world_size_;
    std::vector<RankSlot> ranks_;
    Reply reply_;
    std::map<std::string, Scope, std::less<>> scopes_;
    StartBarrier start_barrier_;
    Endpoints endpoints_;
    std::set<Asker> asking_;         ///< not answered, not forgotten
    std::map<Asker, Name> waiting_;  ///< in Known::askers
    std::set<std::string> told_;     ///< mistakes; a client tries three times
};

}  // namespace dtrun::stores
