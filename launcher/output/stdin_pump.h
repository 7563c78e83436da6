#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/numbered.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::output {

/// Passes dtrun's standard input on to hosts: as fast as the slowest takes it, at most kWindowBytes
/// ahead. A file is read from where the caller has got to. A terminal is only read while dtrun is in its foreground.
///
/// Thread: the executor's, which must not run any more when the pump is destroyed.
class StdinPump {
public:
    /// \param hosts  those that get the input
    /// \param send   called with each piece for every host; an empty one is the end of input
    StdinPump(asio::any_io_executor executor, std::vector<HostId> hosts,
              std::function<void(HostId host, std::string_view bytes)> send);

    /// Ranks run, or run again: they get the input that earlier ranks have not got, and its end.
    void start();
    void pause();  ///< there are no ranks until start()
    void credit(HostId host, std::uint64_t bytes);
    void host_gone(HostId host);
    void resume();  ///< dtrun may be in the foreground now
    void stop() noexcept;

    /// Input of somebody else's, besides what is read. It is kept while there are no ranks.
    void inject(std::string_view bytes);
    bool ended() const { return ended_; }
    bool has_room() const { return room() > 0 && kept_.empty(); }
    /// \param filter  called with what was read, returns what is to be passed on of it
    void set_filter(std::function<std::string(std::string_view)> filter) {
        filter_ = std::move(filter);
    }

    static constexpr std::uint64_t kWindowBytes = 256u << 10;

private:
    struct Receiver {
        HostId host{};
        std::uint64_t under_way = 0;
    };

    std::uint64_t room() const;
    bool may_read() const;
    void open();
    void wait();
    void read();
    void deliver(std::string_view bytes);
    void send(std::string_view bytes);

    asio::any_io_executor executor_;
    std::vector<Receiver> receivers_;
    std::function<void(HostId, std::string_view)> send_;
    std::function<std::string(std::string_view)> filter_;
    /// A description of our own, to leave the flags of the shared one alone; a file's is the shared one, for
    /// its offset.
    Fd input_;
    std::unique_ptr<asio::posix::stream_descriptor> watch_;  ///< null for a file, always ready
    bool waiting_ = false;
    bool paused_ = true;
    bool ended_ = false;  ///< everybody was told of the end of input
    std::string kept_;    ///< was injected while there were no ranks
};

}  // namespace dtrun::output
