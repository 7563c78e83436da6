#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

/// GPUs that are none: memory of the host that is known to be theirs, and streams that are threads.
namespace fake {

/// Does one work after the other.
class Stream {
public:
    Stream() : thread_([this] { run(); }) {}
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void enqueue(std::function<void()> work);
    bool idle();
    void wait_until_idle();

private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::condition_variable idle_;
    std::deque<std::function<void()>> works_;
    bool working_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

/// Of a handle of the runtime's interface; nullptr is the default stream.
Stream& stream_of(void* handle);

/// Whether all of these bytes are memory of a GPU.
bool is_device_memory(const void* data, std::size_t bytes);

int current_device();

}  // namespace fake
