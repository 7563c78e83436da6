#include "launcher/output/output_mux.h"

#include "base/simulated.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/nodelist.h"
#include "launcher/output/fd_writer.h"
#include "launcher/output/job_log.h"
#include "launcher/output/line_deduplicator.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/line_tail.h"
#include "launcher/output/rank_files.h"
#include "launcher/output/write_completions.h"
#include "launcher/plan/rank_set.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <set>
#include <utility>

namespace dtrun::output {
namespace {

/// How many bytes are formatted under one lock, and so the grain of back-pressure. It is small,
/// since prefixes can make short lines many times longer.
constexpr std::size_t kSliceBytes = 32u << 10;

/// What a console could not take yet.
struct Waiting {
    std::size_t stream = 0;
    std::int64_t time_ns = 0;
    std::string bytes;
    std::size_t shown = 0;         ///< of `bytes`
    bool end = false;              ///< finish() instead of bytes
    std::optional<Rank> number{};  ///< of the rank from now on, instead of bytes
};

/// One descriptor, with what waits for it.
struct Console {
    Console(int fd, std::string name, BufferQueue::Options options, WrittenFunction written)
        : writer(std::make_shared<FdWriter>(fd, std::move(name), options, std::move(written))) {}

    Running<FdWriter> writer;
    std::deque<Waiting> backlog;
    LineDeduplicator folder{{}};  ///< empty unless lines are folded
};

/// One stream of a rank.
struct StreamState {
    LinePrefixer lines;
    Console* console = nullptr;          ///< null: not shown
    bool raw = false;                    ///< shown as it comes
    bool filed = false;                  ///< goes to a file
    Rank number{};                       ///< of its rank, in lines on the console
    std::optional<LineCutter> cutter{};  ///< its lines are folded
    std::uint64_t received_bytes = 0;
    std::uint64_t console_bytes = 0;  ///< of these, taken by the console
    std::uint64_t file_bytes = 0;
    std::uint64_t log_bytes = 0;
    std::uint64_t credited_bytes = 0;
};

}  // namespace

struct OutputMux::Impl {
    Impl(OutputOptions given, std::vector<std::string> given_hosts, std::function<void()> wake);
    Result<void> open_files();
    Result<void> open_log();
    WrittenFunction written_by(WriteCompletions::Sink sink) const;
    bool has_own_prefix(std::size_t stream) const;
    LineStart plain_start(std::size_t stream, Rank rank) const;
    LineStart start(std::size_t stream, Rank rank) const;
    LineStart start_of_all(const RepeatedLine& line) const;
    bool is_raw() const;
    bool is_colored(const Console& console) const;
    void add_stream(std::size_t stream);

    std::size_t show(std::size_t stream, std::int64_t time_ns, std::string_view bytes);
    void finish(std::size_t stream);
    void say(std::string_view whole_lines);
    void fold(std::size_t stream, std::int64_t time_ns, std::string_view bytes);
    void show_folded(Console& console, const RepeatedLine& line);
    void show_due(Console& console);
    void pump();
    bool waiting() const;
    void credit(std::size_t stream);
    std::size_t drop_backlog(Console& console);
    void renumber(std::size_t stream, Rank number);

    OutputOptions options;
    std::vector<std::string> hosts;
    const bool raw;
    const std::shared_ptr<WriteCompletions> inbox;  ///< threads that are left behind have it, too
    PartBudget parts;
    Timestamp timestamp;
    std::vector<std::unique_ptr<Console>> consoles;
    std::array<Console*, 2> console_of{};  ///< of out and err
    std::vector<StreamState> streams;      ///< by stream_index()
    std::vector<LineTail> tails;           ///< by rank
    std::vector<OutputCredit> credits;
    std::uint64_t uncredited_bytes = 0;
    WriteCompletions::Boxes written;
    Running<RankFiles> files;
    std::unique_ptr<JobLog> log;
    bool stopped = false;
};

OutputMux::Impl::Impl(OutputOptions given, std::vector<std::string> given_hosts,
                      std::function<void()> wake)
    : options(std::move(given)),
      hosts(std::move(given_hosts)),
      raw(is_raw()),
      inbox(std::make_shared<WriteCompletions>(std::move(wake))),
      parts{options.line_part_max, options.part_total_max},
      tails(hosts.size()) {
    const BufferQueue::Options queue{.pending_bytes_max = options.pending_bytes_max,
                                     .gather = options.gather};
    const WrittenFunction written = written_by(WriteCompletions::Sink::console);
    consoles.push_back(
        std::make_unique<Console>(options.stdout_fd, "standard output", queue, written));
    if (!same_file(options.stdout_fd, options.stderr_fd))
        consoles.push_back(
            std::make_unique<Console>(options.stderr_fd, "standard error", queue, written));
    console_of = {consoles.front().get(), consoles.back().get()};
    for (std::size_t stream = 0; stream < hosts.size() * 2; stream++) add_stream(stream);
}

WrittenFunction OutputMux::Impl::written_by(WriteCompletions::Sink sink) const {
    return [inbox = inbox, sink](std::span<const Written> pieces) { inbox->add(sink, pieces); };
}

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
    if (console != nullptr && options.fold && !as_it_comes) {
        state.cutter.emplace(parts);
        console->folder.add_stream(stream);
    }
    if (log) log->add_stream(hosts[rank], number);
}

Result<void> OutputMux::Impl::open_files() {
    if (options.directory.empty()) return {};
    const int world_size = static_cast<int>(hosts.size());
    auto made = RankFiles::create(
        options.directory, options.file_name ? options.file_name : plain_file_names(world_size),
        world_size, options.files_open_max, options.rotation, {.gather = options.gather},
        written_by(WriteCompletions::Sink::files));
    if (!made) return std::unexpected(made.error());
    files = std::move(*made);
    for (std::size_t stream = 0; stream < streams.size(); stream++)
        streams[stream].filed = files->has_file(rank_of(stream), stream_of(stream));
    return {};
}

Result<void> OutputMux::Impl::open_log() {
    if (options.log.empty()) return {};
    auto opened = JobLog::open(options.log, options.rotation, {.gather = options.gather}, parts,
                               written_by(WriteCompletions::Sink::log));
    if (!opened) return fail(opened.error(), "--log");
    log = std::move(*opened);
    for (std::size_t stream = 0; stream < streams.size(); stream++)
        log->add_stream(hosts[stream / 2], streams[stream].number);
    if (!options.log_begin.empty()) log->message(options.log_begin);
    return {};
}

/// Formats as much as the console takes; returns how many bytes that was.
std::size_t OutputMux::Impl::show(std::size_t stream, std::int64_t time_ns,
                                  std::string_view bytes) {
    StreamState& state = streams[stream];
    BufferQueue& queue = state.console->writer->queue();
    std::size_t shown = 0;
    while (shown < bytes.size() && !queue.full()) {
        const std::string_view slice = bytes.substr(shown, kSliceBytes);
        if (state.cutter) fold(stream, time_ns, slice);
        const std::string_view stamp = state.lines.is_timed() ? timestamp.text(time_ns) : "";
        BufferQueue::Filler out(queue);
        if (state.raw)
            out.write(slice);
        else if (!state.cutter)
            state.lines.add(slice, stamp, out);
        out.account(static_cast<std::uint32_t>(stream), slice.size());
        shown += slice.size();
    }
    return shown;
}

void OutputMux::Impl::finish(std::size_t stream) {
    StreamState& state = streams[stream];
    if (!state.cutter) {
        BufferQueue::Filler out(state.console->writer->queue());
        state.lines.finish(out);
        return;
    }
    LineDeduplicator& folder = state.console->folder;
    state.cutter->finish([&](std::string line) {
        folder.add(stream, since_1970().count(), std::move(line), Clock::now());
    });
    show_due(*state.console);
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

/// Shows what waits, as far as there is room now.
void OutputMux::Impl::pump() {
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
    if (state.console != nullptr)
        while (const auto line = state.console->folder.take()) show_folded(*state.console, *line);
    state.number = number;
    state.lines.set_start(start(stream, number));
}

/// A byte is credited when all have taken it that it goes to.
void OutputMux::Impl::credit(std::size_t stream) {
    StreamState& state = streams[stream];
    std::uint64_t written = state.received_bytes;
    if (state.console != nullptr) written = std::min(written, state.console_bytes);
    if (state.filed) written = std::min(written, state.file_bytes);
    if (log) written = std::min(written, state.log_bytes);
    if (written == state.credited_bytes) return;
    credits.push_back({rank_of(stream), stream_of(stream), written - state.credited_bytes});
    uncredited_bytes -= written - state.credited_bytes;
    state.credited_bytes = written;
}

/// Counts as taken what can no longer be shown; returns how many bytes that was.
std::size_t OutputMux::Impl::drop_backlog(Console& console) {
    std::size_t dropped = 0;
    for (const Waiting& each : console.backlog) {
        const std::size_t rest = each.bytes.size() - each.shown;
        const Written written{static_cast<std::uint32_t>(each.stream), rest};
        inbox->add(WriteCompletions::Sink::console, {&written, 1});
        dropped += rest;
    }
    console.backlog.clear();
    return dropped;
}

Result<std::unique_ptr<OutputMux>> OutputMux::create(OutputOptions options,
                                                     std::vector<std::string> hosts,
                                                     std::function<void()> wake) {
    auto impl = std::make_unique<Impl>(std::move(options), std::move(hosts), std::move(wake));
    if (auto opened = impl->open_files(); !opened)
        return fail(opened.error(), "{}", impl->options.files_flag);
    if (auto opened = impl->open_log(); !opened) return std::unexpected(opened.error());
    return std::unique_ptr<OutputMux>(new OutputMux(std::move(impl)));
}

OutputMux::OutputMux(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OutputMux::~OutputMux() {
    stop(Clock::now());
}

void OutputMux::add_slots(MoreSlots places) {
    Impl& impl = *impl_;
    const std::size_t before = impl.streams.size();
    impl.options.shows.resize(before);
    std::ranges::move(places.shows, std::back_inserter(impl.options.shows));
    if (impl.files)
        impl.files->add_ranks(static_cast<int>(places.hosts.size()), std::move(places.file_name));
    std::ranges::move(places.hosts, std::back_inserter(impl.hosts));
    impl.tails.resize(impl.hosts.size());
    for (std::size_t stream = before; stream < impl.hosts.size() * 2; ++stream) {
        impl.add_stream(stream);
        if (impl.files)
            impl.streams[stream].filed = impl.files->has_file(rank_of(stream), stream_of(stream));
    }
}

void OutputMux::set_numbers(const plan::RankNumbers& numbers) {
    Impl& impl = *impl_;
    for (std::size_t stream = 0; stream < impl.streams.size(); ++stream) {
        const Rank number = numbers.of(rank_of(stream));
        if (number == kNoRank) continue;  // what it has printed keeps its number
        StreamState& state = impl.streams[stream];
        if (state.console == nullptr || state.console->backlog.empty())
            impl.renumber(stream, number);
        else
            state.console->backlog.push_back({stream, 0, {}, 0, false, number});
        if (impl.log) impl.log->set_number(stream, number);
    }
}

void OutputMux::begin_attempt(int attempt) {
    for (LineTail& tail : impl_->tails) tail = {};
    if (impl_->files) impl_->files->begin_attempt(attempt);
}

void OutputMux::add(plan::SlotId rank, Stream stream, std::int64_t host_time_ns,
                    std::string_view bytes) {
    if (bytes.empty()) return;
    const std::size_t index = stream_index(rank, stream);
    StreamState& state = impl_->streams[index];
    state.received_bytes += bytes.size();
    impl_->uncredited_bytes += bytes.size();
    if (stream == Stream::err) impl_->tails[std::to_underlying(rank)].add(bytes);
    if (state.filed) impl_->files->add(rank, stream, bytes);
    if (impl_->log) impl_->log->add(index, host_time_ns, bytes);
    if (state.console == nullptr) {
        const Written nothing{static_cast<std::uint32_t>(index), 0};
        if (!state.filed && !impl_->log)
            impl_->inbox->add(WriteCompletions::Sink::console, {&nothing, 1});
        return;
    }
    std::deque<Waiting>& backlog = state.console->backlog;
    if (backlog.empty()) bytes.remove_prefix(impl_->show(index, host_time_ns, bytes));
    if (!bytes.empty()) backlog.push_back({index, host_time_ns, std::string(bytes)});
}

void OutputMux::finish(plan::SlotId rank, Stream stream) {
    const std::size_t index = stream_index(rank, stream);
    if (impl_->log) impl_->log->finish(index);
    Console* const console = impl_->streams[index].console;
    if (console == nullptr) return;
    if (console->backlog.empty())
        impl_->finish(index);
    else
        console->backlog.push_back({index, 0, {}, 0, true});
}

void OutputMux::message(std::string_view whole_lines) {
    if (impl_->log) impl_->log->message(whole_lines);
    impl_->say(whole_lines);
}

void OutputMux::message_to_terminal(std::string_view whole_lines, std::string_view elsewhere) {
    if (impl_->log) impl_->log->message(elsewhere);
    impl_->say(has_terminal() ? whole_lines : elsewhere);
}

/// Text of dtrun's own, on the console.
void OutputMux::Impl::say(std::string_view whole_lines) {
    FdWriter& writer = *console_of[1]->writer;
    const std::size_t columns = writer.columns();
    std::string text = columns > 0 ? fold_messages(whole_lines, columns) : std::string(whole_lines);
    if (options.is_raw_terminal && options.is_raw_terminal())
        text = fmt::format("{}", fmt::join(split(text, '\n'), "\r\n"));
    BufferQueue::Filler out(writer.queue());
    out.write(text);
}

void OutputMux::set_status(std::string_view text) {
    impl_->console_of[1]->writer->set_status(text);
}

bool OutputMux::has_terminal() const {
    return impl_->console_of[1]->writer->is_terminal();
}

std::span<const OutputCredit> OutputMux::collect() {
    Impl& impl = *impl_;
    for (std::vector<Written>& box : impl.written) box.clear();
    impl.credits.clear();
    impl.inbox->take(impl.written);
    using enum WriteCompletions::Sink;
    const auto written_by = [&](WriteCompletions::Sink sink) -> const std::vector<Written>& {
        return impl.written[std::to_underlying(sink)];
    };
    for (const Written& each : written_by(console))
        impl.streams[each.stream].console_bytes += each.bytes;
    for (const Written& each : written_by(files))
        impl.streams[each.stream].file_bytes += each.bytes;
    for (const Written& each : written_by(log)) impl.streams[each.stream].log_bytes += each.bytes;
    for (const std::vector<Written>& box : impl.written)
        for (const Written& each : box) impl.credit(each.stream);
    if (!impl.stopped) impl.pump();
    return impl.credits;
}

std::optional<Clock::time_point> OutputMux::due() const {
    std::optional<Clock::time_point> first;
    for (const auto& console : impl_->consoles)
        if (const auto due = console->folder.due(); due && !console->writer->queue().full())
            first = std::min(first.value_or(*due), *due);
    return first;
}

bool OutputMux::idle() const {
    const auto written = [](const auto& each) { return each->writer->queue().idle(); };
    // A sink is idle a moment before it reports its last bytes as taken; hence both checks.
    const auto folded = [](const auto& each) { return !each->folder.empty(); };
    return impl_->uncredited_bytes == 0 && !impl_->waiting() &&
           std::ranges::none_of(impl_->consoles, folded) &&
           std::ranges::all_of(impl_->consoles, written) &&
           (!impl_->files || impl_->files->idle()) && (!impl_->log || impl_->log->idle());
}

std::vector<Error> OutputMux::take_failures() {
    std::vector<Error> failures;
    const auto take_from = [&failures](auto& sink) {
        while (auto failure = sink.take_failure()) failures.push_back(std::move(*failure));
    };
    if (impl_->files) take_from(*impl_->files);
    if (impl_->log) take_from(*impl_->log);
    for (const auto& console : impl_->consoles) take_from(*console->writer);
    return failures;
}

std::vector<std::string> OutputMux::tail(plan::SlotId rank) const {
    return impl_->tails[std::to_underlying(rank)].lines();
}

std::uint64_t OutputMux::bytes(plan::SlotId rank, Stream stream) const {
    return impl_->streams[stream_index(rank, stream)].received_bytes;
}

bool OutputMux::is_disk_silent() const {
    return (impl_->files && impl_->files->is_silent()) || (impl_->log && impl_->log->is_silent()) ||
           std::ranges::any_of(impl_->consoles,
                               [](const auto& each) { return each->writer->is_silent(); });
}

bool OutputMux::is_stderr_alive() const {
    return impl_->console_of[1]->writer->answers();
}

void OutputMux::stop(Deadline deadline) {
    if (std::exchange(impl_->stopped, true)) return;
    impl_->pump();
    while (impl_->waiting() && Clock::now() < deadline) {
        impl_->inbox->wait(deadline);
        impl_->pump();
    }
    for (const auto& console : impl_->consoles)
        while (const auto line = console->folder.take()) impl_->show_folded(*console, *line);
    if (impl_->files) impl_->files->stop(deadline);
    if (impl_->log) impl_->log->stop(deadline);
    for (const auto& console : impl_->consoles)
        console->writer->stop(deadline, impl_->drop_backlog(*console));
    for (const auto& console : impl_->consoles) console->writer->join();
    if (impl_->files) impl_->files->join();
    if (impl_->log) impl_->log->join();
    impl_->inbox->stop();
}

}  // namespace dtrun::output
