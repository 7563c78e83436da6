#include "launcher/watch/daemon_page.h"

#include "base/crypto.h"
#include "launcher/watch/fields.h"
#include "launcher/watch/health.h"
#include "launcher/watch/json_line.h"
#include "launcher/watch/metrics_text.h"
#include "launcher/watch/page.h"
#include "launcher/watch/page_view.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <span>
#include <string_view>
#include <utility>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

constexpr std::string_view kPurpose = "dtrun serve --web, version 1";
constexpr std::size_t kKeyDigits = 32;

const char* state_of(std::string_view phase) {
    if (phase == "running") return "running";
    if (phase == "ended") return "ended";
    if (phase == "changing") return "restarting";
    if (phase == "finishing") return "ending";
    return phase == "gathering" ? "gathering" : phase == "damaged" ? "damaged" : "store";
}

/// A member that has no rank yet shows its slots.
void add_places(json::array& places, const json::object& member, const json::object& job) {
    const bool connected = member.at("connected").as_bool();
    const auto add = [&](std::string_view state) -> json::object& {
        json::object& place = places.emplace_back(json::object()).as_object();
        place["host"] = member.at("host");
        place["state"] = state;
        return place;
    };
    const json::array& ranks = member.at("rank_list").as_array();
    const auto slowest = number_of(job, "slowest_rank");
    for (const json::value& rank : ranks) {
        json::object& place = add(connected ? "member" : "lost");
        place["rank"] = rank;
        if (rank.to_number<double>() == slowest) place["step"] = whole(job, "slowest_step");
    }
    const bool waits = ranks.empty() && text_of(job, "phase") == "gathering";
    for (std::int64_t i = 0; waits && i < whole(member, "slots"); ++i)
        add(connected ? "waiting" : "lost");
}

/// Several members of one host are one line, which is lost if all of them are.
void add_host(json::array& hosts, const json::value& name, bool connected) {
    auto* const known = std::ranges::find_if(
        hosts, [&name](const json::value& host) { return host.at("host") == name; });
    if (known != hosts.end() && !connected) return;
    json::object host;
    host["host"] = name;
    host["state"] = connected ? "joined" : "lost";
    if (!connected) host["why"] = "not connected; it may come back";
    if (known == hosts.end())
        hosts.push_back(std::move(host));
    else
        *known = std::move(host);
}

json::object job_view(const json::object& job) {
    json::object view;
    view["job"] = job.at("name");
    view["state"] = state_of(job.at("phase").as_string());
    view["generation"] = job.at("generation");
    if (const auto damage = text_of(job, "damage"); !damage.empty()) view["damage"] = damage;
    // A daemon of the version before does not tell them.
    const auto needed = number_of(job, "slots_needed");
    const auto least = needed ? needed : number_of(job, "ranks_min");
    if (least) view["slots_needed"] = *least;
    if (const auto step = number_of(job, "fastest_step")) view["newest_step"] = *step;
    json::array hosts, ranks;
    std::int64_t slots = 0;
    for (const json::value& value : list_of(job, "members")) {
        const json::object& member = object_of(value);
        const bool connected = member.at("connected").as_bool();
        if (connected) slots += whole(member, "slots");
        add_host(hosts, member.at("host"), connected);
        add_places(ranks, member, job);
    }
    view["slots"] = static_cast<std::int64_t>(
        number_of(job, "slots_ready").value_or(static_cast<double>(slots)));
    view["hosts"] = std::move(hosts);
    view["ranks"] = std::move(ranks);
    return view;
}

}  // namespace

std::string page_key(const Secret& secret) {
    const std::span<const std::uint8_t> purpose(
        reinterpret_cast<const std::uint8_t*>(kPurpose.data()), kPurpose.size());
    return hex(hmac_sha256(secret.bytes(), {purpose})).substr(0, kKeyDigits);
}

json::object daemon_view(const std::string& status) {
    json::array jobs;
    if (const auto all = parse_object(status))
        for (const json::value& job : list_of(*all, "jobs")) {
            const json::object view = job_view(object_of(job));
            jobs.push_back(page_view(view, examine(view)));
        }
    json::object view;
    view["jobs"] = std::move(jobs);
    return view;
}

Result<std::unique_ptr<DaemonPage>> DaemonPage::open(asio::any_io_executor executor,
                                                     const plan::ListenAddress& at, std::string key,
                                                     std::function<std::string()> status) {
    std::unique_ptr<DaemonPage> page(new DaemonPage(std::move(key), std::move(status)));
    auto opened = HttpServer::open(
        std::move(executor), at.address, at.port,
        [&page = *page](HttpRequest request) { return page.answer(std::move(request)); });
    if (!opened) return fail(opened.error(), "--web");
    page->server_ = std::move(*opened);
    return page;
}

asio::awaitable<HttpReply> DaemonPage::answer(HttpRequest request) {
    if (request.path == "/")
        co_return HttpReply{200, "text/html; charset=utf-8", std::string(kPage)};
    if (!equal_constant_time(as_bytes(request.key), as_bytes(key_))) co_return wrong_key();
    HttpReply reply{404, "text/plain", "not here\n"};
    if (request.path == "/api/view") reply = {.body = json_line(daemon_view(status_()))};
    if (request.path == "/metrics")
        if (const auto status = parse_object(status_()))
            reply = {200, kMetricsType, daemon_metrics_text(*status)};
    reply.is_trusted = true;
    co_return reply;
}

}  // namespace dtrun::watch
