#include "worker/ranks/stack_text.h"

#include "base/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dtrun::ranks {
namespace {

/// What stands between the first two quotes of a line.
std::string_view quoted(std::string_view line) {
    const std::size_t begin = line.find('"');
    const std::size_t end = begin == line.npos ? line.npos : line.find('"', begin + 1);
    return end == line.npos ? std::string_view() : line.substr(begin + 1, end - begin - 1);
}

/// Without "#12  " and "0x00007f12 in ".
std::string_view without_address(std::string_view frame) {
    frame.remove_prefix(std::min(frame.find(' '), frame.size()));
    frame = trim(frame);
    const std::size_t in = frame.find(" in ");
    if (frame.starts_with("0x") && in != frame.npos) frame.remove_prefix(in + 4);
    return frame;
}

/// "foo at foo.c:12", "foo from libfoo.so": gdb writes "foo (a=..., b=...) at foo.c:12". Names of C++ have
/// parentheses of their own, so that only the last pair is the arguments'.
std::string gdb_frame(std::string_view line) {
    const std::string_view frame = without_address(line);
    std::size_t place = std::min(frame.rfind(" at "), frame.rfind(" from "));
    place = std::min(place, frame.size());
    std::string_view function = trim(frame.substr(0, place));
    if (function.ends_with(')'))
        if (const std::size_t arguments = function.rfind(" ("); arguments != function.npos)
            function = function.substr(0, arguments);
    return std::string(function) + std::string(frame.substr(place));
}

void cut(std::string& frame) {
    if (frame.size() <= kFrameBytesMax) return;
    frame.resize(kFrameBytesMax);
    frame += "…";
}

}  // namespace

std::vector<ThreadStack> parse_gdb(std::string_view text) {
    std::vector<ThreadStack> threads;
    for (const std::string_view line : split(text, '\n')) {
        if (line.starts_with("Thread ") && line.ends_with("):"))
            threads.push_back({.name = std::string(quoted(line)), .frames = {}});
        else if (line.starts_with("Thread ") && line.ends_with("\":"))
            threads.push_back({.name = std::string(quoted(line)), .frames = {}});
        else if (line.starts_with('#') && !threads.empty())
            threads.back().frames.push_back(gdb_frame(line));
    }
    std::ranges::reverse(threads);  // gdb numbers them from the first, and begins with the last
    return threads;
}

std::vector<ThreadStack> parse_py_spy(std::string_view text) {
    std::vector<ThreadStack> threads;
    for (const std::string_view line : split(text, '\n')) {
        if (line.starts_with("Thread "))
            threads.push_back({.name = std::string(quoted(line)), .frames = {}});
        else if (line.starts_with("    ") && !threads.empty())
            threads.back().frames.emplace_back(trim(line));
    }
    const auto main = std::ranges::find(threads, "MainThread", &ThreadStack::name);
    if (main != threads.end()) std::rotate(threads.begin(), main, main + 1);
    return threads;
}

std::vector<std::string> parse_kernel_stack(std::string_view text) {
    std::vector<std::string> frames;
    for (std::string_view line : split(text, '\n')) {
        line = trim(line);
        const std::size_t name = line.find("] ");
        if (!line.starts_with("[<") || name == line.npos) continue;
        line.remove_prefix(name + 2);
        frames.emplace_back(line.substr(0, line.find('+')));
    }
    return frames;
}

std::vector<ThreadStack> fold_threads(std::vector<ThreadStack> threads) {
    std::vector<ThreadStack> folded;
    for (ThreadStack& thread : threads) {
        if (thread.frames.size() > kFramesMax) {
            thread.frames.resize(kFramesMax);
            thread.frames.emplace_back("…");
        }
        std::ranges::for_each(thread.frames, cut);
        cut(thread.name);
        const auto same = std::ranges::find(folded, thread.frames, &ThreadStack::frames);
        if (same != folded.end())
            ++same->count;
        else
            folded.push_back(std::move(thread));
    }
    if (folded.size() <= kThreadsMax) return folded;
    const std::size_t more = folded.size() - kThreadsMax;
    folded.resize(kThreadsMax);
    folded.push_back({.name = fmt::format("and {} more", more), .frames = {}});
    return folded;
}

}  // namespace dtrun::ranks
