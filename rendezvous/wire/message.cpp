#include "rendezvous/wire/message.h"

#include "rendezvous/wire/control_messages.h"
#include "rendezvous/wire/doctor_messages.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/fields_codec.h"
#include "rendezvous/wire/login_messages.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "rendezvous/wire/warm_messages.h"

#include <algorithm>
#include <cassert>

namespace dtrun {

template <class M>
Bytes encode(const M& message) {
    using Traits = MessageTraits<M>;
    Bytes frame(FrameHeader::kBytes, '\0');
    // A growing buffer would leave copies of the secret on the heap.
    if constexpr (Traits::kSecrecy == Secrecy::secret)
        frame.reserve(frame.size() + packed_bytes_max(message));
    PackWriter writer(frame);
    pack(writer, message);
    const std::size_t payload_bytes = frame.size() - FrameHeader::kBytes;
    assert(payload_bytes <= FrameHeader::kPayloadBytesMax);
    const auto header = encode_header({Traits::kType, static_cast<std::uint32_t>(payload_bytes)});
    std::ranges::copy(header, frame.begin());
    return frame;
}

template <class M>
Result<M> decode(std::string_view payload) {
    PackReader reader(payload);
    M message;
    unpack(reader, message);
    if (!reader.at_end())
        return fail(Errc::invalid_input, "malformed message of type {}",
                    static_cast<int>(MessageTraits<M>::kType));
    return message;
}

#define DTRUN_FRAME(name, number, from_to, meaning)
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) \
    template Bytes encode<Message>(const Message&);                     \
    template Result<Message> decode<Message>(std::string_view);
#include "rendezvous/wire/messages.def"

}  // namespace dtrun
