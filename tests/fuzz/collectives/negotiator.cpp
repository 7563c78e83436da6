// What ranks announce to each other: requests that make sense, or an error, and the same responses everywhere.

#include "collectives/coordinator/negotiator.h"

#include <cstdlib>

namespace {

using namespace dtrun::collectives;

std::string decide(std::span<const std::string_view> messages) {
    Negotiator negotiator({0, 1});
    StallCheck check({.warning = std::chrono::seconds(60), .shutdown = std::chrono::seconds(60)},
                     {0, 1});
    std::string all;
    for (int round = 0; round < 4; ++round) {
        const std::chrono::seconds now(round * 60);
        const auto responses = negotiator.take(messages, now);
        if (!responses) return all + "error: " + responses.error().message;
        for (const Response& response : *responses) {
            if (response.extras.size() != 2 || response.present.size() != 2) std::abort();
            all += response.failure.empty() ? describe(*response.request) : response.failure;
        }
        const auto stalled = negotiator.stalled();
        for (const Stalled& one : stalled)
            if (one.waiting.empty() || one.absent.empty()) std::abort();
        for (const std::string& line : check.look(stalled, now).lines) all += line;
    }
    return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (const auto request = decode_request(bytes)) {
        // Whatever is not 0 is true; there is one way to say it.
        const std::string again = encode(*request);
        const auto same = decode_request(again);
        if (!same || encode(*same) != again || again.size() != bytes.size()) std::abort();
        static_cast<void>(describe(*request));
    }
    const std::size_t half = size > 0 ? data[0] * size / 256 : 0;
    const std::string_view rest = bytes.substr(std::min<std::size_t>(size, 1));
    const std::string_view messages[] = {rest.substr(0, half),
                                         rest.substr(std::min(half, rest.size()))};
    if (decide(messages) != decide(messages)) std::abort();
    const std::string_view equal[] = {rest, rest};
    decide(equal);
    return 0;
}
