#include "launcher/inspect/stacks_text.h"

#include "base/strings.h"
#include "base/utf8.h"
#include "launcher/inspect/collective_calls.h"
#include "launcher/plan/rank_set.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace dtrun::inspect {
namespace {

constexpr std::array<std::string_view, 4> kTools{"faulthandler", "py-spy", "gdb", "/proc"};
constexpr std::size_t kBlocksMax = 500;
constexpr std::size_t kInnermost = 8, kOutermost = 4;  // frames of a brief stack

/// Whether functions of Python are what it tells.
bool is_of_python(const ProcessStacks& process) {
    return process.tool == "faulthandler" || process.tool == "py-spy";
}

bool is_same(const ProcessStacks& one, const ProcessStacks& other) {
    return one.is_child == other.is_child && one.tool == other.tool &&
           one.program == other.program && one.note == other.note && one.threads == other.threads;
}

std::string thread_title(const ThreadStack& thread) {
    if (thread.name.empty())
        return thread.count == 1 ? "  another thread"
                                 : fmt::format("  {} other threads", thread.count);
    return thread.count == 1 ? fmt::format("  thread {}", thread.name)
                             : fmt::format("  {} threads such as {}", thread.count, thread.name);
}

void add_threads(const ProcessStacks& process, std::vector<std::string>& lines) {
    for (const ThreadStack& thread : process.threads) {
        lines.push_back(thread_title(thread));
        for (const std::string& frame : thread.frames) lines.push_back("    " + frame);
    }
}

/// Who has called whom is told by both ends; where in the kernel Python waits tells nothing.
void add_main_thread(const ProcessStacks& process, std::vector<std::string>& lines) {
    if (process.threads.empty() || process.tool == "/proc" || !process.note.empty()) return;
    const std::vector<std::string>& frames = process.threads.front().frames;
    const bool is_deep = frames.size() > kInnermost + kOutermost + 1;
    for (std::size_t i = 0; i < frames.size(); ++i) {
        if (is_deep && i == kInnermost) {
            lines.push_back(fmt::format("  … {} frames", frames.size() - kInnermost - kOutermost));
            i = frames.size() - kOutermost;
        }
        lines.push_back("  " + frames[i]);
    }
}

}  // namespace

void FoldedStacks::add(ProcessStacks process) {
    auto found = std::ranges::find_if(
        blocks_, [&process](const Block& block) { return is_same(block.first, process); });
    if (found == blocks_.end() && blocks_.size() == kBlocksMax) return void(++left_out_);
    const Rank rank = process.rank;
    if (found == blocks_.end()) found = blocks_.insert(blocks_.end(), Block{std::move(process)});
    found->ranks.insert(rank);
    ++found->processes;
}

/// "ranks 0-6 (7)", or for one process "rank 7 on s2, pid 12".
std::string FoldedStacks::who(const Block& block, const HostOf& host_of) {
    if (block.processes == 1)
        return fmt::format("rank {} on {}, pid {}", block.first.rank, host_of(block.first.rank),
                           block.first.pid);
    const std::vector<Rank> ranks(block.ranks.begin(), block.ranks.end());
    return fmt::format("rank{} {} ({})", ranks.size() == 1 ? "" : "s", plan::rank_ranges(ranks),
                       block.processes);
}

std::string FoldedStacks::title(const Block& block, const HostOf& host_of) {
    const ProcessStacks& first = block.first;
    std::string text = who(block, host_of);
    if (first.is_child) text += ", started by " + std::string(block.processes == 1 ? "it" : "them");
    text += fmt::format(": {}, by {}", first.program, first.tool);
    if (!first.note.empty()) text += fmt::format(" ({})", first.note);
    return text;
}

std::vector<const FoldedStacks::Block*> FoldedStacks::in_order(Form form) const {
    std::vector<const Block*> blocks;
    for (const Block& block : blocks_)
        if (form == Form::all || !block.first.is_child) blocks.push_back(&block);
    std::ranges::sort(blocks, {}, [](const Block* block) {
        const auto tool = std::ranges::find(kTools, block->first.tool) - kTools.begin();
        return std::tuple(block->first.is_child, tool, -static_cast<long>(block->processes),
                          *block->ranks.begin());
    });
    return blocks;
}

/// What to do about ranks that are Python, and whose functions nobody tells, it is not said why; empty: nothing.
std::string FoldedStacks::advice() const {
    std::set<Rank> silent;
    for (const Block& block : blocks_)
        if (!block.first.is_child && block.first.note.empty() &&
            block.first.program.starts_with("python"))
            silent.insert(block.ranks.begin(), block.ranks.end());
    for (const Block& block : blocks_)
        if (is_of_python(block.first))
            for (const Rank rank : block.ranks) silent.erase(rank);
    if (silent.empty()) return {};
    const std::vector<Rank> ranks(silent.begin(), silent.end());
    return fmt::format(
        "{} {} Python: for its functions install py-spy on the host{} (pip install "
        "py-spy)",
        ranks.size() == 1 ? fmt::format("rank {}", ranks.front())
                          : "ranks " + plan::rank_ranges(ranks),
        ranks.size() == 1 ? "is" : "are", ranks.size() == 1 ? "" : "s");
}

std::vector<std::string> FoldedStacks::summary(std::map<Rank, std::string> ranks) const {
    std::vector<std::string> lines;
    if (std::string what = advice(); !what.empty()) lines.push_back(std::move(what));
    std::map<Rank, std::vector<std::string>> frames;
    for (const Block& block : blocks_) {
        // With a note the main thread is missing.
        const bool is_told =
            is_of_python(block.first) && !block.first.threads.empty() && block.first.note.empty();
        if (block.first.is_child) continue;
        for (const Rank rank : block.ranks) {
            if (is_told)
                frames.emplace(rank, block.first.threads.front().frames);
            else if (const auto of_job = ranks.find(rank); of_job != ranks.end())
                of_job->second = block.first.note;
        }
    }
    std::erase_if(ranks, [&frames](const auto& rank) { return frames.contains(rank.first); });
    for (const std::string& line : who_takes_part(frames, ranks))
        lines.push_back(printable_line(line));
    return lines;
}

std::vector<std::string> FoldedStacks::text(const HostOf& host_of, std::size_t lines_max,
                                            Form form) const {
    std::vector<std::string> lines;
    for (const Block* const block : in_order(form)) {
        lines.push_back(title(*block, host_of));
        if (form == Form::all)
            add_threads(block->first, lines);
        else
            add_main_thread(block->first, lines);
    }
    if (left_out_ > 0)
        lines.push_back(fmt::format("… and {} processes at other places", left_out_));
    for (std::string& line : lines) line = printable_line(line);
    if (lines.size() <= lines_max) return lines;
    const std::size_t more = lines.size() - lines_max;
    lines.resize(lines_max);
    lines.push_back(fmt::format("… and {} more lines", more));
    return lines;
}

}  // namespace dtrun::inspect
