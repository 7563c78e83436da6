#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/msgpack.h"
#include "worker/mpi/pmi_host.h"
#include "worker/mpi/pmi_wire.h"
#include "worker/stores/job_store.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::mpi {

/// One rank's client of PMI: its bytes in, bytes for it out. No sockets.
///
/// A client of PMI-1 has one request under way at a time, one of PMI-2 as many as it has threads: it
/// tells them apart by what they sent as "thrid". A client may finalize and begin again.
///
/// Thread: one. Lifetime: `host` outlives it.
class PmiSession final : private PmiMember {
public:
    /// \param changed  called when something came of what others did: there is output, or is_over().
    ///                 May not destroy the session.
    PmiSession(PmiHost& host, std::uint32_t rank, std::function<void()> changed);
    ~PmiSession() override;
    PmiSession(const PmiSession&) = delete;
    PmiSession& operator=(const PmiSession&) = delete;

    void received(std::string_view bytes);
    /// Whether more may come before what is here has been dealt with.
    bool wants_input() const;

    bool has_output() const { return !out_.empty(); }
    /// All that is to be sent now.
    std::string_view output() const { return out_; }
    void sent(std::size_t bytes);
    /// The same, to keep while it is being sent.
    Bytes take_output();

    /// The client gets no more than what is in output(), and is to see that. What it sends is
    /// ignored.
    bool is_over() const { return over_; }
    /// It is over because of what the client has sent.
    const std::optional<Error>& failure() const { return failure_; }

    struct Waiting {
        const char* what = nullptr;
        Deadline since{};
    };
    /// What the client waits for, if it waits for other ranks.
    std::optional<Waiting> waiting() const;

private:
    using Values = PmiCommand::Values;
    using Done = std::function<void(const StoreReply&)>;
    struct Request {
        std::string_view name;
        void (PmiSession::*execute)(const PmiCommand&);
    };
    struct AttributeWait {
        std::string key;
        std::string thread;
        Deadline since{};
    };
    struct BarrierWait {
        std::string thread;
        Deadline since{};
    };

    // PmiMember
    std::uint32_t rank() const override { return rank_; }
    void barrier_passed() override;
    void ring_closed(const PmiRing& ring) override;
    void attribute_put(std::string_view key, std::string_view value) override;
    void give_up() override;

    void run();
    void resume();
    bool is_blocked() const;
    void fail_with(Error why);
    void reply(std::string name, Values values, std::string_view thread = {});
    void begin(const PmiCommand& command);
    bool refuse(const PmiCommand& command);
    void finalized();
    void aborted(std::int32_t code);
    void ask(Op op, std::string_view name, std::optional<std::string_view> value, Done done);

    // PMI-1
    void execute_one(const PmiCommand& command);
    void get_maxes(const PmiCommand& command);
    void get_appnum(const PmiCommand& command);
    void get_my_kvsname(const PmiCommand& command);
    void get_universe_size(const PmiCommand& command);
    bool is_our_table(const PmiCommand& command) const;
    void get_ranks2hosts(const PmiCommand& command);
    void put(const PmiCommand& command);
    void get(const PmiCommand& command);
    void getbyidx(const PmiCommand& command);
    void barrier_in(const PmiCommand& command);
    void finalize(const PmiCommand& command);
    void abort(const PmiCommand& command);
    void publish_name(const PmiCommand& command);
    void unpublish_name(const PmiCommand& command);
    void lookup_name(const PmiCommand& command);
    void spawn(const PmiCommand& command);
    void name_done(const char* result, bool done, const char* why);

    // PMI-2
    void execute_two(const PmiCommand& command);
    void answer(const PmiCommand& command, Values values);
    void answer_error(const PmiCommand& command, std::string why);
    static PmiCommand head_of(const PmiCommand& command);
    void fullinit(const PmiCommand& command);
    void finalize_two(const PmiCommand& command);
    void abort_two(const PmiCommand& command);
    void job_getid(const PmiCommand& command);
    void job_connect(const PmiCommand& command);
    void ring(const PmiCommand& command);
    void kvs_put(const PmiCommand& command);
    void kvs_get(const PmiCommand& command);
    void kvs_fence(const PmiCommand& command);
    void info_getjobattr(const PmiCommand& command);
    void info_getnodeattr(const PmiCommand& command);
    void info_putnodeattr(const PmiCommand& command);
    void name_publish(const PmiCommand& command);
    void name_unpublish(const PmiCommand& command);
    void name_lookup(const PmiCommand& command);
    void spawn_two(const PmiCommand& command);
    std::optional<std::string> node_attribute(std::string_view key) const;

    static const Request kRequestsOne[];
    static const Request kRequestsTwo[];

    PmiHost& host_;
    const std::uint32_t rank_;
    std::function<void()> changed_;
    PmiReader reader_;
    PmiVersion version_ = PmiVersion::one;
    Bytes out_;
    bool initialized_ = false;
    bool running_ = false;
    bool over_ = false;
    bool aborted_ = false;  ///< as over_, but the client is not to see it
    std::optional<Error> failure_;

    std::optional<BarrierWait> barrier_;
    std::optional<BarrierWait> ring_;
    std::vector<AttributeWait> attributes_;
    std::map<std::uint64_t, stores::JobStore::Ticket>
        asked_;  ///< of the job's store, without an answer
    std::uint64_t last_asked_ = 0;
};

}  // namespace dtrun::mpi
