#include "launcher/watch/daemon_page.h"

#include "base/crypto.h"
#include "launcher/watch/metrics_text.h"
#include "launcher/watch/page.h"
#include "launcher/watch/serialize.h"

#include <fmt/format.h>
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
    return phase == "changing" ? "restarting" : phase == "finishing" ? "ending" : "starting";
}

json::object job_view(const json::object& job) {
    json::object view;
    view["job"] = job.at("name");
    view["state"] = state_of(job.at("phase").as_string());
    view["generation"] = job.at("generation");
    json::array hosts, ranks, waiting;
    if (const json::value* const members = job.if_contains("members")) {
        for (const json::value& member : members->as_array()) {
            const bool connected = member.at("connected").as_bool();
            json::object host;
            host["host"] = member.at("host");
            host["state"] = connected ? "joined" : "lost";
            if (!connected) host["why"] = "not connected; it may come back";
            hosts.push_back(std::move(host));
            for (const json::value& rank : member.at("rank_list").as_array()) {
                json::object place;
                place["rank"] = rank;
                place["host"] = member.at("host");
                place["state"] = connected ? "member" : "lost";
                ranks.push_back(std::move(place));
            }
        }
    }
    const auto waiters = job.at("waiting").to_number<std::uint64_t>();
    if (waiters > 0)
        waiting.emplace_back(fmt::format("{} of its clients wait in the store", waiters));
    if (const json::value* const slowest = job.if_contains("slowest_rank"))
        waiting.emplace_back(fmt::format("steps: from {} (rank {}) to {}",
                                         job.at("slowest_step").to_number<std::uint64_t>(),
                                         slowest->to_number<std::uint64_t>(),
                                         job.at("fastest_step").to_number<std::uint64_t>()));
    view["hosts"] = std::move(hosts);
    view["ranks"] = std::move(ranks);
    view["waiting"] = std::move(waiting);
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
    if (const auto whole = parse_object(status))
        for (const json::value& job : whole->at("jobs").as_array())
            jobs.push_back(job_view(job.as_object()));
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
    if (request.path == "/api/view") reply = {.body = serialize(daemon_view(status_()))};
    if (request.path == "/metrics")
        if (const auto status = parse_object(status_()))
            reply = {200, kMetricsType, daemon_metrics_text(*status)};
    reply.is_trusted = true;
    co_return reply;
}

}  // namespace dtrun::watch
