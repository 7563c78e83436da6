#pragma once

#include "base/numbered.h"
#include "base/result.h"
#include "rendezvous/wire/frame.h"

#include <cstdint>
#include <string_view>

namespace dtrun {

// Messages are structs. Each is sent as a MessagePack map from field name to value: unknown fields are
// ignored, and missing ones keep the default that the struct gives them. A struct's `fields` is the one
// place that names them; encode() and decode() are made from it. messages.def lists all messages.

/// Version of this protocol; both sides must have the same.
inline constexpr std::uint16_t kProtocolVersion = 3;

#define DTRUN_FRAME(name, number, from_to, meaning)
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) struct Message;
#include "rendezvous/wire/messages.def"

enum class Secrecy : std::uint8_t {
    open,
    secret,  ///< holds a secret: the caller of encode() wipes the frame
};

/// Which frame carries a message; only for the structs that messages.def lists.
template <class Message>
struct MessageTraits;
#define DTRUN_FRAME(name, number, from_to, meaning)
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) \
    template <>                                                         \
    struct MessageTraits<Message> {                                     \
        static constexpr FrameType kType = FrameType::name;             \
        static constexpr Secrecy kSecrecy = Secrecy::secrecy;           \
    };
#include "rendezvous/wire/messages.def"

/// A whole frame, ready to be sent. The frame of a message that holds a secret is the only copy that
/// is made of it.
template <class Message>
Bytes encode(const Message& message);

/// Errc: invalid_input
template <class Message>
Result<Message> decode(std::string_view payload);

}  // namespace dtrun
