#include "launcher/output/output_mux.h"

#include "launcher/output/output_mux_impl.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::output {

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
    streams.reserve(hosts.size() * 2);
    for (std::size_t stream = 0; stream < hosts.size() * 2; stream++) add_stream(stream);
}

WrittenFunction OutputMux::Impl::written_by(WriteCompletions::Sink sink) const {
    return [inbox = inbox, sink](std::span<const Written> pieces) { inbox->add(sink, pieces); };
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
    auto opened =
        JobLog::open(options.log, options.log_file ? std::move(*options.log_file) : Fd(),
                     options.log_rotation.value_or(options.rotation), {.gather = options.gather},
                     parts, written_by(WriteCompletions::Sink::log));
    if (!opened) return fail(opened.error(), "--log");
    log = std::move(*opened);
    for (std::size_t stream = 0; stream < streams.size(); stream++)
        log->add_stream(hosts[stream / 2], streams[stream].number);
    if (!options.log_begin.empty()) log->message(options.log_begin);
    return {};
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
    impl_->say(impl_->console_of[1]->writer->is_terminal() ? whole_lines : elsewhere);
}

void OutputMux::set_status(std::string_view text) {
    impl_->console_of[1]->writer->set_status(text);
}

bool OutputMux::has_status() const {
    return impl_->console_of[1]->writer->has_status();
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
    if (const auto due = impl_->tracebacks.due()) first = std::min(first.value_or(*due), *due);
    return first;
}

bool OutputMux::idle() const {
    const auto written = [](const auto& each) { return each->writer->queue().idle(); };
    // A sink is idle a moment before it reports its last bytes as taken; hence both checks.
    const auto folded = [](const auto& each) { return !each->folder.empty(); };
    return impl_->uncredited_bytes == 0 && !impl_->waiting() && impl_->tracebacks.empty() &&
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
    if (impl_->log && impl_->options.log_failed) {
        while (auto failure = impl_->log->take_failure())
            impl_->options.log_failed(std::move(failure->message));
    } else if (impl_->log) {
        take_from(*impl_->log);
    }
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
    impl_->tracebacks.show_due(Clock::time_point::max(), [this](const auto& piece) {
        impl_->put_piece(piece, since_1970().count());
    });
    for (const auto& console : impl_->consoles) impl_->show_all_folded(*console);
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
