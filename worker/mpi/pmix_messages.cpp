#include "worker/mpi/pmix_messages.h"

#include "rendezvous/wire/fields_codec.h"

#include <arpa/inet.h>
#include <cstring>

namespace dtrun::mpi {
namespace {

constexpr std::size_t kHeadBytes = sizeof(std::uint32_t) + 1;
constexpr std::uint32_t kPayloadBytesMax = 1u << 30;

template <class M>
Result<M> unpacked(std::string_view bytes, std::string_view what) {
    PackReader reader(bytes);
    M message;
    unpack(reader, message);
    if (!reader.at_end()) return fail(Errc::invalid_input, "malformed {} of PMIx", what);
    return message;
}

}  // namespace

template <class M>
Bytes pmix_encode(const M& message) {
    Bytes frame(kHeadBytes, '\0');
    PackWriter writer(frame);
    pack(writer, message);
    const std::uint32_t size = htonl(static_cast<std::uint32_t>(frame.size() - kHeadBytes));
    std::memcpy(frame.data(), &size, sizeof size);
    frame[sizeof size] = static_cast<char>(M::kKind);
    return frame;
}

template <class M>
Result<M> pmix_decode(std::string_view payload) {
    return unpacked<M>(payload, "message");
}

#define DTRUN_MESSAGE(M)                     \
    template Bytes pmix_encode<M>(const M&); \
    template Result<M> pmix_decode<M>(std::string_view);
DTRUN_MESSAGE(PmixJob)
DTRUN_MESSAGE(PmixAnswer)
DTRUN_MESSAGE(PmixFound)
DTRUN_MESSAGE(PmixWant)
DTRUN_MESSAGE(PmixLoaded)
DTRUN_MESSAGE(PmixFailed)
DTRUN_MESSAGE(PmixServing)
DTRUN_MESSAGE(PmixConnected)
DTRUN_MESSAGE(PmixFinalized)
DTRUN_MESSAGE(PmixAborted)
DTRUN_MESSAGE(PmixFence)
DTRUN_MESSAGE(PmixModex)
DTRUN_MESSAGE(PmixData)
DTRUN_MESSAGE(PmixPublish)
DTRUN_MESSAGE(PmixLookup)
DTRUN_MESSAGE(PmixUnpublish)
DTRUN_MESSAGE(PmixSpawn)
DTRUN_MESSAGE(PmixPart)
DTRUN_MESSAGE(PmixWhole)
DTRUN_MESSAGE(PmixAsk)
DTRUN_MESSAGE(PmixTold)

Bytes pmix_encode_item(const PmixItem& item) {
    Bytes bytes;
    PackWriter writer(bytes);
    pack(writer, item);
    return bytes;
}

Result<PmixItem> pmix_decode_item(std::string_view bytes) {
    return unpacked<PmixItem>(bytes, "value");
}

Result<std::optional<PmixFrame>> PmixFrames::next() {
    const std::string_view left = std::string_view(bytes_).substr(taken_);
    std::uint32_t size = 0;
    if (left.size() >= kHeadBytes) std::memcpy(&size, left.data(), sizeof size);
    size = ntohl(size);
    if (size > kPayloadBytesMax)
        return fail(Errc::invalid_input, "a message of PMIx of {} bytes", size);
    if (left.size() < kHeadBytes || left.size() - kHeadBytes < size) {
        bytes_.erase(0, taken_);
        taken_ = 0;
        return std::nullopt;
    }
    PmixFrame frame{static_cast<PmixKind>(left[sizeof size]),
                    std::string(left.substr(kHeadBytes, size))};
    taken_ += kHeadBytes + size;
    return frame;
}

}  // namespace dtrun::mpi
