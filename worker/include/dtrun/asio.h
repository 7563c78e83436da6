/// A worker in a program whose loop is Asio's: its requests as asynchronous operations. Header only; Boost's Asio, or the
/// one without Boost if DTRUN_STANDALONE_ASIO is defined. The library itself needs neither.
///
///     dtrun::AsioWorker store(context.get_executor(), worker);
///     dtrun::Answer answer = co_await store.ask({DTRUN_OP_GET, {"address"}}, asio::use_awaitable);
#pragma once

#include <dtrun/worker.h>

#if defined(DTRUN_STANDALONE_ASIO)
#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <system_error>
#else
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>
#endif

#include <fcntl.h>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace dtrun {
inline namespace v0 {

// One program may have parts with either of them, which are two types then.
#if defined(DTRUN_STANDALONE_ASIO)
inline namespace standalone {
namespace asio = ::asio;
using AsioError = std::error_code;
#else
inline namespace with_boost {
namespace asio = ::boost::asio;
using AsioError = boost::system::error_code;
#endif

/// Requests of one worker in one executor, which has one thread or is a strand. The worker outlives it; what is under way
/// when it ends is not answered, and Worker::finalize() in that thread ends it with CLOSED. What is asked elsewhere in
/// the same membership by Worker::submit() is answered here, too.
class AsioWorker {
public:
    using OnEvent = std::function<void(const Event&)>;

    /// \param on_event  is given the events that come while something is under way; without it nobody has them
    AsioWorker(const asio::any_io_executor& executor, Worker& worker, OnEvent on_event = ignore)
        : worker_(worker),
          descriptor_(executor, ::fcntl(worker.event_fd(), F_DUPFD_CLOEXEC, 0)),
          on_event_(std::move(on_event)) {}
    AsioWorker(const AsioWorker&) = delete;
    AsioWorker& operator=(const AsioWorker&) = delete;

    /// Completes with an Answer, which is an error if the request could not be asked. Cancelling it cancels the request,
    /// and the answer says whether it was done. What `request` views has to live until the operation is started, which
    /// for asio::use_awaitable is when it is awaited.
    template <class Token>
    auto ask(const Submission& request, Token&& token) {
        return asio::async_initiate<Token, void(Answer)>(
            [this, asked = request](auto handler) { begin(asked, std::move(handler)); }, token);
    }

private:
    using UnderWay = std::map<std::uint64_t, std::function<void(Answer)>>;

    static void ignore(const Event&) {}

    template <class Handler>
    void begin(const Submission& request, Handler handler) {
        const auto executor = asio::get_associated_executor(handler, descriptor_.get_executor());
        auto slot = asio::get_associated_cancellation_slot(handler);
        // A std::function can be copied, which not every handler can.
        const auto shared = std::make_shared<Handler>(std::move(handler));
        const auto answer_with = [executor, shared](Answer answer) {
            asio::post(executor, [shared, answer = std::move(answer)]() mutable {
                std::move (*shared)(std::move(answer));
            });
        };
        const std::uint64_t key = ++last_key_;
        under_way_->emplace(key, [slot, answer_with](Answer answer) mutable {
            if (slot.is_connected()) slot.clear();
            answer_with(std::move(answer));
        });
        const std::weak_ptr<UnderWay> ours = under_way_;
        const auto answered = [this, ours, key](Answer answer) {
            const auto under_way = ours.lock();
            if (!under_way) return;
            if (auto found = under_way->extract(key)) found.mapped()(std::move(answer));
            if (under_way->empty()) stop_watching();
        };
        std::uint64_t id = 0;
        try {
            id = worker_.submit(request, answered);
        } catch (const Error& error) {
            under_way_->erase(key);
            Answer answer;
            answer.error = error;
            return answer_with(std::move(answer));
        }
        if (slot.is_connected())
            slot.assign([this, ours, id](asio::cancellation_type) {
                if (!ours.expired()) (void)worker_.cancel(id);
            });
        watch();
    }

    /// Until nothing is under way.
    void watch() {
        if (watches_ || under_way_->empty()) return;
        watches_ = true;
        const std::weak_ptr<UnderWay> ours = under_way_;
        descriptor_.async_wait(descriptor_.wait_read, [this, ours](const AsioError& error) {
            if (error || ours.expired()) return;  // also if it has ended between the wait and this
            watches_ = false;
            const WatchAgain again{*this};  // also if a function of the program throws
            ready();
        });
    }

    void stop_watching() {
        if (!watches_) return;
        watches_ = false;
        descriptor_.cancel();
    }

    struct WatchAgain {
        AsioWorker& worker;
        ~WatchAgain() { worker.watch(); }
    };

    void ready() {
        try {
            (void)worker_.poll();
        } catch (const Error&) {
            // The connection has gone: poll() has given all their answers before it says so.
        }
        try {
            while (const auto event = worker_.next_event(std::chrono::milliseconds(0)))
                on_event_(*event);
        } catch (const Error&) {
            // It has gone, and these were the last ones; or this is a forked child, which has none.
        }
    }

    Worker& worker_;
    asio::posix::stream_descriptor descriptor_;
    OnEvent on_event_;
    bool watches_ = false;
    std::uint64_t last_key_ = 0;
    // The worker has no handlers of ours: they must not outlive their executor, and it may.
    std::shared_ptr<UnderWay> under_way_ = std::make_shared<UnderWay>();
};

}  // the namespace of the Asio that it is made with
}  // namespace v0
}  // namespace dtrun
