#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "base/throttle.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun {

/// Listens at an abstract Unix name that nobody can guess, and that is gone with this process, whatever happens. Other
/// users can connect nevertheless: foreign_user() knows them.
/// \param what  name of the service, for messages: "ranks"
/// \return "@name", as programs are told. Errc: internal
Result<std::string> listen_at_own_name(Unix::acceptor& acceptor, std::string_view what);

/// Logs errors of accept(), throttled.
class AcceptTrouble {
public:
    /// \param what  name of the listening service, e.g. "torch's store"
    explicit AcceptTrouble(std::string what) : what_(std::move(what)) {}
    void tell(const boost::system::error_code& error);

private:
    const std::string what_;
    Throttle throttle_;
};

/// Accepts the next connection, close-on-exec; nothing once `acceptor` is closed. A connection that
/// cannot be accepted for lack of descriptors or memory stays in the backlog, and is retried after
/// a pause.
template <class Acceptor>
asio::awaitable<std::optional<typename Acceptor::protocol_type::socket>> accept_next(
    Acceptor& acceptor, AcceptTrouble& trouble) {
    constexpr std::chrono::milliseconds kPause{50};
    while (acceptor.is_open()) {
        auto [error, socket] = co_await acceptor.async_accept(use_tuple);
        if (error == asio::error::operation_aborted) break;
        if (!error) {
            close_on_exec(socket.native_handle());
            co_return std::move(socket);
        }
        trouble.tell(error);
        Timer pause(acceptor.get_executor(), kPause);
        co_await pause.async_wait(use_tuple);
    }
    co_return std::nullopt;
}

}  // namespace dtrun
