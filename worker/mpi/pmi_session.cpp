#include "worker/mpi/pmi_session.h"

#include "base/log.h"

#include <utility>

namespace dtrun::mpi {
namespace {

constexpr std::size_t kOutputBytesMax = 256u << 10;  // then the client has to read first

}  // namespace

PmiSession::PmiSession(PmiHost& host, std::uint32_t rank, std::function<void()> changed)
    : host_(host),
      rank_(rank),
      changed_(std::move(changed)),
      client_(host, *this, [this] { resume(); }),
      one_(client_),
      two_(client_) {
    host_.join(*this);
}

PmiSession::~PmiSession() {
    host_.leave(*this);
}

PmiProtocol& PmiSession::protocol() {
    if (client_.version() == PmiVersion::one) return one_;
    return two_;
}

const PmiProtocol& PmiSession::protocol() const {
    if (client_.version() == PmiVersion::one) return one_;
    return two_;
}

void PmiSession::received(std::string_view bytes) {
    if (client_.is_done()) return;
    reader_.feed(bytes);
    run();
}

bool PmiSession::wants_input() const {
    return client_.is_done() ||
           (client_.out().size() < kOutputBytesMax && !protocol().is_blocked()) ||
           reader_.held() < PmiReader::kLineBytesMax;
}

void PmiSession::sent(std::size_t bytes) {
    client_.out().erase(0, bytes);
    if (client_.out().empty()) run();
}

Bytes PmiSession::take_output() {
    Bytes taken = std::exchange(client_.out(), {});
    run();
    return taken;
}

void PmiSession::run() {
    if (std::exchange(running_, true)) return;
    while (!client_.is_done() && !protocol().is_blocked() &&
           client_.out().size() < kOutputBytesMax) {
        reader_.set_version(client_.version());
        const auto command = reader_.next();
        if (!command) {
            failure_ = command.error();
            client_.end();
            break;
        }
        if (!*command) break;
        log::debug("PMI: rank {}: {:.64}", rank_, (*command)->name);
        protocol().execute(**command);
    }
    running_ = false;
}

/// Goes on after an answer that came from other ranks or the store.
void PmiSession::resume() {
    if (running_) return;
    run();
    changed_();
}

void PmiSession::barrier_passed() {
    protocol().barrier_passed(client_.waits().end_barrier());
    resume();
}

void PmiSession::ring_closed(const PmiRing& ring) {
    two_.ring_closed(client_.waits().end_ring(), ring);
    resume();
}

void PmiSession::attribute_put(std::string_view key, std::string_view value) {
    const auto threads = client_.waits().end_attribute(key);
    for (const std::string& thread : threads) two_.attribute_put(thread, value);
    if (!threads.empty()) resume();
}

void PmiSession::give_up() {
    client_.end();
    client_.waits().give_up();
    if (!running_) changed_();
}

std::optional<PmiWaits::Waiting> PmiSession::waiting() const {
    if (client_.is_done()) return {};
    return client_.waits().waiting();
}

}  // namespace dtrun::mpi
