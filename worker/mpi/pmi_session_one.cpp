// What a client of PMI-1 may ask, as MPICH, Intel MPI and MVAPICH do.

#include "worker/mpi/pmi_session.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>
#include <limits>

namespace dtrun::mpi {
namespace {

/// A client reads lines of 1 KiB, and can tell a value only by its blank.
bool can_be_read(std::string_view value) {
    return value.size() <= PmiTable::kValueBytesMax && is_pmi1_word(value);
}

/// In what is one word on the wire.
std::string as_word(std::string text) {
    std::ranges::replace(text, ' ', '_');
    return text;
}

}  // namespace

const PmiSession::Request PmiSession::kRequestsOne[] = {
    {"init", &PmiSession::begin},
    {"get_maxes", &PmiSession::get_maxes},
    {"get_appnum", &PmiSession::get_appnum},
    {"get_my_kvsname", &PmiSession::get_my_kvsname},
    {"get_universe_size", &PmiSession::get_universe_size},
    {"get_ranks2hosts", &PmiSession::get_ranks2hosts},
    {"put", &PmiSession::put},
    {"get", &PmiSession::get},
    {"getbyidx", &PmiSession::getbyidx},
    {"barrier_in", &PmiSession::barrier_in},
    {"finalize", &PmiSession::finalize},
    {"abort", &PmiSession::abort},
    {"publish_name", &PmiSession::publish_name},
    {"unpublish_name", &PmiSession::unpublish_name},
    {"lookup_name", &PmiSession::lookup_name},
    {"spawn", &PmiSession::spawn},
};

/// An unknown request gets a reply named "error": the expected name is not known, and clients take
/// any other name for an error.
void PmiSession::execute_one(const PmiCommand& command) {
    const auto known = std::ranges::find(kRequestsOne, command.name, &Request::name);
    if (known == std::end(kRequestsOne))
        return reply("error", {{"rc", "-1"}, {"msg", "not_known_to_dtrun"}});
    (this->*known->execute)(command);
}

void PmiSession::get_maxes(const PmiCommand&) {
    reply("maxes", {{"kvsname_max", "256"},
                    {"keylen_max", fmt::format("{}", PmiTable::kKeyBytesMax)},
                    {"vallen_max", fmt::format("{}", PmiTable::kValueBytesMax)}});
}

void PmiSession::get_appnum(const PmiCommand&) {
    reply("appnum", {{"appnum", "0"}});
}

void PmiSession::get_my_kvsname(const PmiCommand&) {
    reply("my_kvsname", {{"kvsname", host_.kvs_name()}});
}

void PmiSession::get_universe_size(const PmiCommand&) {
    reply("universe_size", {{"size", fmt::format("{}", host_.world().world_size)}});
}

/// An extension of Intel MPI, whose answer has a form of its own.
void PmiSession::get_ranks2hosts(const PmiCommand&) {
    out_ += host_.ranks_to_hosts();
}

/// There is only one; some clients do not name it.
bool PmiSession::is_our_table(const PmiCommand& command) const {
    const std::string_view table = command.value("kvsname");
    return table.empty() || table == host_.kvs_name();
}

void PmiSession::put(const PmiCommand& command) {
    const auto done = is_our_table(command)
                          ? host_.table().put(command.value("key"), command.value("value"))
                          : fail(Errc::invalid_input, "there is no such table");
    if (done)
        reply("put_result", {{"rc", "0"}, {"msg", "success"}});
    else
        reply("put_result", {{"rc", "-1"}, {"msg", as_word(done.error().message)}});
}

void PmiSession::get(const PmiCommand& command) {
    const std::string_view key = command.value("key");
    const std::string* value = nullptr;
    if (key == "PMI_process_mapping")
        value = host_.process_mapping().empty() ? nullptr : &host_.process_mapping();
    else if (is_our_table(command))
        value = host_.table().get(key);
    if (value != nullptr && can_be_read(*value))
        reply("get_result", {{"rc", "0"}, {"msg", "success"}, {"value", *value}});
    else
        reply("get_result", {{"rc", "-1"}, {"msg", "key_not_found"}, {"value", "unknown"}});
}

void PmiSession::getbyidx(const PmiCommand& command) {
    const auto index = to_int(command.value("idx"), 0, std::numeric_limits<int>::max());
    const PmiTable::Entry* const entry =
        index ? host_.table().at(static_cast<std::size_t>(*index)) : nullptr;
    if (entry != nullptr && is_pmi1_word(entry->key) && can_be_read(entry->value))
        reply("getbyidx_results", {{"rc", "0"},
                                   {"nextidx", fmt::format("{}", *index + 1)},
                                   {"key", entry->key},
                                   {"val", entry->value}});
    else
        reply("getbyidx_results", {{"rc", "-1"}, {"reason", "no_more_keyvals"}});
}

void PmiSession::barrier_in(const PmiCommand&) {
    barrier_ = BarrierWait{{}, Clock::now()};
    host_.enter_barrier(*this);
}

void PmiSession::finalize(const PmiCommand&) {
    reply("finalize_ack", {});
    finalized();
}

/// Gives no answer: MPICH now waits to be killed, and MPI_Abort would return after an answer or the
/// end of the connection.
void PmiSession::abort(const PmiCommand& command) {
    const auto code = to_int(command.value("exitcode"), std::numeric_limits<std::int32_t>::min(),
                             std::numeric_limits<std::int32_t>::max());
    aborted(static_cast<std::int32_t>(code.value_or(1)));
}

/// Replies with both "info" and "rc", as clients differ in which they look at.
void PmiSession::name_done(const char* result, bool done, const char* why) {
    if (done)
        reply(result, {{"info", "ok"}, {"rc", "0"}, {"msg", "success"}});
    else
        reply(result, {{"info", "fail"}, {"rc", "1"}, {"msg", why}});
}

void PmiSession::publish_name(const PmiCommand& command) {
    ask(Op::compare_set, command.value("service"), command.value("port"),
        [this](const StoreReply& answer) {
            PackReader in(answer.results);
            in.array();
            name_done("publish_result", answer.status == Status::ok && in.boolean(),
                      "key_already_present");
        });
}

void PmiSession::unpublish_name(const PmiCommand& command) {
    ask(Op::erase, command.value("service"), {}, [this](const StoreReply& answer) {
        PackReader in(answer.results);
        in.array();
        name_done("unpublish_result", answer.status == Status::ok && in.boolean(),
                  "service_not_found");
    });
}

void PmiSession::lookup_name(const PmiCommand& command) {
    ask(Op::get, command.value("service"), {}, [this](const StoreReply& answer) {
        PackReader in(answer.results);
        in.array();
        const std::string_view port = answer.status == Status::ok ? in.bytes() : "";
        if (answer.status == Status::ok && can_be_read(port))
            reply("lookup_result",
                  {{"port", std::string(port)}, {"info", "ok"}, {"rc", "0"}, {"msg", "success"}});
        else
            name_done("lookup_result", false, "service_not_found");
    });
}

/// Of several programs in one call, each is a command, and the last is answered.
void PmiSession::spawn(const PmiCommand& command) {
    if (command.value("spawnssofar") != command.value("totspawns")) return;
    host_.spawn_refused(rank_);
    reply("spawn_result", {{"rc", "-1"}, {"status", "dtrun_starts_no_further_ranks"}});
}

}  // namespace dtrun::mpi
