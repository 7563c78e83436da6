#include "launcher/output/line_tail.h"

#include <algorithm>

namespace dtrun::output {
namespace {

/// Where the last `lines` whole lines of `bytes` begin, or npos if there are fewer.
std::size_t begin_of_last(std::string_view bytes, std::size_t lines) {
    std::size_t at = bytes.rfind('\n');
    while (at != std::string_view::npos && lines > 0) {
        if (at == 0) return std::string_view::npos;
        at = bytes.rfind('\n', at - 1);
        lines--;
    }
    return at == std::string_view::npos ? at : at + 1;
}

}  // namespace

void LineTail::add(std::string_view bytes) {
    if (const std::size_t begin = begin_of_last(bytes, kLinesMax);
        begin != std::string_view::npos) {
        bytes.remove_prefix(begin);
        unfinished_.clear();
        after_cr_ = false;
    }
    for (;;) {
        const std::size_t end = bytes.find('\n');
        extend(bytes.substr(0, end));
        if (end == std::string_view::npos) return;
        bytes.remove_prefix(end + 1);
        if (count_ < kLinesMax) lines_.emplace_back();
        std::string& slot = lines_[count_++ % kLinesMax];
        slot.swap(unfinished_);
        unfinished_.clear();
        after_cr_ = false;
    }
}

void LineTail::extend(std::string_view text) {
    const std::size_t visible = text.find_last_not_of('\r') + 1;
    if (visible > 0 && after_cr_) unfinished_.clear();
    if (!text.empty()) after_cr_ = visible < text.size();
    text = text.substr(0, visible);
    if (const std::size_t cr = text.rfind('\r'); cr != std::string_view::npos) {
        text.remove_prefix(cr + 1);
        unfinished_.clear();
    }
    unfinished_.append(text.substr(0, kLineBytesMax - unfinished_.size()));
}

std::vector<std::string> LineTail::lines() const {
    std::vector<std::string> all;
    const std::size_t finished = std::min(count_, kLinesMax - (unfinished_.empty() ? 0 : 1));
    for (std::size_t i = count_ - finished; i < count_; i++) all.push_back(lines_[i % kLinesMax]);
    if (!unfinished_.empty()) all.push_back(unfinished_);
    return all;
}

}  // namespace dtrun::output
