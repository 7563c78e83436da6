#pragma once

#include "base/result.h"
#include "worker/mpi/pmi_client.h"
#include "worker/mpi/pmi_host.h"
#include "worker/mpi/pmi_one.h"
#include "worker/mpi/pmi_two.h"
#include "worker/mpi/pmi_waits.h"
#include "worker/mpi/pmi_wire.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace dtrun::mpi {

/// The connection of one rank's client of PMI: its bytes in, bytes for it out. No sockets.
///
/// A client begins in PMI-1, and may go on in either protocol. It may finalize and begin again.
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

    bool has_output() const { return !client_.out().empty(); }
    /// All that is to be sent now.
    std::string_view output() const { return client_.out(); }
    void sent(std::size_t bytes);
    /// The same, to keep while it is being sent.
    Bytes take_output();

    /// The client gets no more than what is in output(), and is to see that. What it sends is
    /// ignored.
    bool is_over() const { return client_.is_over(); }
    /// It is over because of what the client has sent.
    const std::optional<Error>& failure() const { return failure_; }

    /// What the client waits for, if it waits for other ranks.
    std::optional<PmiWaits::Waiting> waiting() const;
    bool speaks_two() const { return client_.version() == PmiVersion::two; }

private:
    // PmiMember
    std::uint32_t rank() const override { return rank_; }
    void barrier_passed() override;
    void ring_closed(const PmiRing& ring) override;
    void attribute_put(std::string_view key, std::string_view value) override;
    void give_up() override;

    PmiProtocol& protocol();
    const PmiProtocol& protocol() const;
    void run();
    void resume();

    PmiHost& host_;
    const std::uint32_t rank_;
    const std::function<void()> changed_;
    PmiReader reader_;
    PmiClient client_;
    PmiOne one_;
    PmiTwo two_;
    bool running_ = false;
    std::optional<Error> failure_;
};

}  // namespace dtrun::mpi
