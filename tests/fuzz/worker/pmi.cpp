// Whatever a rank sends over PMI_FD: it may be cut off, but nothing else may come of it, and how the
// bytes are cut changes nothing.

#include "base/log.h"
#include "rendezvous/wire/modes.h"
#include "tests/worker/mpi/pmi_hosts.h"
#include "worker/mpi/pmi_session.h"

#include <algorithm>
#include <cstdlib>

namespace dtrun {

using namespace mpi;
namespace {

struct Outcome {
    std::string output;
    bool over = false;
    std::size_t values = 0;

    bool operator==(const Outcome&) const = default;
};

/// \param step  bytes that come at a time
Outcome talk(std::string_view bytes, std::size_t step) {
    asio::io_context io;
    MpiNetworks networks(io, 1);
    RecordedMpi mpi;
    PmiHost host(mpi_world({1}, 0), MpiMode::automatic, networks.of(0), mpi, [] {});
    Outcome outcome;
    {
        PmiSession session(host, 0, [] {});
        const auto collect = [&] {
            do {
                outcome.output += session.take_output();
                io.restart();
                io.poll();
            } while (session.has_output());
        };
        while (!bytes.empty()) {
            if (!session.wants_input()) std::abort();  // everything it waits for comes
            session.received(bytes.substr(0, step));
            bytes.remove_prefix(std::min(step, bytes.size()));
            collect();
        }
        outcome.over = session.is_over();
        if (session.failure() && !session.is_over()) std::abort();
    }
    outcome.values = host.table().size();
    return outcome;
}

}  // namespace
}  // namespace dtrun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    dtrun::log::init("fuzz", dtrun::log::Level::quiet);
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto whole = dtrun::talk(bytes, bytes.size());
    const auto pieces = dtrun::talk(bytes, 1);
    // In PMI-2 the end of a fence stands where it comes among the answers to other threads.
    const bool in_order = whole.output.find("pmi_version=2") == std::string::npos;
    if (pieces.over != whole.over || pieces.values != whole.values) std::abort();
    if (in_order && pieces != whole) std::abort();
    return 0;
}
