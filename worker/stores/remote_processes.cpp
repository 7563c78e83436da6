#include "worker/stores/remote_processes.h"

#include "base/loop/net.h"
#include "base/strings.h"
#include "rendezvous/wire/msgpack.h"

#include <fmt/format.h>

namespace dtrun::stores {
namespace {

constexpr std::uint64_t kAnswerTimeMs = 10'000;

std::string mailbox(const std::string& address) {
    return "dtrun/whose/" + address;
}

std::string answer_box(const std::string& address, std::string_view question) {
    return fmt::format("{}/{}", mailbox(address), question);
}

std::optional<tcp::endpoint> parse_end(std::string_view address, std::string_view port) {
    boost::system::error_code error;
    const auto parsed = asio::ip::make_address(std::string(address), error);
    const auto number = to_int(port, 1, 65'535);
    if (error || !number) return std::nullopt;
    return tcp::endpoint(parsed, static_cast<std::uint16_t>(*number));
}

}  // namespace

void RemoteProcesses::push(const std::string& key, std::string_view value) {
    queries_.ask({.op = Op::push, .keys = {key}, .values = {value}}, [](const StoreReply&) {});
}

/// \param take  called with the oldest item of a queue, or with nothing if there was none in time
void RemoteProcesses::pop(const std::string& key, std::uint64_t timeout_ms, Take take) {
    const StoreRequest request{.op = Op::pop, .keys = {key}, .timeout_ms = timeout_ms};
    queries_.ask(request, [take = std::move(take)](const StoreReply& reply) {
        PackReader results(reply.results);
        if (reply.status != Status::ok || results.array() != 1) return take(std::nullopt);
        take(std::string(results.bytes()));
    });
}

void RemoteProcesses::answer_for(const std::string& address) {
    pop(mailbox(address), kForeverMs, [this, address](std::optional<std::string> question) {
        if (!question) return;
        answer_for(address);
        answer(address, *question);
    });
}

void RemoteProcesses::answer(const std::string& address, std::string_view question) {
    const auto words = split(question, ' ');
    if (words.size() != 4) return;
    const auto near = parse_end(address, words[0]);
    const auto far = parse_end(words[1], words[2]);
    if (!near || !far) return;
    push(answer_box(address, question), user_of(*near, *far) == PeerUser::ours ? "ours" : "");
}

void RemoteProcesses::ask(const tcp::endpoint& there, const tcp::endpoint& here, Told told) {
    const std::string address = numeric(there.address());
    const std::string question = fmt::format("{} {} {} {}", there.port(), numeric(here.address()),
                                             here.port(), ++questions_);
    push(mailbox(address), question);
    pop(answer_box(address, question), kAnswerTimeMs,
        [told = std::move(told)](std::optional<std::string> answer) {
            if (!answer) return told(PeerUser::unknown);
            const std::string_view who = *answer;
            told(who == "ours" ? PeerUser::ours : PeerUser::other);
        });
}

}  // namespace dtrun::stores
