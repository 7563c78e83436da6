#pragma once

#include "rendezvous/exchange/store.h"
#include "rendezvous/wire/msgpack.h"
#include "tests/support/catch.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun {

/// Asks a store in words, and shows replies as text: "ok 5", "not_found", "waits".
class StoreAsker {
public:
    static constexpr Deadline kBegin{};

    explicit StoreAsker(Store::Limits limits = {}, StoreJournal* journal = nullptr)
        : store_(
              [this](Store::Token token, const StoreReply& reply) {
                  late.push_back(std::to_string(token.second) + ": " + show(reply));
              },
              journal, limits) {}

    std::string ask(StoreRequest request, Deadline now = kBegin) {
        const auto reply = store_.ask({1, ++id_}, request, now);
        return reply ? show(*reply) : "waits";
    }
    std::string set(std::string_view key, std::string_view value) {
        return ask({Op::set, {key}, {value}});
    }
    std::string get(std::string_view key, std::uint64_t timeout_ms = 0, Deadline now = kBegin) {
        StoreRequest request{Op::get, {key}};
        request.timeout_ms = timeout_ms;
        return ask(request, now);
    }
    std::string add(std::string_view key, std::int64_t delta) {
        StoreRequest request{Op::add, {key}};
        request.delta = delta;
        return ask(request);
    }
    std::string compare_set(std::string_view key, std::optional<std::string_view> expected,
                            std::string_view desired) {
        return ask({Op::compare_set, {key}, {desired}, expected});
    }
    std::string pop(std::string_view key, std::uint64_t timeout_ms = 0) {
        StoreRequest request{Op::pop, {key}};
        request.timeout_ms = timeout_ms;
        return ask(request);
    }
    std::string push(std::string_view key, std::string_view value) {
        return ask({Op::push, {key}, {value}});
    }
    std::string watch(std::string_view key, std::uint64_t revision) {
        StoreRequest request{Op::watch, {key}};
        request.number = revision;
        request.timeout_ms = kForeverMs;
        return ask(request);
    }
    std::string put(std::string_view key, std::string_view value, std::uint64_t owner,
                    std::uint64_t ttl_ms = 0) {
        return ask(
            {.op = Op::put, .keys = {key}, .values = {value}, .owner = owner, .ttl_ms = ttl_ms});
    }
    std::string lock(std::string_view key, std::uint64_t owner,
                     std::uint64_t timeout_ms = kForeverMs) {
        return ask({.op = Op::lock,
                    .keys = {key},
                    .values = {""},
                    .timeout_ms = timeout_ms,
                    .owner = owner});
    }
    std::string unlock(std::string_view key, std::uint64_t token, std::uint64_t owner) {
        return ask({.op = Op::unlock, .keys = {key}, .number = token, .owner = owner});
    }
    std::string claim(std::string_view key, std::uint64_t owner, std::uint64_t timeout_ms = 0) {
        return ask({.op = Op::claim, .keys = {key}, .timeout_ms = timeout_ms, .owner = owner});
    }
    std::string end_claim(Op op, std::string_view key, std::uint64_t item, std::uint64_t owner) {
        return ask({.op = op, .keys = {key}, .number = item, .owner = owner});
    }
    std::string watch_prefix(std::string_view prefix, std::uint64_t revision,
                             std::uint64_t timeout_ms = kForeverMs, std::uint64_t limit = 0) {
        return ask({.op = Op::watch_prefix,
                    .keys = {prefix},
                    .number = revision,
                    .timeout_ms = timeout_ms,
                    .limit = limit});
    }
    std::string transact(std::vector<Condition> conditions, std::vector<Action> actions) {
        StoreRequest request{.op = Op::transact};
        request.conditions = std::move(conditions);
        request.actions = std::move(actions);
        return ask(request);
    }
    Store& store() { return store_; }
    std::vector<std::string> late;

private:
    static std::string show(const StoreReply& reply) {
        static const char* names[] = {"ok",        "not_found", "timed_out", "stale",
                                      "cancelled", "refused",   "wrong_type"};
        std::string text = names[static_cast<int>(reply.status)];
        PackReader in(reply.results);
        const std::uint32_t items = in.array();
        for (std::uint32_t i = 0; i < items; ++i) text += " " + item(in);
        CHECK(in.at_end());
        return text;
    }
    static std::string item(PackReader& in) {
        PackReader probe = in;
        if (probe.nil()) return in.nil() ? "nil" : "";
        if (const bool value = probe.boolean(); probe.ok())
            return in.boolean(), value ? "true" : "false";
        if (probe = in; probe.uint(), probe.ok()) return std::to_string(in.uint());
        if (probe = in; probe.integer(), probe.ok()) return std::to_string(in.integer());
        if (probe = in; probe.bytes(), probe.ok()) return std::string(in.bytes());
        std::string list = "[";
        const std::uint32_t items = in.array();
        for (std::uint32_t i = 0; i < items; ++i) list += (i > 0 ? " " : "") + item(in);
        return list + "]";
    }

    Store store_;
    std::uint64_t id_ = 0;
};

}  // namespace dtrun
