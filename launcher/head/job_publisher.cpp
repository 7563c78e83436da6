#include "launcher/head/job_publisher.h"

#include "base/crypto.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/simulated.h"
#include "base/strings.h"
#include "launcher/watch/json_line.h"
#include "launcher/watch/metrics_text.h"
#include "launcher/watch/page.h"
#include "launcher/watch/page_view.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace dtrun::head {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMeasureLimit{1'000};  // for what hosts tell
constexpr milliseconds kNewsPeriod{1'000};    // after which a page is answered without news
constexpr milliseconds kReaderAge{5'000};     // a page that was silent for so long is closed
constexpr milliseconds kLastLook{2'000};      // for pages to see the end
constexpr milliseconds kLastLines{2'000}, kHurriedLines{100};  // for the log
constexpr milliseconds kLastCommands{10'000};
constexpr milliseconds kLookAge{400};        // of a view that serves the next page
constexpr milliseconds kStacksLimit{3'000};  // as of a report
constexpr milliseconds kSampleEach{10'000}, kSamplesApart{2'000};  // of curves
constexpr std::size_t kTailBytesMax = 16u << 10;
constexpr std::size_t kReadersMax = 100;
constexpr std::size_t kReaderBytesMax = 64;

std::string random_key() {
    std::array<std::uint8_t, 16> bytes{};
    random_bytes(bytes);
    return hex(bytes);
}

}  // namespace

bool JobPublisher::is_wanted(const plan::ShowOptions& options) {
    return !options.log_json.empty() || !options.commands.empty() || options.metrics ||
           options.page;
}

Result<void> JobPublisher::open(const plan::ShowOptions& options) {
    record_.add_listener(*this);
    if (!options.log_json.empty()) {
        auto opened = watch::EventLog::open(options.log_json, record_.id());
        if (!opened) return std::unexpected(opened.error());
        log_ = std::move(*opened);
        record_.add_listener(*log_);
    }
    if (!options.commands.empty()) {
        commands_ =
            std::make_unique<watch::EventCommands>(executor_, options.commands, record_.id());
        record_.add_listener(*commands_);
    }
    if (options.metrics) {
        auto opened = watch::HttpServer::open(
            executor_, options.metrics->address, options.metrics->port,
            [this](watch::HttpRequest request) { return answer_metrics(std::move(request)); });
        if (!opened) return fail(opened.error(), "--metrics");
        metrics_ = std::move(*opened);
        // A port that nobody has chosen has to be told.
        const bool is_news = options.metrics->port == 0;
        log::write(is_news ? log::Level::quiet : log::Level::verbose,
                   fmt::format("metrics at http://{}/metrics", metrics_->place()));
    }
    return options.page ? open_page(options) : Result<void>{};
}

Result<void> JobPublisher::open_page(const plan::ShowOptions& options) {
    auto opened = watch::HttpServer::open(
        executor_, options.page->address, options.page->port,
        [this](watch::HttpRequest request) { return answer_page(std::move(request)); });
    if (!opened) return fail(opened.error(), "--web");
    page_ = std::move(*opened);
    key_ = random_key();
    inspector_.keep_tails();
    tasks_.spawn(sample());
    const std::string address = fmt::format("http://{}/#", page_->place());
    record_.set_page(address + key_);
    const auto line = [&address](std::string_view key) {
        return fmt::format("dtrun: the job's page: {}{}\n", address, key);
    };
    // What goes elsewhere than to a terminal may be read by others, as batch systems' files are.
    output_.message_to_terminal(line(key_), line("KEY, which `dtrun jobs --json` shows"));
    return {};
}

void JobPublisher::happened(const watch::Event& event) {
    last_event_ = event.number;
    if (page_) events_.add(event);
    for (Timer* const sleeper : sleepers_) sleeper->cancel();
}

asio::awaitable<void> JobPublisher::wait_for_news(std::uint64_t known) {
    if (known != last_event_ || record_.has_ended()) co_return;
    Timer timer(executor_, kNewsPeriod);
    sleepers_.insert(&timer);
    co_await timer.async_wait(use_tuple);
    sleepers_.erase(&timer);
}

/// What is known of one rank, with the last that it has printed.
watch::HttpReply JobPublisher::detail_of(const watch::HttpRequest& request) const {
    const auto rank = to_int(request.value("rank"), 0, std::to_underlying(kNoRank) - 1);
    if (!rank) return {400, "text/plain", "which rank?\n"};
    boost::json::object detail = record_.view_of(static_cast<Rank>(*rank));
    const std::string text = inspector_.tail(static_cast<Rank>(*rank));
    detail["text"] = text.substr(text.size() - std::min(text.size(), kTailBytesMax));
    return {.body = watch::json_line(detail)};
}

/// Where all ranks are. It costs them something, so it is done for one page at a time.
asio::awaitable<watch::HttpReply> JobPublisher::answer_stacks() {
    if (std::exchange(takes_stacks_, true))
        co_return watch::HttpReply{503, "text/plain", "another page asks where ranks are\n"};
    const std::vector<std::string> lines = co_await inspector_.stacks_for_report(kStacksLimit);
    takes_stacks_ = false;
    boost::json::object stacks;
    stacks["lines"] = boost::json::array(lines.begin(), lines.end());
    co_return watch::HttpReply{.body = watch::json_line(stacks)};
}

watch::HttpReply JobPublisher::curves_since(const watch::HttpRequest& request) const {
    boost::json::object curves;
    curves["points"] = curves_.since(to_int(request.value("after"), 0, INT64_MAX).value_or(0));
    return {.body = watch::json_line(curves)};
}

/// A page that is opened late shows how it was before: so hosts are asked also while none is open.
asio::awaitable<void> JobPublisher::sample() {
    while (!record_.has_ended()) {
        Timer timer(executor_, kSampleEach);
        co_await timer.async_wait(use_tuple);
        if (record_.has_ended() || Clock::now() - sampled_at_ < kSampleEach) continue;
        add_sample(co_await inspector_.measured_view(kMeasureLimit));
    }
}

void JobPublisher::add_sample(const boost::json::object& view) {
    if (record_.has_ended() || Clock::now() - sampled_at_ < kSamplesApart) return;
    sampled_at_ = Clock::now();
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(since_1970());
    curves_.add(watch::sample_of(view, now.count()));
}

/// A page has shown the end, and asks for nothing more.
watch::HttpReply JobPublisher::has_seen(const watch::HttpRequest& request) {
    const auto found = readers_.find(request.value("page"));
    if (found != readers_.end() && record_.has_ended()) readers_.erase(found);
    if (record_.has_ended() && !is_read()) last_look_.cancel();
    return {.body = "{}"};
}

asio::awaitable<watch::HttpReply> JobPublisher::answer_page(watch::HttpRequest request) {
    if (request.path == "/")
        co_return watch::HttpReply{200, "text/html; charset=utf-8", std::string(watch::kPage)};
    if (!equal_constant_time(as_bytes(request.key), as_bytes(key_))) co_return watch::wrong_key();
    watch::HttpReply reply;
    if (request.path == "/api/rank")
        reply = detail_of(request);
    else if (request.path == "/api/stacks")
        reply = co_await answer_stacks();
    else if (request.path == "/api/curves")
        reply = curves_since(request);
    else if (request.path == "/api/seen")
        reply = has_seen(request);
    else if (request.path == "/api/view")
        reply = co_await answer_view(std::move(request));
    else
        reply = {404, "text/plain", "not here\n"};
    reply.is_trusted = true;
    co_return reply;
}

asio::awaitable<watch::HttpReply> JobPublisher::answer_view(watch::HttpRequest request) {
    const std::string reader(request.value("page").substr(0, kReaderBytesMax));
    std::erase_if(readers_,
                  [](const auto& each) { return Clock::now() - each.second > kReaderAge; });
    if (readers_.size() < kReadersMax || readers_.contains(reader)) readers_[reader] = Clock::now();
    const auto known = to_int(request.value("after"), 0, INT64_MAX).value_or(-1);
    co_await wait_for_news(static_cast<std::uint64_t>(known));
    const milliseconds limit = record_.has_ended() ? milliseconds(0) : kMeasureLimit;
    // However many pages look, it is made once for all of them.
    if (looked_event_ != last_event_ || Clock::now() - looked_at_ > kLookAge) {
        const boost::json::object view = co_await inspector_.measured_view(limit);
        add_sample(view);
        job_text_ = watch::json_line(watch::page_view(view, watch::examine(view)));
        looked_event_ = last_event_;
        looked_at_ = Clock::now();
    }
    boost::json::object answer;
    answer["last_event"] = last_event_;
    if (!std::cmp_equal(known, last_event_)) answer["events"] = events_.to_json();
    std::string body = watch::json_line(answer);
    body.replace(body.size() - 1, 1, fmt::format(",\"jobs\":[{}]}}", job_text_));
    co_return watch::HttpReply{.body = std::move(body)};
}

asio::awaitable<watch::HttpReply> JobPublisher::answer_metrics(watch::HttpRequest request) {
    if (metrics_->is_on_loopback() && !watch::is_loopback_name(request.host))
        co_return watch::HttpReply{
            403, "text/plain",
            "these numbers are for this machine: ask for them at localhost or 127.0.0.1\n"};
    if (request.path != "/metrics")
        co_return watch::HttpReply{404, "text/plain", "they are at /metrics\n"};
    const boost::json::object view = co_await inspector_.measured_view(kMeasureLimit);
    co_return watch::HttpReply{200, watch::kMetricsType, watch::metrics_text(view)};
}

/// Whether a page is open somewhere.
bool JobPublisher::is_read() const {
    return std::ranges::any_of(
        readers_, [](const auto& reader) { return Clock::now() - reader.second < kReaderAge; });
}

void JobPublisher::hurry() {
    hurry_ = true;
    if (commands_) commands_->hurry();
    last_look_.cancel();
}

asio::awaitable<bool> JobPublisher::finish() {
    const Deadline last_commands = after(hurry_ ? milliseconds(0) : kLastCommands);
    if (commands_) co_await commands_->finish(last_commands);
    for (Timer* const sleeper : sleepers_) sleeper->cancel();
    last_look_.expires_after(kLastLook);
    if (page_ && is_read() && !hurry_) co_await last_look_.async_wait(use_tuple);
    tasks_.stop();
    co_await tasks_.join();
    if (page_) co_await page_->join();
    if (metrics_) co_await metrics_->join();
    if (!log_) co_return true;
    const auto lost = log_->finish(after(hurry_ ? kHurriedLines : kLastLines));
    if (lost) log::error("--log-json: {}", lost->message);
    co_return !lost;
}

}  // namespace dtrun::head
