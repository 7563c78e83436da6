#include "launcher/head/stacks_text.h"

#include "base/strings.h"
#include "base/utf8.h"
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
constexpr std::size_t kBlocksMax = 500;

bool is_same(const ProcessStacks& one, const ProcessStacks& other) {
    return one.is_child == other.is_child && one.tool == other.tool &&
           one.program == other.program && one.note == other.note && one.threads == other.threads;
}

void add_threads(const ProcessStacks& process, std::vector<std::string>& lines) {
    for (const ThreadStack& thread : process.threads) {
        lines.push_back(thread.count == 1
                            ? fmt::format("  thread {}", thread.name)
                            : fmt::format("  {} threads such as {}", thread.count, thread.name));
        for (const std::string& frame : thread.frames) lines.push_back("    " + frame);
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

std::vector<std::string> FoldedStacks::text(const HostOf& host_of, std::size_t lines_max) const {
    std::vector<const Block*> blocks;
    for (const Block& block : blocks_) blocks.push_back(&block);
    // Where a block stands among the others.
    std::ranges::sort(blocks, {}, [](const Block* block) {
        const auto tool = std::ranges::find(kTools, block->first.tool) - kTools.begin();
        return std::tuple(block->first.is_child, tool, -static_cast<long>(block->processes),
                          *block->ranks.begin());
    });
    std::vector<std::string> lines;
    for (const Block* const block : blocks) {
        lines.push_back(title(*block, host_of));
        add_threads(block->first, lines);
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

}  // namespace dtrun::head
