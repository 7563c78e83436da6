#pragma once

#include "launcher/transport/channel.h"
#include "rendezvous/wire/login_messages.h"
#include "rendezvous/wire/sealing.h"

#include <functional>
#include <string>

namespace dtrun::transport {

/// The standard streams of a command on a host to which another host has logged in: an ssh there carries them, and
/// `login_stream` frames from there to here.
class OnwardChannel final : public Channel {
public:
    struct Parts {
        asio::any_io_executor executor;
        std::uint32_t login = 0;  ///< no other has that number
        Seal seal;                ///< login_seal() of it
        std::string address;      ///< of the host, numeric; empty: not known
        std::function<void(const LoginStream&)> send;
        std::function<void()> gone;  ///< called by the destructor: nothing is taken any more
    };
    /// Has the log-in begin.
    OnwardChannel(Parts parts, const LoginOrder& order);
    ~OnwardChannel() override;

    /// What the relay says.
    void take(const LoginStream& said);
    /// The relay says nothing any more. \param why  in words
    void lost(std::string why);

    asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline deadline) override;
    asio::awaitable<Result<void>> write(std::string_view bytes, Deadline deadline) override;
    std::string take_errors() override { return std::exchange(errors_, {}); }
    asio::awaitable<std::string> ending(Deadline deadline) override;
    std::string address() const override { return parts_.address; }
    void close() noexcept override;

private:
    bool is_over() const { return closed_ || !ending_.empty(); }
    void say(LoginEvent event, std::string_view plain = {}, std::uint32_t taken = 0);

    Parts parts_;
    std::string output_, errors_;
    std::string ending_;  ///< what has become of it; empty: not known yet
    bool output_ended_ = false;
    bool closed_ = false;
    std::uint32_t room_ = kLoginInputBytes;
    Timer has_news_;  ///< cancelled when there is something to read, or to know
    Timer has_room_;  ///< cancelled when more may be written, or never
};

}  // namespace dtrun::transport
