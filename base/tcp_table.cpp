#include "base/tcp_table.h"

#include "base/strings.h"

#include <limits>
#include <optional>

namespace dtrun {
namespace {

/// Where each is among the words of a row: slot, both ends, state, queues, timer, retransmits, user, timeout, inode.
enum : std::size_t { kLocal = 1, kRemote = 2, kState = 3, kUser = 7, kInode = 9 };

std::optional<TcpRow> tcp_row(std::string_view line) {
    std::vector<std::string_view> words = split(line, ' ');
    std::erase(words, "");
    if (words.size() <= kInode) return std::nullopt;
    const auto user = to_int(words[kUser], 0, std::numeric_limits<std::uint32_t>::max());
    const auto inode = to_int(words[kInode], 0, std::numeric_limits<long long>::max());
    if (!user || !inode) return std::nullopt;
    return TcpRow{words[kLocal], words[kRemote], words[kState], static_cast<std::uint32_t>(*user),
                  static_cast<std::uint64_t>(*inode)};
}

}  // namespace

std::vector<TcpRow> tcp_rows(std::string_view table) {
    std::vector<TcpRow> rows;
    for (const std::string_view line : split(table, '\n'))
        if (const auto row = tcp_row(line)) rows.push_back(*row);
    return rows;
}

}  // namespace dtrun
