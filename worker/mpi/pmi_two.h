#pragma once

#include "worker/mpi/pmi_client.h"
#include "worker/mpi/pmi_protocol.h"

#include <optional>
#include <string>
#include <string_view>

namespace dtrun::mpi {

/// PMI-2, which MPI libraries that were built for it and Slurm's libpmi2 speak. As many requests are
/// under way as the client has threads; it tells them apart by what they sent as "thrid".
///
/// Thread: one. Lifetime: `client` outlives it.
class PmiTwo final : public PmiProtocol {
public:
    explicit PmiTwo(PmiClient& client) : client_(client) {}

    void execute(const PmiCommand& command) override;
    bool is_blocked() const override;
    void barrier_passed(const std::string& thread) override;
    void ring_closed(const std::string& thread, const PmiRing& ring);
    /// An attribute of the host is there, for which `thread` has waited.
    void attribute_put(const std::string& thread, std::string_view value);

private:
    struct Request {
        std::string_view name;
        void (PmiTwo::*execute)(const PmiCommand&);
    };
    static const Request kRequests[];

    void answer(const PmiCommand& command, PmiCommand::Values values);
    void answer_error(const PmiCommand& command, std::string why);
    static PmiCommand head_of(const PmiCommand& command);
    void fullinit(const PmiCommand& command);
    void finalize(const PmiCommand& command);
    void abort(const PmiCommand& command);
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
    void spawn(const PmiCommand& command);
    std::optional<std::string> node_attribute(std::string_view key) const;

    PmiClient& client_;
};

}  // namespace dtrun::mpi
