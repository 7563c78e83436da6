#pragma once

#include "base/fd.h"
#include "collectives/backends/tcp/address.h"
#include "collectives/backends/tcp/socket.h"
#include "tests/collectives/support/memory_store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dtrun::collectives {

/// Somebody on the way to a rank, who passes on what its peers say and keeps a copy.
class Tap {
public:
    /// What becomes of a connection, by its number from 0.
    enum class Way { pass, hold, close };

    explicit Tap(const sockaddr_storage& to) : to_(to) {
        auto listener = over_tcp::Socket::listen("127.0.0.1");
        if (listener) listener_ = std::move(*listener);
        thread_ = std::thread([this] { run(); });
    }
    ~Tap() {
        ended_ = true;
        wake();
        thread_.join();
    }
    Tap(const Tap&) = delete;
    Tap& operator=(const Tap&) = delete;

    sockaddr_storage address() const { return listener_.local_address(); }
    const sockaddr_storage& beyond() const { return to_; }
    /// What happens to connections that come from now on; those that are held are passed on if it is `pass`. A
    /// connection that is closed is heard first, and is the last one.
    void set(Way way) {
        way_ = way;
        wake();
    }
    /// All that was said by who connects, of all connections.
    std::string heard() const {
        const std::lock_guard lock(mutex_);
        return heard_;
    }
    /// Waits until connection `number` has said so much. \return what it has said
    std::string wait_for(std::size_t number, std::size_t bytes) {
        std::unique_lock lock(mutex_);
        said_more_.wait(lock,
                        [&] { return said_.size() > number && said_[number].size() >= bytes; });
        return said_[number];
    }

private:
    struct Through {
        std::size_t number = 0;
        Way way = Way::pass;
        over_tcp::Socket near{};
        over_tcp::Socket far{};  ///< once it is passed on
        std::string to_far{};
        std::string to_near{};
    };

    void wake() {
        const std::uint64_t one = 1;
        static_cast<void>(!::write(event_.get(), &one, sizeof one));
    }

    void run() {
        while (!ended_) {
            std::vector<pollfd> waits{{event_.get(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
            for (const Through& one : all_) {
                waits.push_back({one.near.fd(), events(one.to_near), 0});
                if (one.far) waits.push_back({one.far.fd(), events(one.to_far), 0});
            }
            ::poll(waits.data(), waits.size(), -1);
            std::uint64_t ignored = 0;
            if (waits[0].revents != 0)
                static_cast<void>(!::read(event_.get(), &ignored, sizeof ignored));
            if (over_tcp::Socket socket = listener_.accept(); socket) {
                const std::lock_guard lock(mutex_);
                all_.push_back({said_.size(), way_, std::move(socket)});
                said_.emplace_back();
            }
            std::erase_if(all_, [this](Through& one) { return !move(one); });
        }
    }

    static short events(const std::string& out) {
        return static_cast<short>(out.empty() ? POLLIN : POLLIN | POLLOUT);
    }

    /// \return whether the connection goes on
    bool move(Through& one) {
        std::string come;
        const bool near_open = take(one.near, come);
        one.to_far += come;
        if (!come.empty()) {
            const std::lock_guard lock(mutex_);
            heard_ += come;
            said_[one.number] += come;
            said_more_.notify_all();
        }
        if (one.way == Way::close && !come.empty()) {
            way_ = Way::pass;
            return false;
        }
        if (one.way == Way::hold) one.way = way_;
        if (one.way != Way::pass) return near_open;
        if (!one.far) {
            auto socket = over_tcp::Socket::connect(to_);
            if (!socket) return false;
            one.far = std::move(*socket);
        }
        const bool far_open = take(one.far, one.to_near);
        give(one.far, one.to_far);
        give(one.near, one.to_near);
        return near_open && far_open;
    }

    static bool take(const over_tcp::Socket& socket, std::string& to) {
        std::vector<char> room(64 << 10);
        for (;;) {
            const auto come = socket.receive(room.data(), room.size());
            if (!come) return false;
            if (*come == 0) return true;
            to.append(room.data(), *come);
        }
    }
    static void give(const over_tcp::Socket& socket, std::string& from) {
        const iovec part{from.data(), from.size()};
        if (!from.empty()) from.erase(0, socket.send({&part, 1}).value_or(0));
    }

    const sockaddr_storage to_;
    over_tcp::Socket listener_;
    Fd event_{::eventfd(0, EFD_CLOEXEC)};
    std::atomic<bool> ended_ = false;
    std::atomic<Way> way_ = Way::pass;
    std::list<Through> all_;
    mutable std::mutex mutex_;
    std::condition_variable said_more_;
    std::string heard_;
    std::vector<std::string> said_;
    std::thread thread_;
};

/// A store in which rank 1 of a group, whose prefix is "test/", seems to be where a tap is.
class TappedStore final : public KeyStore {
public:
    Result<void> set(std::span<const Pair> pairs) override {
        std::vector<Pair> changed(pairs.begin(), pairs.end());
        for (auto& [key, value] : changed)
            if (key == "test/tcp/1") value = tapped(value);
        return inner_.set(changed);
    }
    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         std::chrono::milliseconds timeout) override {
        return inner_.get(keys, timeout);
    }
    Result<std::optional<std::string>> find(const std::string& key) override {
        return inner_.find(key);
    }
    /// Once rank 1 has said where it is.
    Tap& tap() { return *tap_; }

private:
    std::string tapped(const std::string& card) {
        const std::size_t end = card.find(' ', card.find(' ') + 1);
        const auto address = over_tcp::parse_address(card.substr(0, end));
        if (!address) return card;
        tap_ = std::make_unique<Tap>(*address);
        return over_tcp::text_of(tap_->address()) + (end == card.npos ? "" : card.substr(end));
    }

    MemoryStore inner_;
    std::unique_ptr<Tap> tap_;
};

}  // namespace dtrun::collectives
