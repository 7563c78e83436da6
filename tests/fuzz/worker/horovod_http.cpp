// Whatever connects to Horovod's store: a request, or an answer that refuses it, however the bytes are cut.

#include "worker/stores/horovod_http.h"

#include <algorithm>
#include <cstdlib>

namespace {

using namespace dtrun::stores;

constexpr std::size_t kBodyBytesMax = 1'000;

struct Outcome {
    bool complete = false;
    unsigned refused = 0;  ///< the answer's status
    std::string text;

    bool operator==(const Outcome&) const = default;
};

/// \param step  bytes that come at a time
Outcome talk(std::string_view bytes, std::size_t step) {
    HttpRequestReader reader(kBodyBytesMax);
    while (!bytes.empty()) {
        const auto fed = reader.feed(bytes.substr(0, step));
        bytes.remove_prefix(std::min(step, bytes.size()));
        if (!fed) return {false, fed.error().status, http_answer_head(fed.error())};
        if (!*fed) continue;
        const HttpRequest& request = reader.request();
        if (!request.target.starts_with('/') || request.body.size() > kBodyBytesMax) std::abort();
        return {true, 0, request.method + ' ' + request.target + ' ' + request.body};
    }
    return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const Outcome whole = talk(bytes, std::max<std::size_t>(size, 1));
    const Outcome pieces = talk(bytes, 1);
    // What is too long is refused as soon as that is known.
    if (whole.refused == 0 && pieces != whole) std::abort();
    if (whole.refused != 0 && pieces.refused == 0) std::abort();
    return 0;
}
