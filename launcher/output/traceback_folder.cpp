#include "launcher/output/traceback_folder.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace dtrun::output {
namespace {

constexpr std::string_view kBegin = "Traceback (most recent call last):\n";

/// What is not the exception of a traceback, with which it ends.
bool is_frame(std::string_view line) {
    return line.starts_with(' ') || line.starts_with('\t') || line == kBegin;
}

/// Where the last of these whole lines begins.
std::size_t last_line(std::string_view lines) {
    return lines.size() < 2 ? 0 : lines.rfind('\n', lines.size() - 2) + 1;
}

/// Where a traceback begins in `bytes`, or at the end perhaps begins; else their size.
std::size_t begin_in(std::string_view bytes, bool at_line_start) {
    const auto starts_line = [&](std::size_t at) {
        return at == 0 ? at_line_start : bytes[at - 1] == '\n';
    };
    for (std::size_t at = bytes.find(kBegin); at != std::string_view::npos;
         at = bytes.find(kBegin, at + 1))
        if (starts_line(at)) return at;
    const std::size_t last = bytes.rfind('\n') + 1;  // 0 if there is none
    return starts_line(last) && kBegin.starts_with(bytes.substr(last)) ? last : bytes.size();
}

}  // namespace

void TracebackFolder::set_phase(Stream& stream, Phase phase) {
    keeping_ -= stream.phase == Phase::keeping;
    stream.phase = phase;
    keeping_ += phase == Phase::keeping;
}

void TracebackFolder::add(std::size_t stream, Rank rank, std::string_view bytes,
                          Clock::time_point now, const Emit& emit) {
    Stream& here = streams_[stream];
    here.rank = rank;
    const std::string joined = std::exchange(here.part, {});
    const std::string all = joined.empty() ? "" : joined + std::string(bytes);
    if (!joined.empty()) bytes = all;
    while (!bytes.empty()) {
        if (here.phase == Phase::outside) {
            pass_outside(stream, here, bytes, emit);
            if (here.phase == Phase::outside) return;
        }
        const std::size_t end = bytes.find('\n');
        if (end == std::string_view::npos) {
            here.part = bytes;
            if (here.part.size() <= options_.bytes_max) return;
            leave(stream, here, emit);
            return;
        }
        add_line(stream, here, bytes.substr(0, end + 1), now, emit);
        bytes.remove_prefix(end + 1);
    }
}

/// Shows what stands before the next traceback, and takes it off `bytes`.
void TracebackFolder::pass_outside(std::size_t id, Stream& stream, std::string_view& bytes,
                                   const Emit& emit) {
    const std::size_t begin = begin_in(bytes, stream.at_line_start);
    if (begin > 0) {
        emit({id, bytes.substr(0, begin)});
        stream.at_line_start = bytes[begin - 1] == '\n';
        bytes.remove_prefix(begin);
    }
    if (bytes.starts_with(kBegin))
        set_phase(stream, Phase::keeping);
    else
        stream.part = bytes;
}

void TracebackFolder::add_line(std::size_t id, Stream& stream, std::string_view line,
                               Clock::time_point now, const Emit& emit) {
    if (stream.phase == Phase::showing) {
        emit({id, line});
        note_shown(id, stream, line, now);
    } else {
        if (stream.kept.empty()) stream.until = now + options_.wait;
        stream.kept += line;
        settle(id, stream, now, emit);
        if (stream.phase == Phase::keeping) return;
    }
    if (keeping_ == 0) return;
    for (auto& [other, kept] : streams_)
        if (kept.phase == Phase::keeping) settle(other, kept, now, emit);
}

/// What is known of the lines that are kept: whose traceback they are.
TracebackFolder::Verdict TracebackFolder::judge(std::size_t id, const Stream& stream,
                                                Clock::time_point now, Trace*& as) {
    const std::string_view kept = stream.kept;
    const std::size_t last = last_line(kept);
    const bool is_whole = !is_frame(kept.substr(last));
    const std::string_view frames = is_whole ? kept.substr(0, last) : kept;
    Verdict verdict = kept.size() > options_.bytes_max ? Verdict::other : Verdict::open;
    bool may_be = false;
    for (Trace& trace : traces_) {
        const bool is_old = now - trace.shown > (trace.is_whole ? options_.above : options_.wait);
        if (trace.stream == id || is_old) continue;
        if (trace.is_whole && is_whole && trace.frames == frames) {
            as = &trace;
            return Verdict::same;
        }
        may_be = may_be || (!is_whole && trace.frames.starts_with(frames)) ||
                 (!trace.is_whole && frames.starts_with(trace.frames));
    }
    return may_be ? verdict : Verdict::other;
}

void TracebackFolder::settle(std::size_t id, Stream& stream, Clock::time_point now,
                             const Emit& emit) {
    Trace* as = nullptr;
    const Verdict verdict = judge(id, stream, now, as);
    if (verdict == Verdict::other) return show_kept(id, stream, now, emit);
    if (verdict == Verdict::open) return;
    const std::string kept = std::exchange(stream.kept, {});
    const std::string line = fmt::format("Traceback as of rank {} above: {}", as->rank,
                                         std::string_view(kept).substr(last_line(kept)));
    as->shown = now;
    set_phase(stream, Phase::outside);
    emit({id, line, true});
}

void TracebackFolder::show_kept(std::size_t id, Stream& stream, Clock::time_point now,
                                const Emit& emit) {
    const std::string kept = std::exchange(stream.kept, {});
    set_phase(stream, Phase::showing);
    emit({id, kept});
    for (std::string_view rest = kept; !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n') + 1);
        note_shown(id, stream, line, now);
        rest.remove_prefix(line.size());
    }
}

/// A line of a traceback stands on the console now, so others may be told to look there.
void TracebackFolder::note_shown(std::size_t id, Stream& stream, std::string_view line,
                                 Clock::time_point now) {
    const auto is_ours = [id](const Trace& trace) { return trace.stream == id && !trace.is_whole; };
    if (line == kBegin) {
        std::erase_if(traces_, is_ours);
        if (traces_.size() >= options_.traces_max) traces_.pop_front();
        traces_.push_back({id, stream.rank, std::string(line), false, now});
        return;
    }
    const auto trace = std::ranges::find_if(traces_, is_ours);
    if (trace != traces_.end()) {
        trace->shown = now;
        trace->is_whole = !is_frame(line);
        if (!trace->is_whole) trace->frames += line;
        if (trace->frames.size() > options_.bytes_max) traces_.erase(trace);
    }
    if (!is_frame(line)) set_phase(stream, Phase::outside);
}

/// Within a traceback that is none, or has ended too soon.
void TracebackFolder::leave(std::size_t id, Stream& stream, const Emit& emit) {
    const std::string kept = std::exchange(stream.kept, {}) + std::exchange(stream.part, {});
    if (stream.phase != Phase::outside) set_phase(stream, Phase::outside);
    stream.at_line_start = kept.empty() ? stream.at_line_start : kept.ends_with('\n');
    if (!kept.empty()) emit({id, kept});
}

void TracebackFolder::finish(std::size_t stream, const Emit& emit) {
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return;
    leave(stream, found->second, emit);
    streams_.erase(found);
}

void TracebackFolder::show_due(Clock::time_point now, const Emit& emit) {
    if (keeping_ == 0) return;
    for (auto& [id, stream] : streams_)
        if (stream.phase == Phase::keeping && stream.until <= now) show_kept(id, stream, now, emit);
}

std::optional<Clock::time_point> TracebackFolder::due() const {
    std::optional<Clock::time_point> first;
    if (keeping_ == 0) return first;
    for (const auto& [id, stream] : streams_)
        if (stream.phase == Phase::keeping)
            first = std::min(first.value_or(stream.until), stream.until);
    return first;
}

}  // namespace dtrun::output
