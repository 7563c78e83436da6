#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

namespace dtrun::log {
namespace {

/// Standard error by default, or whoever owns the terminal at the moment.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
public:
    void redirect(void (*sink)(void*, std::string_view), void* context) {
        const std::lock_guard lock(mutex_);
        sink_function_ = sink;
        context_ = context;
    }

protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        const std::string_view text(line.data(), line.size());
        if (sink_function_ != nullptr) {
            sink_function_(context_, text);
        } else if (::write(STDERR_FILENO, text.data(), text.size()) < 0) {
            return;  // nowhere left to complain
        }
    }
    void flush_() override {}

private:
    void (*sink_function_)(void*, std::string_view) = nullptr;
    void* context_ = nullptr;
};

std::shared_ptr<Sink> shared_sink() {
    static const auto sink = std::make_shared<Sink>();
    return sink;
}

spdlog::logger& logger() {
    static const auto instance = [] {
        auto made = std::make_shared<spdlog::logger>("dtrun", shared_sink());
        made->set_formatter(std::make_unique<spdlog::pattern_formatter>(
            "%n: %v", spdlog::pattern_time_type::local, "\n"));
        made->set_level(spdlog::level::warn);
        return made;
    }();
    return *instance;
}

std::string& speaker() {
    static std::string name = "dtrun";
    return name;
}

spdlog::level::level_enum to_spdlog(Level level) {
    switch (level) {
        case Level::quiet:
            return spdlog::level::err;
        case Level::normal:
            return spdlog::level::warn;
        case Level::verbose:
            return spdlog::level::info;
        case Level::debug:
            return spdlog::level::debug;
    }
    return spdlog::level::err;
}

}  // namespace

void init(std::string_view name, Level level) {
    speaker() = name;
    logger().set_formatter(std::make_unique<spdlog::pattern_formatter>(
        level == Level::debug ? "%H:%M:%S.%e " + speaker() + ": %v" : speaker() + ": %v",
        spdlog::pattern_time_type::local, "\n"));
    logger().set_level(to_spdlog(level));
}

void set_sink(void (*sink)(void*, std::string_view), void* context) {
    shared_sink()->redirect(sink, context);
}

bool enabled(Level level) {
    return logger().should_log(to_spdlog(level));
}

void write(Level level, std::string_view text) {
    const auto unprintable = [](char c) {
        return (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == 127;
    };
    if (std::ranges::none_of(text, unprintable)) return logger().log(to_spdlog(level), text);
    // What users and hosts say must not steer the terminal.
    std::string shown;
    for (const char c : text) {
        if (unprintable(c))
            shown += fmt::format("\\x{:02x}", c);
        else
            shown += c;
    }
    logger().log(to_spdlog(level), shown);
}

}  // namespace dtrun::log
