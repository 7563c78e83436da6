#include "worker/ranks/stack_text.h"

#include "base/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
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

/// Without what differs between hosts that have the same Python, the same modules and the same program elsewhere.
std::string_view short_file(std::string_view file, std::string_view directory) {
    for (const std::string_view modules :
         {"/site-packages/", "/dist-packages/", "/lib/dtrun/python/"})
        if (const std::size_t at = file.rfind(modules); at != file.npos)
            return file.substr(at + modules.size());
    constexpr std::string_view kLibrary = "/lib/python";
    if (const std::size_t at = file.rfind(kLibrary); at != file.npos)
        if (const std::size_t end = file.find('/', at + kLibrary.size()); end != file.npos)
            return file.substr(end + 1);
    const bool is_below = file.starts_with(directory) && !directory.empty() &&
                          file.substr(directory.size()).starts_with('/');
    return is_below ? file.substr(directory.size() + 1) : file;
}

void add_utf8(std::uint32_t point, std::string& text) {
    const auto add = [&text](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (point < 0x80) return add(point);
    if (point < 0x800) {
        add(0xc0 | point >> 6);
    } else {
        if (point < 0x10000) {
            add(0xe0 | point >> 12);
        } else {
            add(0xf0 | point >> 18);
            add(0x80 | (point >> 12 & 0x3f));
        }
        add(0x80 | (point >> 6 & 0x3f));
    }
    add(0x80 | (point & 0x3f));
}

/// The character that faulthandler, which writes ASCII alone, has as "\xe4", "\u4e2d" or "\U0001f600".
std::optional<std::uint32_t> escaped(std::string_view text, std::size_t& length) {
    if (text.size() < 2 || text[0] != '\\') return std::nullopt;
    const std::size_t digits = text[1] == 'x' ? 2 : text[1] == 'u' ? 4 : text[1] == 'U' ? 8 : 0;
    length = 2 + digits;
    if (digits == 0 || text.size() < length) return std::nullopt;
    std::uint32_t point = 0;
    const char* const end = text.data() + length;
    const auto read = std::from_chars(text.data() + 2, end, point, 16);
    const bool is_character = point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
    if (read.ec != std::errc{} || read.ptr != end || !is_character) return std::nullopt;
    return point;
}

std::string unescaped(std::string_view text) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t length = 0;
        if (const auto point = escaped(text.substr(at), length)) {
            add_utf8(*point, result);
            at += length;
        } else {
            result.push_back(text[at++]);
        }
    }
    return result;
}

/// "f (a/b.py:3)" of `  File "/src/a/b.py", line 3 in f`. What is not known is "???" there.
std::optional<std::string> python_frame(std::string_view line, std::string_view directory) {
    constexpr std::string_view kFile = "  File ", kLine = ", line ", kFunction = " in ";
    if (!line.starts_with(kFile)) {
        // "  <no Python frame>", "  ...", "  Garbage-collecting"
        if (!line.starts_with("  ") || line.size() < 3 || line[2] == ' ') return std::nullopt;
        return line == "  ..." ? "…" : std::string(line.substr(2));
    }
    line.remove_prefix(kFile.size());
    const std::size_t number = line.rfind(kLine);
    if (number == line.npos) return std::nullopt;
    const std::size_t function = line.find(kFunction, number + kLine.size());
    if (function == line.npos) return std::nullopt;
    std::string_view file = line.substr(0, number);
    if (file.size() > 1 && file.starts_with('"') && file.ends_with('"'))
        file = file.substr(1, file.size() - 2);
    const std::string path = unescaped(file);
    const std::size_t first = number + kLine.size();
    return fmt::format("{} ({}:{})", unescaped(line.substr(function + kFunction.size())),
                       short_file(path, directory), line.substr(first, function - first));
}

/// The name of the thread of which this line is the first; nothing: it is no such line. Before 3.14 none has a name.
std::optional<std::string> python_thread(std::string_view line) {
    constexpr std::string_view kEnd = " (most recent call first):";
    if (!line.ends_with(kEnd)) return std::nullopt;
    line.remove_suffix(kEnd.size());
    if (!line.starts_with("Thread 0x") && !line.starts_with("Current thread 0x"))
        return std::nullopt;
    const std::size_t name = line.find(" [");
    if (name == line.npos || !line.ends_with(']')) return "";
    return unescaped(line.substr(name + 2, line.size() - name - 3));
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

std::vector<ThreadStack> parse_faulthandler(std::string_view text, std::string_view directory) {
    std::vector<ThreadStack> threads;
    bool in_thread = false, all = true;
    for (const std::string_view line : split(text, '\n')) {
        if (auto name = python_thread(line)) {
            threads.push_back({.name = std::move(*name), .frames = {}});
            in_thread = true;
        } else if (!line.starts_with(' ')) {
            in_thread = false;  // what follows may be the stack of C functions
            all = all && line != "...";
        } else if (in_thread) {
            if (auto frame = python_frame(line, directory))
                threads.back().frames.push_back(std::move(*frame));
        }
    }
    // It begins with the youngest.
    if (!threads.empty() && all) threads.back().name = kMainThread;
    std::ranges::reverse(threads);
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
    const auto main = std::ranges::find(threads, kMainThread, &ThreadStack::name);
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

std::string_view status_value(std::string_view text, std::string_view name) {
    for (const std::string_view line : split(text, '\n'))
        if (line.starts_with(name) && line.substr(name.size()).starts_with(':'))
            return trim(line.substr(name.size() + 1));
    return {};
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
