#include "worker/mpi/pmi_session.h"

#include "base/log.h"
#include "rendezvous/modes.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::mpi {
namespace {

constexpr std::string_view kNames = "dtrun/pmi/name/";
constexpr std::size_t kOutputBytesMax = 256u << 10;  // then the client has to read first
constexpr std::size_t kWaitsMax = 4'096;             // of a client of PMI-2, one for each thread
constexpr std::size_t kNameBytesMax = 1'024;

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

PmiSession::PmiSession(PmiHost& host, std::uint32_t rank, std::function<void()> changed)
    : host_(host), rank_(rank), changed_(std::move(changed)) {
    host_.join(*this);
}

PmiSession::~PmiSession() {
    host_.leave(*this);
    for (const auto& [number, ticket] : asked_) host_.store().forget(ticket);
}

void PmiSession::received(std::string_view bytes) {
    if (over_ || aborted_) return;
    reader_.feed(bytes);
    run();
}

bool PmiSession::wants_input() const {
    return over_ || aborted_ || (out_.size() < kOutputBytesMax && !is_blocked()) ||
           reader_.held() < PmiReader::kLineBytesMax;
}

void PmiSession::sent(std::size_t bytes) {
    out_.erase(0, bytes);
    if (out_.empty()) run();
}

Bytes PmiSession::take_output() {
    Bytes taken = std::exchange(out_, {});
    run();
    return taken;
}

/// Whether what comes next has to wait for an answer to what came before.
bool PmiSession::is_blocked() const {
    if (version_ == PmiVersion::one) return barrier_ || !asked_.empty();
    return asked_.size() + attributes_.size() >= kWaitsMax;
}

void PmiSession::run() {
    if (std::exchange(running_, true)) return;
    while (!over_ && !aborted_ && !is_blocked() && out_.size() < kOutputBytesMax) {
        const auto command = reader_.next();
        if (!command) {
            fail_with(command.error());
            break;
        }
        if (!*command) break;
        log::debug("PMI: rank {}: {:.64}", rank_, (*command)->name);
        if (version_ == PmiVersion::one)
            execute_one(**command);
        else
            execute_two(**command);
    }
    running_ = false;
}

/// Goes on after an answer that came from other ranks or the store.
void PmiSession::resume() {
    if (running_) return;
    run();
    changed_();
}

void PmiSession::fail_with(Error why) {
    failure_ = std::move(why);
    over_ = true;
}

void PmiSession::reply(std::string name, Values values, std::string_view thread) {
    if (!thread.empty()) values.emplace(values.begin(), "thrid", thread);
    if (over_ || aborted_) return;
    const PmiCommand command{std::move(name), std::move(values)};
    out_ += version_ == PmiVersion::one ? encode_pmi1(command) : encode_pmi2(command);
}

/// "init" is the same in both versions.
void PmiSession::begin(const PmiCommand& command) {
    if (refuse(command)) return;
    const bool two = command.value("pmi_version") == "2";
    reply("response_to_init",
          {{"pmi_version", two ? "2" : "1"}, {"pmi_subversion", two ? "0" : "1"}, {"rc", "0"}});
    version_ = two ? PmiVersion::two : PmiVersion::one;
    reader_.set_version(version_);
    if (!std::exchange(initialized_, true)) host_.observer().mpi_initialized(Rank{rank_});
}

/// Refuses a client with the error of another version, which ends MPI_Init; without an error the
/// rank would run alone, or wait. \return whether it was refused
bool PmiSession::refuse(const PmiCommand& command) {
    const std::string_view version = command.value("pmi_version");
    const MpiMode mode = host_.mode();
    std::string why;
    if (version == "1" && (mode == MpiMode::pmix || mode == MpiMode::pmi2))
        why = refusal(PmiVersion::one, mode);
    else if (version == "2" && (mode == MpiMode::pmix || mode == MpiMode::pmi1))
        why = refusal(PmiVersion::two, mode);
    else if (version != "1" && version != "2")
        why = fmt::format("its MPI library asks for version {:.16} of PMI; dtrun speaks 1 and 2",
                          version);
    if (why.empty()) return false;
    const bool one = mode != MpiMode::pmi2;
    reply("response_to_init",
          {{"pmi_version", one ? "1" : "2"}, {"pmi_subversion", one ? "1" : "0"}, {"rc", "-1"}});
    over_ = true;
    host_.observer().mpi_refused(Rank{rank_}, std::move(why));
    return true;
}

void PmiSession::finalized() {
    version_ = PmiVersion::one;
    reader_.set_version(version_);
    attributes_.clear();
    if (std::exchange(initialized_, false)) host_.observer().mpi_finalized(Rank{rank_});
}

void PmiSession::aborted(std::int32_t code) {
    aborted_ = true;
    host_.observer().mpi_aborted(Rank{rank_}, code);
}

/// Asks the job's store about a published name. \param value  the value to set
void PmiSession::ask(Op op, std::string_view name, std::optional<std::string_view> value,
                     Done done) {
    if (std::max(name.size(), value.value_or("").size()) > kNameBytesMax)
        return done({Status::refused, {}});
    const std::string key = fmt::format("{}{}", kNames, name);
    StoreRequest request;
    request.op = op;
    request.keys.push_back(key);
    if (value) request.values.push_back(*value);
    const std::uint64_t number = ++last_asked_;
    asked_[number] = 0;
    const stores::JobStore::Ticket ticket = host_.store().ask(
        request, [this, number, done = std::move(done)](const StoreReply& answer) {
            asked_.erase(number);
            done(answer);
            resume();
        });
    if (const auto at = asked_.find(number); at != asked_.end()) at->second = ticket;
}

void PmiSession::barrier_passed() {
    const BarrierWait wait = *std::exchange(barrier_, std::nullopt);
    if (version_ == PmiVersion::one)
        reply("barrier_out", {});
    else
        reply("kvs-fence-response", {{"rc", "0"}}, wait.thread);
    resume();
}

void PmiSession::ring_closed(const PmiRing& ring) {
    const BarrierWait wait = *std::exchange(ring_, std::nullopt);
    reply("ring-response",
          {{"rc", "0"},
           {"ring-count", fmt::format("{}", ring.place)},
           {"ring-left", ring.left},
           {"ring-right", ring.right}},
          wait.thread);
    resume();
}

void PmiSession::attribute_put(std::string_view key, std::string_view value) {
    const std::size_t before = attributes_.size();
    std::erase_if(attributes_, [&](const AttributeWait& wait) {
        if (wait.key != key) return false;
        reply("info-getnodeattr-response",
              {{"found", "TRUE"}, {"value", std::string(value)}, {"rc", "0"}}, wait.thread);
        return true;
    });
    if (attributes_.size() != before) resume();
}

void PmiSession::give_up() {
    over_ = true;
    barrier_.reset();
    ring_.reset();
    if (!running_) changed_();
}

std::optional<PmiSession::Waiting> PmiSession::waiting() const {
    if (over_ || aborted_) return {};
    if (barrier_)
        return Waiting{"the other ranks in a barrier of PMI (MPI_Init or MPI_Finalize)",
                       barrier_->since};
    if (ring_) return Waiting{"the other ranks in a ring of PMI (MPI_Init)", ring_->since};
    if (!attributes_.empty())
        return Waiting{"another rank of its host, which is to put an attribute (PMI-2)",
                       attributes_.front().since};
    return {};
}

}  // namespace dtrun::mpi
