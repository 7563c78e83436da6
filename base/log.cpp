#include "base/log.h"

#include "base/message_writer.h"
#include "base/utf8.h"

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

std::string& speaker() {
    static std::string name = "dtrun";
    return name;
}

/// Writes lines to standard error, or to the function that set_sink() has set.
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
        if (sink_function_ != nullptr)
            sink_function_(context_, text);
        else
            standard_error_.write(text, speaker());
    }
    void flush_() override {}

private:
    void (*sink_function_)(void*, std::string_view) = nullptr;
    void* context_ = nullptr;
    MessageWriter standard_error_{STDERR_FILENO};
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
    // What users and hosts say must not steer the terminal, nor begin a line as if we said it.
    std::string shown;
    while (!text.empty()) {
        const std::size_t control = control_length(text);
        for (const char byte : text.substr(0, control))
            shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
        const std::size_t whole = std::max<std::size_t>(utf8_length(text), 1);
        if (control == 0) shown += text.substr(0, whole);
        const bool goes_on = text.front() == '\n' && text.size() > 1;
        if (goes_on && text[1] != ' ' && text[1] != '\n') shown += "  ";
        text.remove_prefix(control > 0 ? control : whole);
    }
    logger().log(to_spdlog(level), shown);
}

}  // namespace dtrun::log
