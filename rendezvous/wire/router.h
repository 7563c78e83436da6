#pragma once

#include "base/result.h"
#include "rendezvous/wire/frame.h"
#include "rendezvous/wire/message.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dtrun {

/// Who receives what comes over a connection. Each part of a program subscribes, where it is made, to the
/// messages that are for it, and a message has one receiver. It belongs here and not to links/, as clients have
/// one as well, which know no event loop.
///
/// \tparam Context  what a receiver is told besides the message, as the host that has sent it
///
/// Thread: one. Lifetime: who has subscribed outlives the last route().
template <class... Context>
class Router {
public:
    /// Takes the payload of a frame. Errc: what route() is to return; invalid_input where it is malformed
    using Receiver = std::function<Result<void>(Context..., std::string_view payload)>;

    /// For frames that are no messages, and for who passes them on unread.
    void on(FrameType type, Receiver receiver) {
        assert(!has(type) && "a message has one receiver");
        receivers_[std::to_underlying(type)] = std::move(receiver);
    }
    /// \param receiver  called with the context and the message; returns nothing, or a Result<void>
    template <class Message, class F>
    void on(F receiver) {
        on(MessageTraits<Message>::kType,
           [receive = std::move(receiver)](Context... context,
                                           std::string_view payload) -> Result<void> {
               auto message = decode<Message>(payload);
               if (!message) return std::unexpected(message.error());
               using Returned = std::invoke_result_t<const F&, Context..., Message>;
               if constexpr (!std::is_void_v<Returned>)
                   return receive(context..., std::move(*message));
               else
                   receive(context..., std::move(*message));
               return {};
           });
    }
    /// As above, by a member function of `part`.
    template <class Message, class Part, class Function>
    void on(Part* part, Function function) {
        on<Message>([part, function](Context... context, Message message) {
            return (part->*function)(context..., std::move(message));
        });
    }

    bool has(FrameType type) const {
        const std::size_t number = std::to_underlying(type);
        return number < receivers_.size() && receivers_[number] != nullptr;
    }
    /// Errc: invalid_input where nobody receives such frames; else the receiver's
    Result<void> route(Context... context, const FrameView& frame) const {
        if (has(frame.type))
            return receivers_[std::to_underlying(frame.type)](context..., frame.payload);
        return fail(Errc::invalid_input, "unexpected frame of type {}",
                    static_cast<int>(frame.type));
    }

private:
    static constexpr std::size_t kTypes = 1 + std::max({
#define DTRUN_FRAME(name, number, from_to, meaning) std::size_t{number},
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) std::size_t{number},
#include "rendezvous/wire/messages.def"
                                              });

    std::array<Receiver, kTypes> receivers_;  ///< by number of the type
};

}  // namespace dtrun
