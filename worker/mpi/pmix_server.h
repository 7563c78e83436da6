#pragma once

#include "base/loop/asio.h"
#include "base/loop/local_acceptor.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/mpi/network.h"
#include "worker/mpi/pmix_connections.h"
#include "worker/mpi/pmix_environment.h"
#include "worker/mpi/pmix_process.h"
#include "worker/mpi/pmix_requests.h"
#include "worker/mpi/world.h"

#include <sys/types.h>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::mpi {

/// PMIx, by which Open MPI and others find their ranks' places, for the ranks of one host. The server
/// itself is libpmix, loaded by a process of its own (dtrun-pmix, which the agent carries inside): the
/// agent stays one static file with one thread, and costs nothing of this while no rank asks for it.
/// Ranks connect to the agent, which checks whose they are, starts that process when the first one
/// comes or when it was told that they will, and passes their bytes on.
///
/// Thread: the executor's. Lifetime: the network and the observer outlive it; the owner calls stop()
/// and awaits join().
class PmixServer : private PmixRequests::Process {
public:
    struct Options {
        std::string host_name;  ///< what the user calls this host; as in MpiWorld::node_names
        std::string library;    ///< of libpmix; empty: libpmix.so.2 where the system finds it
        std::map<std::string, std::string, std::less<>> env{};  ///< of the ranks: where it looks
        std::chrono::milliseconds load_limit{30'000};           ///< in prepare()
        std::uint32_t ranks_worth_waiting = 256;  ///< from so many of the job on, see ready()
        /// \param pid  a process of ours that lives while ranks do, or a moment longer
        std::function<void(pid_t pid)> started;
    };
    PmixServer(asio::any_io_executor executor, MpiNetwork& network, MpiObserver& observer,
               Options options);
    ~PmixServer() override;

    /// Listens on loopback. Errc: internal
    Result<void> open();

    /// Ranks will ask for PMIx: starts the process now, and waits until it has loaded libpmix (not
    /// until it serves). Before begin().
    /// \param directory  as begin()'s
    /// Errc: not_found (no libpmix; what to install), invalid_input (a version below 4), internal
    asio::awaitable<Result<void>> prepare(std::string directory);

    /// For the ranks of a generation; the process of the one before is ended.
    /// \param directory  exists, empty, only ours, for this generation alone; the caller removes it,
    ///                   with whatever is in it, after end() was answered
    /// \param mode       pmi1, pmi2: whoever asks is refused, with what to do instead
    void begin(const MpiWorld& world, std::string directory, MpiMode mode);

    /// Waits until the ranks of a large job can be told of shared memory: what they learn of each
    /// other is then stored once for the host, and thousands of ranks start faster. Returns at once
    /// where that does not pay, or prepare() was not called. Call it after begin(), before
    /// variables().
    asio::awaitable<void> ready();

    /// What a rank of this host needs in its environment. After begin().
    std::vector<std::pair<std::string, std::string>> variables(std::uint32_t rank) const;

    /// Ranks that wait in a fence, where that is known.
    std::vector<RankWait> waits() const;

    /// No rank of the generation runs any more: ends the process, asking first.
    /// \param gone  called once it is no more, later; also where there was none
    void end(std::function<void()> gone);

    void stop() noexcept;
    asio::awaitable<void> join();

private:
    using ProcessPtr = std::shared_ptr<PmixProcess>;
    enum class State : std::uint8_t { none, starting, loaded, serving, refused };

    asio::awaitable<void> accept_loop();
    asio::awaitable<void> serve(tcp::socket socket);
    Result<void> start_process(bool shared_memory);
    asio::awaitable<void> write(ProcessPtr process);
    asio::awaitable<void> read_output(ProcessPtr process);
    asio::awaitable<void> attend(ProcessPtr process);
    asio::awaitable<void> kill_later(ProcessPtr process);
    Result<void> take(const PmixFrame& frame);
    void send_job();
    void set_state(State state);
    void refuse(Error why);
    void abandon_process();
    bool need_process() override;
    void to_process(Bytes frame) override;

    asio::any_io_executor executor_;
    MpiNetwork& network_;
    MpiObserver& observer_;
    const Options options_;
    LocalAcceptor acceptor_;
    std::uint16_t port_ = 0;
    MpiMode mode_ = MpiMode::none;
    std::string directory_;
    PmixEnvironment environment_;
    std::shared_ptr<PmixRequests> requests_;  ///< of the generation, while it lasts
    bool told_of_refusal_ = false;            ///< in this one
    ProcessPtr process_;                      ///< of this one, or prepared for it
    State state_ = State::none;
    Error refusal_;
    std::uint16_t process_port_ = 0;
    std::vector<std::function<void()>> gone_;
    Timer changed_;  ///< cancelled when the state changes
    PmixConnections connections_;
    TaskGroup tasks_;
};

}  // namespace dtrun::mpi
