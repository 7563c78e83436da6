#include "worker/stores/horovod_rendezvous.h"

#include "base/log.h"
#include "base/milliseconds.h"
#include "rendezvous/wire/msgpack.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>
#include <charconv>
#include <cstring>

namespace dtrun::stores {
namespace {

constexpr std::string_view kRankPrefix = "rank_";
/// What Gloo publishes of itself for each peer: a sockaddr_storage and a number.
constexpr std::size_t kAddressBytes = 136;
constexpr std::size_t kMistakesTold = 64;
constexpr std::size_t kEndpointsMax = 1u << 20;

std::optional<std::uint32_t> number(std::string_view text) {
    std::uint32_t value = 0;
    const auto [rest, error] = std::from_chars(text.begin(), text.end(), value);
    if (text.empty() || error != std::errc() || rest != text.end()) return {};
    return value;
}

/// In the job's store. Scopes and keys have no '/', so no two of them are one.
std::string key_of(std::string_view scope, std::uint64_t round, std::string_view key) {
    return fmt::format("horovod/{}/{}/{}", scope, round, key);
}
/// No scope is called "".
std::string arrived_key(std::uint64_t round) {
    return key_of("", round, "arrived");
}
std::string open_key(std::uint64_t round) {
    return key_of("", round, "open");
}

std::string_view text_of(const StoreReply& reply) {
    PackReader results(reply.results);
    if (results.array() == 0) return {};
    return results.bytes();
}

/// The answer for a request that the job's store has not carried out.
HttpAnswer failed(const StoreReply& reply) {
    switch (reply.status) {
        case Status::stale:
        case Status::cancelled:
            return http_answer(503, "this generation of the job is over\n");
        case Status::refused:
            return http_answer(500, fmt::format("the job's store: {}\n", text_of(reply)));
        default:
            return http_answer(500, fmt::format("the job's store answered with status {}\n",
                                                static_cast<int>(reply.status)));
    }
}

}  // namespace

HorovodRendezvous::HorovodRendezvous(JobStore& store, std::uint32_t world_size,
                                     std::vector<RankSlot> ranks, Reply reply)
    : store_(store),
      queries_(store),
      world_size_(world_size),
      ranks_(std::move(ranks)),
      reply_(std::move(reply)) {}

void HorovodRendezvous::ask(Asker asker, HttpRequest request, Deadline now) {
    asking_.insert(asker);
    const auto slash = request.target.find('/', 1);
    if (slash == std::string::npos || slash == 1 || slash + 1 == request.target.size() ||
        request.target.find('/', slash + 1) != std::string::npos)
        return answer(asker, http_answer(400, "a key is named /<scope>/<key>\n"));
    const Name name{request.target.substr(1, slash - 1), request.target.substr(slash + 1)};
    if (const auto why = mistake(request, name)) return refuse(asker, *why);
    if (request.method == "GET") return get(asker, name, now);
    if (request.method == "PUT") return put(asker, name, std::move(request.body), now);
    if (request.method == "DELETE") return erase(asker, name);
    answer(asker, http_answer(405, "there are GET, PUT and DELETE\n"));
}

void HorovodRendezvous::forget(Asker asker) {
    if (asking_.erase(asker) == 0) return;
    start_barrier_.held.erase(asker);
    const auto name = waiting_.extract(asker);
    if (name.empty()) return;
    Known* const known = find(name.mapped());
    if (known == nullptr) return;
    known->askers.erase(asker);
    if (known->askers.empty()) known->query.forget();
}

const HorovodRendezvous::Known* HorovodRendezvous::find(const Name& name) const {
    const auto scope = scopes_.find(name.scope);
    if (scope == scopes_.end()) return nullptr;
    const auto known = scope->second.values.find(name.key);
    return known == scope->second.values.end() ? nullptr : &known->second;
}

// ---- What cannot end well ----------------------------------------------------------------------

/// What is wrong with a request, if it shows that a program was told something else than its
/// launcher says. Gloo would find out after its timeout, without knowing why.
std::optional<std::string> HorovodRendezvous::mistake(const HttpRequest& request,
                                                      const Name& name) const {
    if (name.scope == "rank_and_size")
        return "hvd.init() asks for a place in an elastic job, which this one is not: "
               "HOROVOD_ELASTIC "
               "must not be set";
    if (name.scope != "global") return {};
    const bool of_rank = name.key.starts_with(kRankPrefix);
    const auto rank = number(std::string_view(name.key).substr(of_rank ? kRankPrefix.size() : 0));
    if (!rank) return {};
    if (*rank >= world_size_)
        return fmt::format(
            "hvd.init() looks for a rank {}, but the job has {} ranks: HOROVOD_RANK "
            "and HOROVOD_SIZE must stay as they are",
            *rank, world_size_);
    if (request.method != "PUT") return {};
    if (std::ranges::find(ranks_, Rank{*rank}, &RankSlot::rank) == ranks_.end())
        return fmt::format(
            "a program that says it is rank {} calls hvd.init() here, but that rank "
            "runs on another host: HOROVOD_RANK must stay as it is",
            *rank);
    // A value of one address only might be of another Gloo.
    const std::size_t bytes = request.body.size();
    if (of_rank || bytes % kAddressBytes != 0 || bytes == kAddressBytes ||
        bytes / kAddressBytes + 1 == world_size_)
        return {};
    return fmt::format(
        "hvd.init() of rank {} counts {} ranks, but the job has {}: HOROVOD_SIZE must "
        "stay as it is",
        *rank, bytes / kAddressBytes + 1, world_size_);
}

/// The client tries three times in a second, then its process ends.
void HorovodRendezvous::refuse(Asker asker, const std::string& why) {
    if (told_.size() < kMistakesTold && told_.insert(why).second) log::warn("{}", why);
    answer(asker, http_answer(403, why + "\n"));
}

// ---- GET ---------------------------------------------------------------------------------------

void HorovodRendezvous::get(Asker asker, const Name& name, Deadline now) {
    const auto scope = scopes_.find(name.scope);
    if (scope == scopes_.end()) return get_bytes(asker, name);
    get_in_round(asker, name, scope->second, now);
}

/// These may change at any time, so nothing is kept or shared.
void HorovodRendezvous::get_bytes(Asker asker, const Name& name) {
    const std::string key = key_of(name.scope, 0, name.key);
    queries_.ask({.op = Op::get, .keys = {key}}, [this, asker](const StoreReply& reply) {
        if (reply.status == Status::not_found) return answer(asker, {404});
        if (reply.status != Status::ok) return answer(asker, failed(reply));
        answer(asker, http_answer(200, std::string(text_of(reply))));
    });
}

/// Gets a value of the round; the job's store is asked once, however many ask here.
void HorovodRendezvous::get_in_round(Asker asker, const Name& name, Scope& scope, Deadline now) {
    Known& known = scope.values[name.key];
    if (known.value) return answer(asker, {200, known.value});
    if (!known.since) known.since = now;
    known.askers.insert(asker);
    waiting_.emplace(asker, name);
    if (known.query) return;
    const std::string key = key_of(name.scope, scope.round, name.key);
    StoreRequest request{.op = Op::get, .keys = {key}};
    // A GET of rank_<i> does not wait: without that key the asker's Gloo goes on with a guess.
    request.timeout_ms = name.key.starts_with(kRankPrefix) ? 0 : kHoldMs;
    known.query =
        store_.ask(request, [this, &known](const StoreReply& reply) { got(known, reply); });
}

void HorovodRendezvous::got(Known& known, const StoreReply& reply) {
    known.query.answered();
    if (reply.status == Status::ok)
        return found(known, std::make_shared<const std::string>(text_of(reply)));
    const bool missing = reply.status == Status::not_found || reply.status == Status::timed_out;
    const HttpAnswer error = missing ? HttpAnswer{404} : failed(reply);
    for (const Asker asker : std::exchange(known.askers, {})) {
        waiting_.erase(asker);
        answer(asker, error);
    }
}

void HorovodRendezvous::found(Known& known, Value value) {
    known.value = std::move(value);
    learn_endpoints(*known.value);
    known.query.forget();
    for (const Asker asker : std::exchange(known.askers, {})) {
        waiting_.erase(asker);
        answer(asker, {200, known.value});
    }
}

/// Reads the addresses in what a rank publishes of itself: for each peer a sockaddr_storage and a number.
void HorovodRendezvous::learn_endpoints(std::string_view value) {
    if (value.size() % kAddressBytes != 0) return;
    for (; !value.empty(); value.remove_prefix(kAddressBytes)) {
        sockaddr_storage storage{};
        std::memcpy(&storage, value.data(), std::min(sizeof storage, kAddressBytes));
        Endpoints::value_type end{};
        if (storage.ss_family == AF_INET) {
            const auto& place = reinterpret_cast<const sockaddr_in&>(storage);
            end.first[10] = end.first[11] = 0xff;
            std::memcpy(end.first.data() + 12, &place.sin_addr, sizeof place.sin_addr);
            end.second = ntohs(place.sin_port);
        } else if (storage.ss_family == AF_INET6) {
            const auto& place = reinterpret_cast<const sockaddr_in6&>(storage);
            std::memcpy(end.first.data(), &place.sin6_addr, sizeof place.sin6_addr);
            end.second = ntohs(place.sin6_port);
        }
        if (end.second != 0 && endpoints_.size() < kEndpointsMax) endpoints_.insert(end);
    }
}

// ---- PUT and DELETE ----------------------------------------------------------------------------

void HorovodRendezvous::put(Asker asker, const Name& name, std::string body, Deadline now) {
    if (name.key.starts_with(kRankPrefix)) return put_rank(asker, name, std::move(body), now);
    std::uint64_t round = 0;
    if (const auto scope = scopes_.find(name.scope); scope != scopes_.end()) {
        round = scope->second.round;
        const auto member = scope->second.members.find(name.key);
        if (member != scope->second.members.end()) {
            member->second.settled = true;
            member->second.alone = body.empty();
            if (body.empty()) return answer(asker, {200});
            round = member->second.round;
        }
    }
    put_value(asker, name, round, std::move(body), [this, asker] { answer(asker, {200}); });
}

void HorovodRendezvous::put_rank(Asker asker, const Name& name, std::string body, Deadline now) {
    const std::string rank = name.key.substr(kRankPrefix.size());
    Scope& scope = scopes_[name.scope];
    Member& member = scope.members[rank];
    if (member.round == 0 || member.settled) member = {member.round + 1};
    if (member.round > scope.round) {
        drop(scope);
        scope.round = member.round;
    }
    const std::uint64_t round = member.round;
    const auto global = name.scope == "global" ? number(rank) : std::nullopt;
    put_value(asker, name, round, std::move(body), [this, asker, global, round, now] {
        if (global) return arrive(asker, *global, round, now);
        answer(asker, {200});
    });
}

/// \param done  called when everybody can read it
void HorovodRendezvous::put_value(Asker asker, const Name& name, std::uint64_t round,
                                  std::string body, std::function<void()> done) {
    const auto value = std::make_shared<const std::string>(std::move(body));
    const std::string key = key_of(name.scope, round, name.key);
    change(Op::set, key, *value, [=, this, done = std::move(done)](const StoreReply& reply) {
        if (reply.status != Status::ok) return answer(asker, failed(reply));
        const auto scope = scopes_.find(name.scope);
        if (scope != scopes_.end() && scope->second.round == round)
            found(scope->second.values[name.key], value);
        done();
    });
}

void HorovodRendezvous::erase(Asker asker, const Name& name) {
    std::uint64_t round = 0;
    const auto scope = scopes_.find(name.scope);
    if (scope != scopes_.end()) {
        round = scope->second.round;
        const auto member = scope->second.members.find(name.key);
        if (member == scope->second.members.end()) {
            auto erased = scope->second.values.extract(name.key);
            if (!erased.empty()) give_up(erased.mapped());
        } else {
            round = member->second.round;
            finish(scope->second, member->second);
            change(Op::erase, key_of(name.scope, round, std::string(kRankPrefix) + name.key), {},
                   [](const StoreReply&) {});
            if (member->second.alone) return answer(asker, {200});
        }
    }
    change(Op::erase, key_of(name.scope, round, name.key), {},
           [this, asker](const StoreReply& reply) {
               answer(asker, reply.status == Status::ok ? HttpAnswer{200} : failed(reply));
           });
}

/// Notes a rank's DELETE. After the last one of this host the round's values are dropped.
void HorovodRendezvous::finish(Scope& scope, Member& member) {
    member.settled = true;
    member.finished = true;
    const bool others = std::ranges::any_of(scope.members, [&](const auto& other) {
        return other.second.round == scope.round && !other.second.finished;
    });
    if (!others) drop(scope);
}

/// Forgets the values of a scope's round.
void HorovodRendezvous::drop(Scope& scope) {
    for (auto& [key, known] : std::exchange(scope.values, {})) give_up(known);
}

/// Answers everybody who waits for a key that is dropped.
void HorovodRendezvous::give_up(Known& known) {
    known.query.forget();
    for (const Asker asker : std::exchange(known.askers, {})) {
        waiting_.erase(asker);
        answer(asker, {404});
    }
}

// ---- The start barrier -------------------------------------------------------------------------

/// rank_<r> of every rank is in the job's store before its host counts it as arrived.
void HorovodRendezvous::arrive(Asker asker, std::uint32_t rank, std::uint64_t round, Deadline now) {
    if (round <= start_barrier_.open_round) return answer(asker, {200});
    if (!asking_.contains(asker)) return;
    if (round > start_barrier_.round) {
        start_barrier_.round = round;
        start_barrier_.arrived.clear();
    }
    start_barrier_.held.emplace(asker, StartBarrier::Held{rank, round, now});
    if (round < start_barrier_.round) return;  // its round is complete, and opens
    const bool first = start_barrier_.arrived.insert(rank).second;
    if (first && start_barrier_.arrived.size() == ranks_.size()) all_here(round);
}

/// All ranks of this host have arrived: counts them with one request, and waits with another.
void HorovodRendezvous::all_here(std::uint64_t round) {
    const std::string arrived = arrived_key(round);
    const auto here = static_cast<std::int64_t>(ranks_.size());
    queries_.ask({.op = Op::add, .keys = {arrived}, .delta = here},
                 [this, round](const StoreReply& reply) {
                     if (reply.status != Status::ok) return opened(round, reply);
                     PackReader results(reply.results);
                     results.array();
                     if (results.integer() == static_cast<std::int64_t>(world_size_))
                         all_everywhere(round);
                 });
    const std::string open = open_key(round);
    queries_.ask({.op = Op::wait, .keys = {open}, .timeout_ms = kForeverMs},
                 [this, round](const StoreReply& reply) { opened(round, reply); });
}

/// Opens the barrier after this host's count completed the job's ranks. All of them have passed the
/// barrier of the round before, so its keys can go.
void HorovodRendezvous::all_everywhere(std::uint64_t round) {
    const auto ignored = [](const StoreReply&) {};
    change(Op::set, open_key(round), {}, [this, round](const StoreReply& reply) {
        if (reply.status != Status::ok) opened(round, reply);
    });
    change(Op::erase, arrived_key(round - 1), {}, ignored);
    change(Op::erase, open_key(round - 1), {}, ignored);
}

void HorovodRendezvous::opened(std::uint64_t round, const StoreReply& reply) {
    const bool ok = reply.status == Status::ok;
    if (ok) start_barrier_.open_round = std::max(start_barrier_.open_round, round);
    const HttpAnswer all = ok ? HttpAnswer{200} : failed(reply);
    std::vector<Asker> through;
    for (const auto& [asker, held] : start_barrier_.held)
        if (held.round <= round) through.push_back(asker);
    for (const Asker asker : through) {
        start_barrier_.held.erase(asker);
        answer(asker, all);
    }
}

// ---- The rest ----------------------------------------------------------------------------------

void HorovodRendezvous::change(Op op, std::string_view key, std::string_view value,
                               JobStore::Answer done) {
    StoreRequest request{.op = op, .keys = {key}};
    if (op == Op::set) request.values = {value};
    queries_.ask(request, std::move(done));
}

void HorovodRendezvous::answer(Asker asker, const HttpAnswer& answer) {
    if (asking_.erase(asker) == 0) return;
    if (answer.status == 500)
        log::warn("Horovod's store: {}", answer.bytes().substr(0, answer.bytes().find('\n')));
    reply_(asker, answer);
}

std::vector<RankWait> HorovodRendezvous::waits(Deadline now) const {
    std::vector<RankWait> all;
    const auto add = [&](Rank rank, std::string what, bool starting, Deadline since) {
        RankWait& wait = all.emplace_back();
        wait.rank = rank;
        wait.what = std::move(what);
        wait.starting = starting;
        wait.waited_ms = to_ms(now - since);
    };
    for (const auto& [asker, held] : start_barrier_.held)
        add(Rank{held.rank}, "all ranks to call hvd.init()", true, held.since);
    const Rank only = ranks_.size() == 1 ? ranks_.front().rank : kNoRank;
    for (const auto& [asker, name] : waiting_) {
        const Known* const known = find(name);
        const Deadline since = known == nullptr ? now : known->since.value_or(now);
        if (name.scope == "global")
            add(only, fmt::format("rank {} in hvd.init()", name.key), true, since);
        else
            add(only, fmt::format("key {} of Horovod's {}", name.key, name.scope), false, since);
    }
    return all;
}

std::size_t HorovodRendezvous::bytes() const {
    std::size_t sum = 0;
    for (const auto& [name, scope] : scopes_)
        for (const auto& [key, known] : scope.values)
            if (known.value) sum += known.value->size();
    return sum;
}

}  // namespace dtrun::stores
