#include "worker/mpi/pmi_client.h"

#include "rendezvous/wire/modes.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::mpi {
namespace {

/// Why a client of that version is not served, and what would help.
std::string refusal(PmiVersion asked, MpiMode mode) {
    const bool one = asked == PmiVersion::one;
    const char* const offered = mode == MpiMode::pmix ? "PMIx" : one ? "PMI-2" : "PMI-1";
    const char* const option = mode == MpiMode::pmix ? "pmix" : one ? "pmi2" : "pmi1";
    return fmt::format(
        "its MPI library asks for {}, but --mpi {} offers only {}: use --mpi auto or --mpi {}",
        one ? "PMI-1 (as MPICH, Intel MPI and MVAPICH do)" : "PMI-2", option, offered,
        one ? "pmi1" : "pmi2");
}

}  // namespace

PmiClient::PmiClient(PmiHost& host, PmiMember& member, std::function<void()> answered)
    : host_(host), member_(member), names_(host.store(), std::move(answered)) {}

void PmiClient::begin(const PmiCommand& command) {
    const std::string_view version = command.value("pmi_version");
    if (std::string why = reason_to_refuse(version); !why.empty()) {
        const bool one = host_.mode() != MpiMode::pmi2;
        reply(
            "response_to_init",
            {{"pmi_version", one ? "1" : "2"}, {"pmi_subversion", one ? "1" : "0"}, {"rc", "-1"}});
        over_ = true;
        host_.observer().mpi_refused(Rank{rank()}, std::move(why));
        return;
    }
    const bool two = version == "2";
    reply("response_to_init",
          {{"pmi_version", two ? "2" : "1"}, {"pmi_subversion", two ? "0" : "1"}, {"rc", "0"}});
    version_ = two ? PmiVersion::two : PmiVersion::one;
    if (!std::exchange(initialized_, true)) host_.observer().mpi_initialized(Rank{rank()});
}

/// \return empty: it is served
std::string PmiClient::reason_to_refuse(std::string_view version) const {
    const MpiMode mode = host_.mode();
    if (version == "1" && (mode == MpiMode::pmix || mode == MpiMode::pmi2))
        return refusal(PmiVersion::one, mode);
    if (version == "2" && (mode == MpiMode::pmix || mode == MpiMode::pmi1))
        return refusal(PmiVersion::two, mode);
    if (version != "1" && version != "2")
        return fmt::format("its MPI library asks for version {:.16} of PMI; dtrun speaks 1 and 2",
                           version);
    return {};
}

/// What comes after it begins with an "init" again.
void PmiClient::finalize() {
    version_ = PmiVersion::one;
    waits_.forget_attributes();
    if (std::exchange(initialized_, false)) host_.observer().mpi_finalized(Rank{rank()});
}

void PmiClient::abort(std::int32_t code) {
    aborted_ = true;
    host_.observer().mpi_aborted(Rank{rank()}, code);
}

void PmiClient::enter_barrier(std::string_view thread) {
    waits_.begin_barrier(thread);
    host_.enter_barrier(member_);
}

void PmiClient::enter_ring(std::string_view thread, std::string_view left, std::string_view right) {
    waits_.begin_ring(thread);
    host_.enter_ring(member_, std::string(left), std::string(right));
}

void PmiClient::reply(std::string name, PmiCommand::Values values, std::string_view thread) {
    if (is_done()) return;
    if (!thread.empty()) values.emplace(values.begin(), "thrid", thread);
    const PmiCommand command{std::move(name), std::move(values)};
    out_ += version_ == PmiVersion::one ? encode_pmi1(command) : encode_pmi2(command);
}

}  // namespace dtrun::mpi
