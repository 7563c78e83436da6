#pragma once

#include "base/fd.h"
#include "launcher/output/output_mux.h"
#include "rendezvous/wire/output_messages.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// The first two ranks of a plan.
inline constexpr plan::SlotId r0{0}, r1{1};
constexpr plan::SlotId planned(int rank) {
    return static_cast<plan::SlotId>(rank);
}

using namespace output;

inline Deadline soon() {
    return after(std::chrono::seconds(60));
}

/// A file in memory, and what was written to it.
class MemoryFile {
public:
    MemoryFile() : fd_(::memfd_create("output", MFD_CLOEXEC)) {}
    int fd() const { return fd_.get(); }
    std::string text() const {
        struct stat file {};
        REQUIRE(::fstat(fd_.get(), &file) == 0);
        std::string bytes(static_cast<std::size_t>(file.st_size), '\0');
        REQUIRE(::pread(fd_.get(), bytes.data(), bytes.size(), 0) == file.st_size);
        return bytes;
    }

private:
    Fd fd_;
};

/// A generator whose seed is shown with every failure that it has a part in.
class Dice {
public:
    explicit Dice(unsigned seed = test_seed()) : seed_(seed), engine_(seed) {}
    unsigned seed() const { return seed_; }
    std::size_t upto(std::size_t max) {
        return std::uniform_int_distribution<std::size_t>(0, max)(engine_);
    }
    /// Bytes of which many end lines.
    std::string bytes(std::size_t size) {
        constexpr std::string_view kLikely("ab\n\n\r\r\n\0\xff", 9);
        std::string made;
        while (made.size() < size) {
            if (upto(20) == 0) made += "\r\n";
            if (upto(10) == 0) made.append(upto(200), 'x');
            made += kLikely[upto(kLikely.size() - 1)];
        }
        return made;
    }
    /// `bytes` in pieces of 1..max bytes.
    std::vector<std::string_view> split(std::string_view bytes, std::size_t max) {
        std::vector<std::string_view> pieces;
        while (!bytes.empty()) {
            pieces.push_back(bytes.substr(0, 1 + upto(max - 1)));
            bytes.remove_prefix(pieces.back().size());
        }
        return pieces;
    }

private:
    unsigned seed_;
    std::mt19937 engine_;
};

/// The lines of `bytes` with their ends, as plainly as it can be said. The last may have none.
inline std::vector<std::string> lines_of(std::string_view bytes) {
    std::vector<std::string> lines;
    std::string line;
    for (std::size_t i = 0; i < bytes.size(); i++) {
        line += bytes[i];
        const bool crlf = bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] == '\n';
        if (bytes[i] == '\n' || (bytes[i] == '\r' && !crlf)) {
            lines.push_back(line);
            line.clear();
        }
    }
    if (!line.empty()) lines.push_back(line);
    return lines;
}

/// What a console should show of one stream that has ended.
inline std::string shown(std::string_view prefix, std::string_view bytes, std::size_t line_max) {
    const std::string_view cut = prefix.empty() ? "" : "\n";
    std::string text;
    for (std::string line : lines_of(bytes)) {
        std::size_t content = std::min(line.find_first_of("\r\n"), line.size());
        const bool ended = content < line.size();
        while (content > line_max) {
            text.append(prefix).append(line.substr(0, line_max)).append(cut);
            line.erase(0, line_max);
            content -= line_max;
        }
        text.append(prefix).append(line).append(ended ? "" : cut);
    }
    return text;
}

/// An OutputMux with somebody who collects, and counts.
class MuxUser {
public:
    MuxUser(OutputOptions options, std::vector<std::string> hosts) {
        auto made = OutputMux::create(std::move(options), std::move(hosts), [this] { ring(); });
        REQUIRE(made.has_value());
        mux_ = std::move(*made);
    }

    OutputMux* operator->() { return mux_.get(); }

    void collect() {
        for (const OutputCredit& credit : mux_->collect()) {
            CHECK(credit.bytes > 0);
            credited_[stream_index(credit.rank, credit.stream)] += credit.bytes;
        }
        for (Error& failure : mux_->take_failures()) failures.push_back(std::move(failure));
    }
    /// Collects when woken, until nothing is under way any more; false if that takes too long.
    bool drain(Deadline deadline = soon()) {
        for (;;) {
            collect();
            if (mux_->idle()) return true;
            std::unique_lock lock(mutex_);
            if (!changed_.wait_until(lock, deadline, [this] { return rung_; })) return false;
            rung_ = false;
        }
    }
    std::size_t credited(plan::SlotId rank, Stream stream) {
        return credited_[stream_index(rank, stream)];
    }

    std::vector<Error> failures;

private:
    void ring() {
        const std::lock_guard lock(mutex_);
        rung_ = true;
        changed_.notify_one();
    }

    std::map<std::size_t, std::size_t> credited_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool rung_ = false;
    std::unique_ptr<OutputMux> mux_;  // last: its threads ring
};

}  // namespace dtrun
