#include "worker/mpi/mpi_service.h"

#include "base/log.h"
#include "rendezvous/job/rank_map.h"
#include "rendezvous/wire/exchange_messages.h"
#include "worker/ranks/agent_directories.h"

#include <algorithm>
#include <map>
#include <thread>

namespace dtrun::mpi {
namespace {

/// In a node map every name stands once; two members of a daemon's job may be of one machine.
void make_unique(std::vector<std::string>& names) {
    std::map<std::string, unsigned> seen;
    for (std::string& name : names) {
        const unsigned count = ++seen[name];
        if (count > 1) name += fmt::format("#{}", count);
    }
}

}  // namespace

MpiService::MpiService(asio::any_io_executor executor, stores::RelayedStore::Send send,
                       Options options)
    : options_(std::move(options)),
      network_(executor, std::move(send),
               [this] {
                   mpi_refused(
                       kNoRank,
                       fmt::format("the MPI libraries of all ranks together put up more than "
                                   "{} MiB at once, which is more than dtrun passes on; use "
                                   "fewer ranks, or --mpi mpirun",
                                   Fence::kBytesMax >> 20));
               }),
      pmix_(executor, network_, *this,
            {.host_name = options_.host_name,
             .library = {},
             .env = options_.env,
             .load_limit = options_.load_limit,
             .started = options_.started}),
      pmi_(executor, network_, *this) {}

MpiService::~MpiService() {
    remove_directory();
}

Result<void> MpiService::open(contracts::ContractFacts&) {
    if (!offered()) return {};
    const auto psec = options_.env.find("PMIX_MCA_psec");
    if (psec != options_.env.end() && psec->second.find("native") == psec->second.npos)
        log::info("ranks have PMIX_MCA_psec=native, not {}, which is of another launcher's server",
                  psec->second);
    return pmix_.open();
}

asio::awaitable<Result<void>> MpiService::prepare(const std::string& program) {
    if (offered() && linked_ == LinkedMpi::none) linked_ = linked_mpi(program);
    const bool wanted = options_.mode == MpiMode::pmix ||
                        (options_.mode == MpiMode::automatic && linked_ == LinkedMpi::open_mpi);
    if (!wanted || std::exchange(prepared_, wanted)) co_return Result<void>{};
    if (auto made = make_directory(); !made) co_return made;
    auto prepared = co_await pmix_.prepare(directory_);
    co_return prepared;
}

/// Where ranks share memory, so that what a killed one leaves is ours to remove: two agents of one
/// machine would otherwise have segments of the same name.
Result<void> MpiService::make_directory() {
    if (!directory_.empty()) return {};
    auto made = ranks::make_directory(options_.directory_prefix, ranks::kMemoryParents);
    if (!made) return fail(made.error(), "MPI");
    directory_ = std::move(*made);
    in_memory_ = directory_.starts_with("/dev/shm");
    return {};
}

void MpiService::remove_directory() {
    if (directory_.empty()) return;
    ranks::remove_directory(directory_);
    directory_.clear();
}

Result<void> MpiService::begin(const Assign& assign) {
    uses_.clear();
    abort_codes_.clear();
    told_ = false;
    world_ = {};
    world_.job = options_.job;
    world_.generation = assign.generation;
    world_.world_size = assign.world_size;
    world_.program_ranks = options_.program_ranks;
    world_.node_names = assign.node_names;
    make_unique(world_.node_names);
    world_.rank_map = assign.rank_map;
    world_.node_rank = assign.node_rank;
    for (const RankSlot& slot : assign.ranks) world_.ranks.push_back(std::to_underlying(slot.rank));
    const auto nodes = static_cast<std::uint32_t>(world_.node_names.size());
    auto places = nodes_of_ranks(world_.rank_map, world_.world_size, nodes);
    if (!places) return std::unexpected(places.error());
    world_.node_of_rank = std::move(*places);
    network_.begin(world_);
    if (!offered() || world_.ranks.empty()) return {};
    MpiMode pmix = options_.mode;
    if (const auto made = make_directory(); !made) {
        if (pmix == MpiMode::pmix) return made;
        log::info("{}: PMIx is not offered", made.error().message);
        pmix = MpiMode::none;  // most programs do not need it
    }
    pmix_.begin(world_, directory_, pmix);
    pmi_.begin(world_, options_.mode);
    return {};
}

Result<void> MpiService::offer(const Assign& world, const RankSlot& slot, ranks::RankOffer& offer) {
    const Rank rank = slot.rank;
    // Who is to join a world that lives on finds no MPI in it.
    if (!offered() || world.generation != world_.generation) return {};
    auto socket = pmi_.connect(std::to_underlying(rank));
    if (!socket) return std::unexpected(socket.error());
    contracts::MpiFacts& facts = offer.mpi;
    facts.pmi_fd = socket->get();
    facts.pmix = pmix_.variables(std::to_underlying(rank));
    if (in_memory_) facts.memory_directory = directory_;
    facts.open_mpi = linked_ == LinkedMpi::open_mpi;
    facts.mpich = linked_ == LinkedMpi::mpich;
    facts.oversubscribed = world_.ranks.size() > std::thread::hardware_concurrency();
    offer.inherited.push_back(std::move(*socket));
    return {};
}

void MpiService::describe(Exited& exited) const {
    if (exited.generation != world_.generation) return;
    const auto use = uses_.find(exited.rank);
    if (use != uses_.end()) exited.mpi = use->second;
    const auto code = abort_codes_.find(exited.rank);
    if (code == abort_codes_.end()) return;
    exited.code = code->second;
    exited.signal = 0;
    exited.hung = false;  // it was killed for its MPI_Abort
}

void MpiService::add_waits(std::vector<RankWait>& waits) const {
    std::vector<RankWait> own = pmix_.waits();
    std::ranges::move(pmi_.waits(), std::back_inserter(own));
    // Only until the ranks have first met is a wait part of the start; later waits are the
    // program's own.
    for (RankWait& wait : own) wait.starting = wait.starting && !network_.met();
    std::ranges::move(own, std::back_inserter(waits));
}

void MpiService::end(std::function<void()> gone) {
    pmix_.end([this, gone = std::move(gone)] {
        remove_directory();
        gone();
    });
}

void MpiService::mpi_initialized(Rank rank) {
    uses_[rank] = MpiUse::initialized;
    if (std::exchange(told_, true)) return;
    tell({.rank = rank});
}

void MpiService::tell(MpiStatus news) {
    news.generation = world_.generation;
    options_.tell(news);
}

void MpiService::mpi_finalized(Rank rank) {
    uses_[rank] = MpiUse::finalized;
}

void MpiService::mpi_aborted(Rank rank, std::int32_t code) {
    log::info("rank {} has called MPI_Abort with {}", rank, code);
    uses_[rank] = MpiUse::aborted;
    abort_codes_[rank] = code;
    tell({.rank = rank, .aborted = true});
    options_.aborted(rank);
}

void MpiService::mpi_refused(Rank rank, std::string why) {
    tell({.rank = rank, .problem = std::move(why)});
}

void MpiService::mpi_noted(Rank rank, std::string what) {
    tell({.rank = rank, .note = std::move(what)});
}

void MpiService::mpi_spawn_refused(Rank rank) {
    tell(
        {.rank = rank,
         .note = fmt::format("rank {} called MPI_Comm_spawn, which dtrun does not offer: start all "
                             "ranks at once, with -np (for mpi4py's MPIPoolExecutor: dtrun -np 4 "
                             "python3 -m mpi4py.futures SCRIPT)",
                             rank),
         .spawns = true});
}

void MpiService::stop() noexcept {
    pmix_.stop();
    pmi_.stop();
}

asio::awaitable<void> MpiService::join() {
    co_await pmix_.join();
    co_await pmi_.join();
}

}  // namespace dtrun::mpi
