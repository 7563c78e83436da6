#include "rendezvous/links/refuse.h"

#include "base/loop/deadline.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/message.h"

#include <chrono>
#include <utility>

namespace dtrun {
namespace {

constexpr std::chrono::seconds kRefusalLimit{1};  // for the peer to read it

}  // namespace

asio::awaitable<void> refuse(Link& link, std::string why) {
    link.send(encode(Refuse{std::move(why), false}));
    co_await link.finish(after(kRefusalLimit));
}

}  // namespace dtrun
