#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"
#include "launcher/head/job_inspector.h"
#include "launcher/output/output.h"
#include "launcher/plan/options.h"
#include "launcher/watch/curves.h"
#include "launcher/watch/event.h"
#include "launcher/watch/event_commands.h"
#include "launcher/watch/event_lines.h"
#include "launcher/watch/event_log.h"
#include "launcher/watch/http_server.h"

#include <boost/json/object.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace dtrun::head {

/// Shows the job to others, as far as the user asks for it: --log-json, --on-event, --metrics, --web.
///
/// Thread: the loop's. Lifetime: the inspector and the record outlive it; finish() before destruction.
class JobPublisher final : private watch::EventListener {
public:
    JobPublisher(asio::any_io_executor executor, JobInspector& inspector, JobRecord& record,
                 output::Output& output)
        : executor_(executor),
          inspector_(inspector),
          record_(record),
          output_(output),
          last_look_(executor),
          tasks_(executor) {}

    /// Whether any of it is asked for.
    static bool is_wanted(const plan::ShowOptions& options);
    /// Errc: invalid_input
    Result<void> open(const plan::ShowOptions& options);
    /// The job is over: pages that are open see that, and what is left is written, for some seconds at most.
    /// \return whether everything is in the file of --log-json
    asio::awaitable<bool> finish();
    /// The user wants it over: finish() waits no longer.
    void hurry();

private:
    void happened(const watch::Event& event) override;
    Result<void> open_page(const plan::ShowOptions& options);
    asio::awaitable<watch::HttpReply> answer_view(watch::HttpRequest request);
    asio::awaitable<watch::HttpReply> answer_page(watch::HttpRequest request);
    asio::awaitable<watch::HttpReply> answer_metrics(watch::HttpRequest request);
    asio::awaitable<void> wait_for_news(std::uint64_t known);
    asio::awaitable<watch::HttpReply> answer_stacks();
    watch::HttpReply detail_of(const watch::HttpRequest& request) const;
    watch::HttpReply curves_since(const watch::HttpRequest& request) const;
    asio::awaitable<void> sample();
    void add_sample(const boost::json::object& view);
    watch::HttpReply has_seen(const watch::HttpRequest& request);
    bool is_read() const;

    asio::any_io_executor executor_;
    JobInspector& inspector_;
    JobRecord& record_;
    output::Output& output_;
    std::unique_ptr<watch::EventLog> log_;
    std::unique_ptr<watch::EventCommands> commands_;
    std::unique_ptr<watch::HttpServer> metrics_, page_;
    std::string key_;           ///< of the page
    watch::EventLines events_;  ///< for the page, as are the
    watch::Curves curves_;
    Deadline sampled_at_{};
    std::string job_text_;  ///< the last view, as a page is given it
    std::uint64_t looked_event_ = 0;
    Deadline looked_at_{};
    bool takes_stacks_ = false;  ///< for a page
    std::uint64_t last_event_ = 0;
    std::set<Timer*> sleepers_;  ///< pages that wait for news
    Timer last_look_;            ///< cancelled when all pages have seen the end
    bool hurry_ = false;
    /// When each page that is open somewhere has asked last, by a number that it has given itself.
    std::map<std::string, Deadline, std::less<>> readers_;
    TaskGroup tasks_;
};

}  // namespace dtrun::head
