#include "launcher/head/stacks_text.h"

#include "base/strings.h"
#include "launcher/head/report.h"
#include "launcher/plan/rank_set.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace dtrun::head {
namespace {

constexpr std::array<std::string_view, 3> kTools{"py-spy", "gdb", "/proc"};

/// Processes that are at the same place.
struct Block {
    const ProcessStacks* first = nullptr;
    std::set<Rank> ranks{};
    std::size_t processes = 0;
};

bool is_same(const ProcessStacks& one, const ProcessStacks& other) {
    return one.is_child == other.is_child && one.tool == other.tool &&
           one.program == other.program && one.note == other.note && one.threads == other.threads;
}

std::vector<Block> fold(const std::vector<ProcessStacks>& processes) {
    std::vector<Block> blocks;
    for (const ProcessStacks& process : processes) {
        auto found = std::ranges::find_if(
            blocks, [&process](const Block& block) { return is_same(*block.first, process); });
        if (found == blocks.end()) found = blocks.insert(blocks.end(), Block{&process});
        found->ranks.insert(process.rank);
        ++found->processes;
    }
    return blocks;
}

/// Where a block stands among the others.
auto place_of(const Block& block) {
    const auto tool = std::ranges::find(kTools, block.first->tool) - kTools.begin();
    return std::tuple(block.first->is_child, tool, -static_cast<long>(block.processes),
                      *block.ranks.begin());
}

/// "ranks 0-6 (7)", or for one process "rank 7 on s2, pid 12".
std::string who(const Block& block, const std::function<std::string(Rank)>& host_of) {
    const ProcessStacks& first = *block.first;
    if (block.processes == 1)
        return fmt::format("rank {} on {}, pid {}", first.rank, host_of(first.rank), first.pid);
    const std::vector<Rank> ranks(block.ranks.begin(), block.ranks.end());
    return fmt::format("rank{} {} ({})", ranks.size() == 1 ? "" : "s", plan::rank_ranges(ranks),
                       block.processes);
}

std::string title(const Block& block, const std::function<std::string(Rank)>& host_of) {
    const ProcessStacks& first = *block.first;
    std::string text = who(block, host_of);
    if (first.is_child) text += ", started by " + std::string(block.processes == 1 ? "it" : "them");
    text += fmt::format(": {}, by {}", first.program, first.tool);
    if (!first.note.empty()) text += fmt::format(" ({})", first.note);
    return text;
}

void add_threads(const Block& block, std::vector<std::string>& lines) {
    for (const ThreadStack& thread : block.first->threads) {
        lines.push_back(thread.count == 1
                            ? fmt::format("  thread {}", thread.name)
                            : fmt::format("  {} threads such as {}", thread.count, thread.name));
        for (const std::string& frame : thread.frames) lines.push_back("    " + frame);
    }
}

}  // namespace

std::vector<std::string> stacks_text(const std::vector<ProcessStacks>& processes,
                                     const std::function<std::string(Rank)>& host_of,
                                     std::size_t lines_max) {
    std::vector<Block> blocks = fold(processes);
    std::ranges::sort(blocks, {}, place_of);
    std::vector<std::string> lines;
    for (const Block& block : blocks) {
        lines.push_back(title(block, host_of));
        add_threads(block, lines);
    }
    for (std::string& line : lines) line = printable(line);
    if (lines.size() <= lines_max) return lines;
    const std::size_t more = lines.size() - lines_max;
    lines.resize(lines_max);
    lines.push_back(fmt::format("… and {} more lines", more));
    return lines;
}

}  // namespace dtrun::head
