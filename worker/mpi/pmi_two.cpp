#include "worker/mpi/pmi_two.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::mpi {
namespace {

constexpr std::size_t kThreadBytesMax = 64;  // an address, in MPICH
constexpr std::size_t kWaitsMax = 4'096;     // one for each thread

}  // namespace

const PmiTwo::Request PmiTwo::kRequests[] = {
    {"fullinit", &PmiTwo::fullinit},
    {"finalize", &PmiTwo::finalize},
    {"abort", &PmiTwo::abort},
    {"job-getid", &PmiTwo::job_getid},
    {"job-connect", &PmiTwo::job_connect},
    {"job-disconnect", &PmiTwo::job_connect},
    {"ring", &PmiTwo::ring},
    {"kvs-put", &PmiTwo::kvs_put},
    {"kvs-get", &PmiTwo::kvs_get},
    {"kvs-fence", &PmiTwo::kvs_fence},
    {"info-getjobattr", &PmiTwo::info_getjobattr},
    {"info-getnodeattr", &PmiTwo::info_getnodeattr},
    {"info-putnodeattr", &PmiTwo::info_putnodeattr},
    {"name-publish", &PmiTwo::name_publish},
    {"name-unpublish", &PmiTwo::name_unpublish},
    {"name-lookup", &PmiTwo::name_lookup},
    {"spawn", &PmiTwo::spawn},
};

void PmiTwo::execute(const PmiCommand& command) {
    if (command.value("thrid").size() > kThreadBytesMax)
        return answer_error({command.name, {}}, "thrid is too long");
    const auto known = std::ranges::find(kRequests, command.name, &Request::name);
    if (known == std::end(kRequests)) return answer_error(command, "not known to dtrun");
    (this->*known->execute)(command);
}

bool PmiTwo::is_blocked() const {
    return client_.names().unanswered() + client_.waits().attributes() >= kWaitsMax;
}

void PmiTwo::barrier_passed(const std::string& thread) {
    client_.reply("kvs-fence-response", {{"rc", "0"}}, thread);
}

void PmiTwo::ring_closed(const std::string& thread, const PmiRing& ring) {
    client_.reply("ring-response",
                  {{"rc", "0"},
                   {"ring-count", fmt::format("{}", ring.place)},
                   {"ring-left", ring.left},
                   {"ring-right", ring.right}},
                  thread);
}

void PmiTwo::attribute_put(const std::string& thread, std::string_view value) {
    client_.reply("info-getnodeattr-response",
                  {{"found", "TRUE"}, {"value", std::string(value)}, {"rc", "0"}}, thread);
}

void PmiTwo::answer(const PmiCommand& command, PmiCommand::Values values) {
    client_.reply(command.name + "-response", std::move(values), command.value("thrid"));
}

void PmiTwo::answer_error(const PmiCommand& command, std::string why) {
    answer(command, {{"rc", "1"}, {"errmsg", std::move(why)}});
}

/// What answer() needs of it, to keep until the answer is known.
PmiCommand PmiTwo::head_of(const PmiCommand& command) {
    return {command.name, {{"thrid", std::string(command.value("thrid"))}}};
}

void PmiTwo::fullinit(const PmiCommand& command) {
    answer(command, {{"pmi-version", "2"},
                     {"pmi-subversion", "0"},
                     {"rank", fmt::format("{}", client_.rank())},
                     {"size", fmt::format("{}", client_.host().world().world_size)},
                     {"appnum", fmt::format("{}", client_.host().world().appnum(client_.rank()))},
                     {"debugged", "FALSE"},
                     {"pmiverbose", "FALSE"},
                     {"rc", "0"}});
}

void PmiTwo::finalize(const PmiCommand& command) {
    answer(command, {{"rc", "0"}});
    client_.finalize();
}

/// In PMI-2 it has no exit code.
void PmiTwo::abort(const PmiCommand&) {
    client_.abort(1);
}

void PmiTwo::job_getid(const PmiCommand& command) {
    answer(command, {{"jobid", client_.host().kvs_name()}, {"rc", "0"}});
}

void PmiTwo::job_connect(const PmiCommand& command) {
    answer_error(command, "dtrun does not connect jobs");
}

void PmiTwo::ring(const PmiCommand& command) {
    if (client_.waits().in_ring()) return answer_error(command, "this rank is in a ring already");
    const std::string_view left = command.value("ring-left");
    const std::string_view right = command.value("ring-right");
    if (std::max(left.size(), right.size()) > PmiTable::kValueBytesMax)
        return answer_error(command, "a value is too long");
    client_.enter_ring(command.value("thrid"), left, right);
}

void PmiTwo::kvs_put(const PmiCommand& command) {
    const auto done = client_.host().table().put(command.value("key"), command.value("value"));
    if (!done) return answer_error(command, done.error().message);
    answer(command, {{"rc", "0"}});
}

void PmiTwo::kvs_get(const PmiCommand& command) {
    const std::string_view job = command.value("jobid");
    const bool ours = job.empty() || job == client_.host().kvs_name();
    const std::string* const value =
        ours ? client_.host().table().get(command.value("key")) : nullptr;
    if (value == nullptr) return answer(command, {{"found", "FALSE"}, {"rc", "0"}});
    answer(command, {{"found", "TRUE"}, {"value", *value}, {"rc", "0"}});
}

void PmiTwo::kvs_fence(const PmiCommand& command) {
    if (client_.waits().in_barrier())
        return answer_error(command, "this rank is in a fence already");
    client_.enter_barrier(command.value("thrid"));
}

void PmiTwo::info_getjobattr(const PmiCommand& command) {
    const std::string_view key = command.value("key");
    std::string value;
    if (key == "PMI_process_mapping") value = client_.host().process_mapping();
    if (key == "universeSize") value = fmt::format("{}", client_.host().world().world_size);
    if (key == "hasNameServ") value = fmt::format("{}", 1);
    if (value.empty()) return answer(command, {{"found", "FALSE"}, {"rc", "0"}});
    answer(command, {{"found", "TRUE"}, {"value", std::move(value)}, {"rc", "0"}});
}

/// The value that a rank has put, else that of an attribute which every host has.
std::optional<std::string> PmiTwo::node_attribute(std::string_view key) const {
    if (const std::string* const put = client_.host().attribute(key)) return *put;
    const auto& ranks = client_.host().world().ranks;
    if (key == "localRanksCount") return fmt::format("{}", ranks.size());
    if (key == "localRanks") return fmt::format("{}", fmt::join(ranks, ","));
    return {};
}

void PmiTwo::info_getnodeattr(const PmiCommand& command) {
    const std::string_view key = command.value("key");
    if (const auto value = node_attribute(key))
        return answer(command, {{"found", "TRUE"}, {"value", *value}, {"rc", "0"}});
    if (command.value("wait") != "TRUE" || key.size() > PmiTable::kKeyBytesMax)
        return answer(command, {{"found", "FALSE"}, {"rc", "0"}});
    client_.waits().begin_attribute(key, command.value("thrid"));
}

void PmiTwo::info_putnodeattr(const PmiCommand& command) {
    // Other threads of this client may wait for the attribute, too; they are answered first.
    const auto done = client_.host().put_attribute(command.value("key"), command.value("value"));
    if (!done) return answer_error(command, done.error().message);
    answer(command, {{"rc", "0"}});
}

void PmiTwo::name_publish(const PmiCommand& command) {
    client_.names().publish(command.value("name"), command.value("port"),
                            [this, head = head_of(command)](const StoreReply& reply) {
                                PackReader in(reply.results);
                                in.array();
                                if (reply.status != Status::ok || !in.boolean())
                                    return answer_error(head, "that name is published already");
                                answer(head, {{"rc", "0"}});
                            });
}

void PmiTwo::name_unpublish(const PmiCommand& command) {
    client_.names().unpublish(command.value("name"),
                              [this, head = head_of(command)](const StoreReply& reply) {
                                  PackReader in(reply.results);
                                  in.array();
                                  if (reply.status != Status::ok || !in.boolean())
                                      return answer_error(head, "no such name is published");
                                  answer(head, {{"rc", "0"}});
                              });
}

/// MPICH's client looks for the port under "port", Slurm's under "value".
void PmiTwo::name_lookup(const PmiCommand& command) {
    client_.names().look_up(command.value("name"), [this, head = head_of(command)](
                                                       const StoreReply& reply) {
        PackReader in(reply.results);
        in.array();
        if (reply.status != Status::ok)
            return answer(
                head, {{"found", "FALSE"}, {"rc", "1"}, {"errmsg", "no such name is published"}});
        const std::string port(in.bytes());
        answer(head, {{"found", "TRUE"}, {"value", port}, {"port", port}, {"rc", "0"}});
    });
}

void PmiTwo::spawn(const PmiCommand& command) {
    client_.host().spawn_refused(client_.rank());
    answer_error(command, "dtrun starts no further ranks");
}

}  // namespace dtrun::mpi
