#include "worker/mpi/pmi_one.h"

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

/// Replaces blanks, which would end a value of PMI-1.
std::string as_word(std::string text) {
    std::ranges::replace(text, ' ', '_');
    return text;
}

}  // namespace

const PmiOne::Request PmiOne::kRequests[] = {
    {"init", &PmiOne::init},
    {"get_maxes", &PmiOne::get_maxes},
    {"get_appnum", &PmiOne::get_appnum},
    {"get_my_kvsname", &PmiOne::get_my_kvsname},
    {"get_universe_size", &PmiOne::get_universe_size},
    {"get_ranks2hosts", &PmiOne::get_ranks2hosts},
    {"put", &PmiOne::put},
    {"get", &PmiOne::get},
    {"getbyidx", &PmiOne::getbyidx},
    {"barrier_in", &PmiOne::barrier_in},
    {"finalize", &PmiOne::finalize},
    {"abort", &PmiOne::abort},
    {"publish_name", &PmiOne::publish_name},
    {"unpublish_name", &PmiOne::unpublish_name},
    {"lookup_name", &PmiOne::lookup_name},
    {"spawn", &PmiOne::spawn},
};

/// An unknown request gets a reply named "error": the expected name is not known, and clients take
/// any other name for an error.
void PmiOne::execute(const PmiCommand& command) {
    const auto known = std::ranges::find(kRequests, command.name, &Request::name);
    if (known == std::end(kRequests))
        return client_.reply("error", {{"rc", "-1"}, {"msg", "not_known_to_dtrun"}});
    (this->*known->execute)(command);
}

bool PmiOne::is_blocked() const {
    return client_.waits().in_barrier() || client_.names().unanswered() > 0;
}

void PmiOne::barrier_passed(const std::string&) {
    client_.reply("barrier_out", {});
}

void PmiOne::init(const PmiCommand& command) {
    client_.begin(command);
}

void PmiOne::get_maxes(const PmiCommand&) {
    client_.reply("maxes", {{"kvsname_max", "256"},
                            {"keylen_max", fmt::format("{}", PmiTable::kKeyBytesMax)},
                            {"vallen_max", fmt::format("{}", PmiTable::kValueBytesMax)}});
}

void PmiOne::get_appnum(const PmiCommand&) {
    client_.reply("appnum",
                  {{"appnum", fmt::format("{}", client_.host().world().appnum(client_.rank()))}});
}

void PmiOne::get_my_kvsname(const PmiCommand&) {
    client_.reply("my_kvsname", {{"kvsname", client_.host().kvs_name()}});
}

void PmiOne::get_universe_size(const PmiCommand&) {
    client_.reply("universe_size",
                  {{"size", fmt::format("{}", client_.host().world().world_size)}});
}

/// An extension of Intel MPI, whose answer has a form of its own.
void PmiOne::get_ranks2hosts(const PmiCommand&) {
    client_.send(client_.host().ranks_to_hosts());
}

/// There is only one; some clients do not name it.
bool PmiOne::is_our_table(const PmiCommand& command) const {
    const std::string_view table = command.value("kvsname");
    return table.empty() || table == client_.host().kvs_name();
}

void PmiOne::put(const PmiCommand& command) {
    const auto done = is_our_table(command)
                          ? client_.host().table().put(command.value("key"), command.value("value"))
                          : fail(Errc::invalid_input, "there is no such table");
    if (done)
        client_.reply("put_result", {{"rc", "0"}, {"msg", "success"}});
    else
        client_.reply("put_result", {{"rc", "-1"}, {"msg", as_word(done.error().message)}});
}

void PmiOne::get(const PmiCommand& command) {
    const std::string_view key = command.value("key");
    const std::string* value = nullptr;
    if (key == "PMI_process_mapping")
        value =
            client_.host().process_mapping().empty() ? nullptr : &client_.host().process_mapping();
    else if (is_our_table(command))
        value = client_.host().table().get(key);
    if (value != nullptr && can_be_read(*value))
        client_.reply("get_result", {{"rc", "0"}, {"msg", "success"}, {"value", *value}});
    else
        client_.reply("get_result", {{"rc", "-1"}, {"msg", "key_not_found"}, {"value", "unknown"}});
}

void PmiOne::getbyidx(const PmiCommand& command) {
    const auto index = to_int(command.value("idx"), 0, std::numeric_limits<int>::max());
    const PmiTable::Entry* const entry =
        index ? client_.host().table().at(static_cast<std::size_t>(*index)) : nullptr;
    if (entry != nullptr && is_pmi1_word(entry->key) && can_be_read(entry->value))
        client_.reply("getbyidx_results", {{"rc", "0"},
                                           {"nextidx", fmt::format("{}", *index + 1)},
                                           {"key", entry->key},
                                           {"val", entry->value}});
    else
        client_.reply("getbyidx_results", {{"rc", "-1"}, {"reason", "no_more_keyvals"}});
}

void PmiOne::barrier_in(const PmiCommand&) {
    client_.enter_barrier({});
}

void PmiOne::finalize(const PmiCommand&) {
    client_.reply("finalize_ack", {});
    client_.finalize();
}

/// Gives no answer: MPICH now waits to be killed, and MPI_Abort would return after an answer or the
/// end of the connection.
void PmiOne::abort(const PmiCommand& command) {
    const auto code = to_int(command.value("exitcode"), std::numeric_limits<std::int32_t>::min(),
                             std::numeric_limits<std::int32_t>::max());
    client_.abort(static_cast<std::int32_t>(code.value_or(1)));
}

/// Replies with both "info" and "rc", as clients differ in which they look at.
void PmiOne::name_done(const char* result, bool done, const char* why) {
    if (done)
        client_.reply(result, {{"info", "ok"}, {"rc", "0"}, {"msg", "success"}});
    else
        client_.reply(result, {{"info", "fail"}, {"rc", "1"}, {"msg", why}});
}

void PmiOne::publish_name(const PmiCommand& command) {
    client_.names().publish(
        command.value("service"), command.value("port"), [this](const StoreReply& answer) {
            PackReader in(answer.results);
            in.array();
            name_done("publish_result", answer.status == Status::ok && in.boolean(),
                      "key_already_present");
        });
}

void PmiOne::unpublish_name(const PmiCommand& command) {
    client_.names().unpublish(command.value("service"), [this](const StoreReply& answer) {
        PackReader in(answer.results);
        in.array();
        name_done("unpublish_result", answer.status == Status::ok && in.boolean(),
                  "service_not_found");
    });
}

void PmiOne::lookup_name(const PmiCommand& command) {
    client_.names().look_up(command.value("service"), [this](const StoreReply& answer) {
        PackReader in(answer.results);
        in.array();
        const std::string_view port = answer.status == Status::ok ? in.bytes() : "";
        if (answer.status == Status::ok && can_be_read(port))
            client_.reply(
                "lookup_result",
                {{"port", std::string(port)}, {"info", "ok"}, {"rc", "0"}, {"msg", "success"}});
        else
            name_done("lookup_result", false, "service_not_found");
    });
}

/// MPI_Comm_spawn_multiple sends a command for each program; only the last one is answered.
void PmiOne::spawn(const PmiCommand& command) {
    if (command.value("spawnssofar") != command.value("totspawns")) return;
    client_.host().spawn_refused(client_.rank());
    client_.reply("spawn_result", {{"rc", "-1"}, {"status", "dtrun_starts_no_further_ranks"}});
}

}  // namespace dtrun::mpi
