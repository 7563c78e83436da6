#pragma once

#include "worker/mpi/pmi_client.h"
#include "worker/mpi/pmi_protocol.h"

namespace dtrun::mpi {

/// PMI-1, which MPICH, Intel MPI and MVAPICH speak: one request under way at a time.
///
/// Thread: one. Lifetime: `client` outlives it.
class PmiOne final : public PmiProtocol {
public:
    explicit PmiOne(PmiClient& client) : client_(client) {}

    void execute(const PmiCommand& command) override;
    bool is_blocked() const override;
    void barrier_passed(const std::string& thread) override;

private:
    struct Request {
        std::string_view name;
        void (PmiOne::*execute)(const PmiCommand&);
    };
    static const Request kRequests[];

    void init(const PmiCommand& command);
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

    PmiClient& client_;
};

}  // namespace dtrun::mpi
