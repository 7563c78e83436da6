#include "launcher/output/line_deduplicator.h"

#include <algorithm>
#include <utility>

namespace dtrun::output {

void LineCutter::add(std::string_view bytes, const Each& each) {
    const auto end_line = [&] { each(std::exchange(part_, {})); };
    while (!bytes.empty()) {
        if (part_.ends_with('\r')) {
            if (bytes.front() == '\n') {
                part_ += '\n';
                bytes.remove_prefix(1);
            }
            end_line();
            continue;
        }
        const std::size_t room = budget_->line_max - part_.size();
        if (room == 0 && bytes.front() != '\n' && bytes.front() != '\r') {
            part_ += '\n';
            end_line();
            continue;
        }
        const std::size_t content = std::min(bytes.find_first_of("\r\n"), bytes.size());
        part_ += bytes.substr(0, std::min(content, room));
        bytes.remove_prefix(std::min(content, room));
        if (content > room || bytes.empty()) continue;
        part_ += bytes.front();
        bytes.remove_prefix(1);
        if (part_.ends_with('\n')) end_line();
    }
    count();
    if (budget_->used <= budget_->total_max || part_.empty() || part_.ends_with('\r')) return;
    part_ += '\n';
    end_line();
    count();
}

void LineCutter::count() {
    budget_->used += part_.size() - counted_;
    counted_ = part_.size();
}

void LineCutter::finish(const Each& each) {
    if (part_.empty()) return;
    if (!part_.ends_with('\r')) part_ += '\n';
    each(std::exchange(part_, {}));
    count();
}

/// Streams of one kind print lines that may be one.
std::string LineDeduplicator::key_of(std::size_t stream, std::string_view text) {
    std::string key(1, stream_of(stream) == Stream::out ? 'o' : 'e');
    return key.append(text);
}

void LineDeduplicator::add(std::size_t stream, std::int64_t time_ns, std::string line,
                           Clock::time_point now) {
    std::uint64_t& next = next_of_[stream];
    std::deque<std::uint64_t>& alike = by_text_[key_of(stream, line)];
    const auto found = std::ranges::lower_bound(alike, next);
    if (found != alike.end()) {
        kept_[*found - first_].line.streams.push_back(stream);
        next = *found + 1;
        return;
    }
    const std::uint64_t number = first_ + kept_.size();
    alike.push_back(number);
    next = number + 1;
    bytes_ += line.size();
    kept_.push_back({{std::move(line), {stream}, time_ns}, now + options_.wait});
}

std::optional<RepeatedLine> LineDeduplicator::take(Clock::time_point now) {
    if (kept_.empty()) return {};
    const Kept& oldest = kept_.front();
    const Kind& kind = kind_of(oldest.line.streams.front());
    const bool all_have_it = oldest.line.streams.size() >= kind.streams || kind.alive == 0;
    if (!all_have_it && now < oldest.until && bytes_ <= options_.bytes_max) return {};
    return take();
}

std::optional<RepeatedLine> LineDeduplicator::take() {
    if (kept_.empty()) return {};
    RepeatedLine line = std::move(kept_.front().line);
    kept_.pop_front();
    ++first_;
    bytes_ -= line.text.size();
    const auto alike = by_text_.find(key_of(line.streams.front(), line.text));
    alike->second.pop_front();
    if (alike->second.empty()) by_text_.erase(alike);
    return line;
}

std::optional<Clock::time_point> LineDeduplicator::due() const {
    if (kept_.empty()) return {};
    return kept_.front().until;
}

}  // namespace dtrun::output
