#pragma once

#include "rendezvous/wire/msgpack.h"
#include "worker/mpi/pmi_host.h"
#include "worker/mpi/pmi_names.h"
#include "worker/mpi/pmi_waits.h"
#include "worker/mpi/pmi_wire.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dtrun::mpi {

/// One rank's client of PMI, as both protocols have it: whether it is between init and finalize, what
/// it is sent and what it waits for. Which version is spoken decides how replies are encoded.
///
/// Thread: one. Lifetime: `host` outlives it; `member` is the owner.
class PmiClient {
public:
    /// \param answered  see PmiNames
    PmiClient(PmiHost& host, PmiMember& member, std::function<void()> answered);

    PmiHost& host() { return host_; }
    const PmiHost& host() const { return host_; }
    std::uint32_t rank() const { return member_.rank(); }
    PmiVersion version() const { return version_; }
    PmiNames& names() { return names_; }
    const PmiNames& names() const { return names_; }
    PmiWaits& waits() { return waits_; }
    const PmiWaits& waits() const { return waits_; }

    /// Serves an "init", which is the same in both versions, or refuses it with the error of another
    /// version. That ends MPI_Init; without an error the rank would run alone, or wait.
    void begin(const PmiCommand& command);
    void finalize();
    void abort(std::int32_t code);
    void enter_barrier(std::string_view thread);
    void enter_ring(std::string_view thread, std::string_view left, std::string_view right);

    /// \param thread  of the client, in PMI-2
    void reply(std::string name, PmiCommand::Values values, std::string_view thread = {});
    /// As it is; for what has a form of its own.
    void send(std::string_view bytes) { out_ += bytes; }
    Bytes& out() { return out_; }
    const Bytes& out() const { return out_; }

    /// Nothing more is said to the client: its connection closes once out() has been sent.
    bool is_over() const { return over_; }
    void end() { over_ = true; }
    /// The client is served no more, because its connection is to close or because it has aborted.
    bool is_done() const { return over_ || aborted_; }

private:
    std::string reason_to_refuse(std::string_view version) const;

    PmiHost& host_;
    PmiMember& member_;
    PmiVersion version_ = PmiVersion::one;
    PmiNames names_;
    PmiWaits waits_;
    Bytes out_;
    bool initialized_ = false;
    bool over_ = false;
    bool aborted_ = false;
};

}  // namespace dtrun::mpi
