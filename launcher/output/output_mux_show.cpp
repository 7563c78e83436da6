#include "launcher/output/output_mux_impl.h"

#include "base/simulated.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/nodelist.h"
#include "launcher/plan/rank_set.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>
#include <utility>

// What consoles show: lines and what stands before them.

namespace dtrun::output {
namespace {

/// How many bytes are formatted under one lock, and so the grain of back-pressure. It is small,
/// since prefixes can make short lines many times longer.
constexpr std::size_t kSliceBytes = 32u << 10;

}  // namespace

bool OutputMux::Impl::has_own_prefix(std::size_t stream) const {
    return stream < options.shows.size() && !options.shows[stream].prefix.empty();
}

/// What stands before lines of a stream, without colours.
LineStart OutputMux::Impl::plain_start(std::size_t stream, Rank rank) const {
    constexpr std::string_view kRank = "${rank}";
    const std::string number = fmt::format("{}", rank);
    const Tag tag = options.timestamps ? options.tag.timed() : options.tag;
    if (!has_own_prefix(stream))
        return tag.start(number, hosts[std::to_underlying(rank_of(stream))], stream_of(stream));
    LineStart start =
        options.timestamps ? Tag::none.timed().start({}, {}, Stream::out) : LineStart{};
    std::string own = options.shows[stream].prefix;
    for (std::size_t at; (at = own.find(kRank)) != std::string::npos;)
        own.replace(at, kRank.size(), number);
    start.text += own;
    return start;
}

LineStart OutputMux::Impl::start(std::size_t stream, Rank rank) const {
    LineStart start = plain_start(stream, rank);
    const Console* const console = streams[stream].console;
    if (console != nullptr && is_colored(*console)) color(start, rank);
    return start;
}

/// What stands before a line that one stream has printed, or several alike.
LineStart OutputMux::Impl::start_of_all(const RepeatedLine& line) const {
    const std::size_t first = line.streams.front();
    if (line.streams.size() == 1) return start(first, streams[first].number);
    std::vector<std::pair<Rank, std::size_t>> ranks;  // and their places
    for (const std::size_t stream : line.streams)
        ranks.emplace_back(streams[stream].number, std::to_underlying(rank_of(stream)));
    std::ranges::sort(ranks);
    const Tag tag = has_own_prefix(first) ? Tag::rank : options.tag;
    std::vector<Rank> in_order;
    std::vector<std::string> hosts_in_order;
    std::set<std::string_view> known;
    for (const auto& [rank, place] : ranks) {
        in_order.push_back(rank);
        if (tag.has_host() && known.insert(hosts[place]).second)
            hosts_in_order.push_back(hosts[place]);
    }
    LineStart start = (options.timestamps ? tag.timed() : tag)
                          .start(plan::rank_ranges(in_order, in_order.size()),
                                 compress_nodelist(hosts_in_order), stream_of(first));
    if (is_colored(*streams[first].console)) embolden(start);
    return start;
}

bool OutputMux::Impl::is_colored(const Console& console) const {
    return options.color == Color::always ||
           (options.color == Color::on_terminals && console.writer->is_terminal());
}

/// Whether bytes may pass as they come.
bool OutputMux::Impl::is_raw() const {
    const auto plain = [](const StreamShow& show) { return show.prefix.empty(); };
    return options.tag.empty() && !options.timestamps && hosts.size() == 1 && !options.may_grow &&
           std::ranges::all_of(options.shows, plain);
}

void OutputMux::Impl::add_stream(std::size_t stream) {
    const std::size_t rank = std::to_underlying(rank_of(stream));
    const bool shown = (rank >= options.console.size() || options.console[rank]) &&
                       (stream >= options.shows.size() || options.shows[stream].console);
    Console* const console =
        shown ? console_of[stream_index(plan::SlotId{0}, stream_of(stream))] : nullptr;
    const bool as_it_comes = raw || (stream < options.shows.size() && options.shows[stream].raw);
    const Rank number{static_cast<std::uint32_t>(rank)};
    StreamState& state = streams.emplace_back(LinePrefixer({}, parts), console, as_it_comes);
    state.number = number;
    state.lines.set_start(start(stream, number));
    if (log) log->add_stream(hosts[rank], number);
    if (console == nullptr || as_it_comes) return;
    if (options.fold) state.cutter = std::make_unique<LineCutter>(parts);
    state.traced =
        stream_of(stream) == Stream::err && (options.fold || console->writer->is_terminal());
    if (state.cutter || state.traced) console->folder.add_stream(stream);
}

/// Formats as much as the console takes; returns how many bytes that was.
std::size_t OutputMux::Impl::show(std::size_t stream, std::int64_t time_ns,
                                  std::string_view bytes) {
    StreamState& state = streams[stream];
    BufferQueue& queue = state.console->writer->queue();
    if (std::exchange(state.ended, false)) state.console->folder.resume_stream(stream);
    std::size_t shown = 0;
    while (shown < bytes.size() && !queue.full()) {
        const std::string_view slice = bytes.substr(shown, kSliceBytes);
        if (state.traced)
            tracebacks.add(stream, state.number, slice, Clock::now(),
                           [&](const auto& piece) { put_piece(piece, time_ns); });
        else if (state.cutter)
            fold(stream, time_ns, slice);
        BufferQueue::Filler out(queue);
        if (!state.traced && !state.cutter) write(stream, time_ns, slice, out);
        out.account(static_cast<std::uint32_t>(stream), slice.size());
        shown += slice.size();
    }
    return shown;
}

void OutputMux::Impl::write(std::size_t stream, std::int64_t time_ns, std::string_view bytes,
                            BufferQueue::Filler& out) {
    StreamState& state = streams[stream];
    count_shown(std::span(&stream, 1), bytes, state.raw ? "" : state.lines.start());
    if (state.raw) return out.write(bytes);
    state.lines.add(bytes, state.lines.is_timed() ? timestamp.text(time_ns) : "", out);
}

/// Without --fold only lines that stand for tracebacks wait for their like.
void OutputMux::Impl::put_piece(const TracebackFolder::Piece& piece, std::int64_t time_ns) {
    StreamState& state = streams[piece.stream];
    if (!state.cutter && piece.is_repeated) {
        state.console->folder.add(piece.stream, time_ns, std::string(piece.bytes), Clock::now());
        return;
    }
    if (state.cutter) return fold(piece.stream, time_ns, piece.bytes);
    show_all_folded(*state.console);
    BufferQueue::Filler out(state.console->writer->queue());
    write(piece.stream, time_ns, piece.bytes, out);
}

/// For what a report has to know. \param of  the streams that have printed it
void OutputMux::Impl::count_shown(std::span<const std::size_t> of, std::string_view bytes,
                                  std::string_view start) {
    StreamState& state = streams[of.front()];
    Console& console = *state.console;
    console.is_used = true;
    console.is_within_line = state.raw && !bytes.ends_with('\n');
    if (console.writer->is_terminal()) console.last.add(of, bytes, start);
}

void OutputMux::Impl::finish(std::size_t stream) {
    StreamState& state = streams[stream];
    if (state.traced)
        tracebacks.finish(stream,
                          [this](const auto& piece) { put_piece(piece, since_1970().count()); });
    const bool is_folded = state.cutter || state.traced;
    if (is_folded && !std::exchange(state.ended, true)) state.console->folder.end_stream(stream);
    if (!state.cutter) {
        if (state.lines.is_within_line()) {
            if (is_folded) show_all_folded(*state.console);
            count_shown(std::span(&stream, 1), "\n", "");
            state.console->is_within_line = !state.lines.ends_lines();
        }
        BufferQueue::Filler out(state.console->writer->queue());
        state.lines.finish(out);
    } else {
        state.cutter->finish([&](std::string line) {
            state.console->folder.add(stream, since_1970().count(), std::move(line), Clock::now());
        });
    }
    if (is_folded) show_due(*state.console);
}

/// Keeps whole lines until it is known who prints the same.
void OutputMux::Impl::fold(std::size_t stream, std::int64_t time_ns, std::string_view bytes) {
    StreamState& state = streams[stream];
    LineDeduplicator& folder = state.console->folder;
    const Clock::time_point now = Clock::now();
    state.cutter->add(bytes,
                      [&](std::string line) { folder.add(stream, time_ns, std::move(line), now); });
    show_due(*state.console);
}

void OutputMux::Impl::show_folded(Console& console, const RepeatedLine& line) {
    LineStart start = start_of_all(line);
    for (const std::size_t at : start.times)
        start.text.replace(at, Timestamp::kChars, timestamp.text(line.time_ns));
    count_shown(line.streams, line.text, start.text);
    BufferQueue::Filler out(console.writer->queue());
    out.write(start.text);
    out.write(line.text);
}

/// Shows the lines that have waited for long enough, as far as there is room.
void OutputMux::Impl::show_due(Console& console) {
    const Clock::time_point now = Clock::now();
    while (!console.writer->queue().full()) {
        const std::optional<RepeatedLine> line = console.folder.take(now);
        if (!line) return;
        show_folded(console, *line);
    }
}

void OutputMux::Impl::show_all_folded(Console& console) {
    while (const auto line = console.folder.take()) show_folded(console, *line);
}

/// Shows what waits, as far as there is room now.
void OutputMux::Impl::pump() {
    tracebacks.show_due(Clock::now(),
                        [this](const auto& piece) { put_piece(piece, since_1970().count()); });
    for (const auto& console : consoles) {
        while (!console->backlog.empty() && !console->writer->queue().full()) {
            Waiting& next = console->backlog.front();
            if (next.number) renumber(next.stream, *next.number);
            const std::string_view rest = std::string_view(next.bytes).substr(next.shown);
            next.shown += show(next.stream, next.time_ns, rest);
            if (next.shown < next.bytes.size()) break;
            if (next.end) finish(next.stream);
            console->backlog.pop_front();
        }
        show_due(*console);
    }
    if (log) log->pump();
}

bool OutputMux::Impl::waiting() const {
    return (log && log->waiting()) ||
           std::ranges::any_of(consoles, [](const auto& each) { return !each->backlog.empty(); });
}

/// The rank has another number in lines that begin from now on.
void OutputMux::Impl::renumber(std::size_t stream, Rank number) {
    StreamState& state = streams[stream];
    if (state.console != nullptr) show_all_folded(*state.console);
    state.number = number;
    state.lines.set_start(start(stream, number));
}

/// Text of dtrun's own, on the console.
void OutputMux::Impl::say(std::string_view whole_lines) {
    Console& console = *console_of[1];
    const std::size_t columns = console.writer->columns();
    write_own(console,
              columns > 0 ? fold_messages(whole_lines, columns) : std::string(whole_lines));
}

void OutputMux::Impl::write_own(Console& console, std::string text) {
    if (options.is_raw_terminal && options.is_raw_terminal())
        text = fmt::format("{}", fmt::join(split(text, '\n'), "\r\n"));
    BufferQueue::Filler out(console.writer->queue());
    out.write(text);
}

void OutputMux::report(const Ending& ending) {
    if (impl_->log) impl_->log->message(ending.elsewhere);
    Console& console = *impl_->console_of[1];
    const EndingPlace place{.columns = console.writer->columns(),
                            .is_terminal = console.writer->is_terminal(),
                            .is_colored = impl_->is_colored(console),
                            .is_used = console.is_used,
                            .is_within_line = std::exchange(console.is_within_line, false)};
    impl_->write_own(console, ending_text(ending, place));
}

bool OutputMux::is_on_screen(plan::SlotId rank, std::size_t lines) const {
    const std::size_t stream = stream_index(rank, Stream::err);
    const Console* const console = impl_->streams[stream].console;
    return lines > 0 && console != nullptr && console->writer->is_terminal() &&
           console->last.of(stream, console->writer->columns()) >= lines;
}

}  // namespace dtrun::output
