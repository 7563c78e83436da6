// What a client of PMI-2 may ask: MPI libraries that were built for it, and Slurm's libpmi2.

#include "worker/mpi/pmi_session.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::mpi {
namespace {

constexpr std::size_t kThreadBytesMax = 64;  // an address, in MPICH

}  // namespace

const PmiSession::Request PmiSession::kRequestsTwo[] = {
    {"fullinit", &PmiSession::fullinit},
    {"finalize", &PmiSession::finalize_two},
    {"abort", &PmiSession::abort_two},
    {"job-getid", &PmiSession::job_getid},
    {"job-connect", &PmiSession::job_connect},
    {"job-disconnect", &PmiSession::job_connect},
    {"ring", &PmiSession::ring},
    {"kvs-put", &PmiSession::kvs_put},
    {"kvs-get", &PmiSession::kvs_get},
    {"kvs-fence", &PmiSession::kvs_fence},
    {"info-getjobattr", &PmiSession::info_getjobattr},
    {"info-getnodeattr", &PmiSession::info_getnodeattr},
    {"info-putnodeattr", &PmiSession::info_putnodeattr},
    {"name-publish", &PmiSession::name_publish},
    {"name-unpublish", &PmiSession::name_unpublish},
    {"name-lookup", &PmiSession::name_lookup},
    {"spawn", &PmiSession::spawn_two},
};

void PmiSession::execute_two(const PmiCommand& command) {
    if (command.value("thrid").size() > kThreadBytesMax)
        return answer_error({command.name, {}}, "thrid is too long");
    const auto known = std::ranges::find(kRequestsTwo, command.name, &Request::name);
    if (known == std::end(kRequestsTwo)) return answer_error(command, "not known to dtrun");
    (this->*known->execute)(command);
}

void PmiSession::answer(const PmiCommand& command, Values values) {
    reply(command.name + "-response", std::move(values), command.value("thrid"));
}

void PmiSession::answer_error(const PmiCommand& command, std::string why) {
    answer(command, {{"rc", "1"}, {"errmsg", std::move(why)}});
}

/// What answer() needs of it, to keep until the answer is known.
PmiCommand PmiSession::head_of(const PmiCommand& command) {
    return {command.name, {{"thrid", std::string(command.value("thrid"))}}};
}

void PmiSession::fullinit(const PmiCommand& command) {
    answer(command, {{"pmi-version", "2"},
                     {"pmi-subversion", "0"},
                     {"rank", fmt::format("{}", rank_)},
                     {"size", fmt::format("{}", host_.world().world_size)},
                     {"appnum", "0"},
                     {"debugged", "FALSE"},
                     {"pmiverbose", "FALSE"},
                     {"rc", "0"}});
}

void PmiSession::finalize_two(const PmiCommand& command) {
    answer(command, {{"rc", "0"}});
    finalized();
}

/// In PMI-2 it has no exit code.
void PmiSession::abort_two(const PmiCommand&) {
    aborted(1);
}

void PmiSession::job_getid(const PmiCommand& command) {
    answer(command, {{"jobid", host_.kvs_name()}, {"rc", "0"}});
}

void PmiSession::job_connect(const PmiCommand& command) {
    answer_error(command, "dtrun does not connect jobs");
}

void PmiSession::ring(const PmiCommand& command) {
    if (ring_) return answer_error(command, "this rank is in a ring already");
    const std::string_view left = command.value("ring-left");
    const std::string_view right = command.value("ring-right");
    if (std::max(left.size(), right.size()) > PmiTable::kValueBytesMax)
        return answer_error(command, "a value is too long");
    ring_ = BarrierWait{std::string(command.value("thrid")), Clock::now()};
    host_.enter_ring(*this, std::string(left), std::string(right));
}

void PmiSession::kvs_put(const PmiCommand& command) {
    const auto done = host_.table().put(command.value("key"), command.value("value"));
    if (!done) return answer_error(command, done.error().message);
    answer(command, {{"rc", "0"}});
}

void PmiSession::kvs_get(const PmiCommand& command) {
    const std::string_view job = command.value("jobid");
    const bool ours = job.empty() || job == host_.kvs_name();
    const std::string* const value = ours ? host_.table().get(command.value("key")) : nullptr;
    if (value == nullptr) return answer(command, {{"found", "FALSE"}, {"rc", "0"}});
    answer(command, {{"found", "TRUE"}, {"value", *value}, {"rc", "0"}});
}

void PmiSession::kvs_fence(const PmiCommand& command) {
    if (barrier_) return answer_error(command, "this rank is in a fence already");
    barrier_ = BarrierWait{std::string(command.value("thrid")), Clock::now()};
    host_.enter_barrier(*this);
}

void PmiSession::info_getjobattr(const PmiCommand& command) {
    const std::string_view key = command.value("key");
    std::string value;
    if (key == "PMI_process_mapping") value = host_.process_mapping();
    if (key == "universeSize") value = fmt::format("{}", host_.world().world_size);
    if (key == "hasNameServ") value = "1";
    if (value.empty()) return answer(command, {{"found", "FALSE"}, {"rc", "0"}});
    answer(command, {{"found", "TRUE"}, {"value", std::move(value)}, {"rc", "0"}});
}

/// What was put, and what is there without.
std::optional<std::string> PmiSession::node_attribute(std::string_view key) const {
    if (const std::string* const put = host_.attribute(key)) return *put;
    const auto& ranks = host_.world().ranks;
    if (key == "localRanksCount") return fmt::format("{}", ranks.size());
    if (key == "localRanks") return fmt::format("{}", fmt::join(ranks, ","));
    return {};
}

void PmiSession::info_getnodeattr(const PmiCommand& command) {
    const std::string_view key = command.value("key");
    if (const auto value = node_attribute(key))
        return answer(command, {{"found", "TRUE"}, {"value", *value}, {"rc", "0"}});
    if (command.value("wait") != "TRUE" || key.size() > PmiTable::kKeyBytesMax)
        return answer(command, {{"found", "FALSE"}, {"rc", "0"}});
    attributes_.push_back({std::string(key), std::string(command.value("thrid")), Clock::now()});
}

void PmiSession::info_putnodeattr(const PmiCommand& command) {
    // Other threads of this client may wait for the attribute, too; they are answered first.
    const auto done = host_.put_attribute(command.value("key"), command.value("value"));
    if (!done) return answer_error(command, done.error().message);
    answer(command, {{"rc", "0"}});
}

void PmiSession::name_publish(const PmiCommand& command) {
    ask(Op::compare_set, command.value("name"), command.value("port"),
        [this, head = head_of(command)](const StoreReply& reply) {
            PackReader in(reply.results);
            in.array();
            if (reply.status != Status::ok || !in.boolean())
                return answer_error(head, "that name is published already");
            answer(head, {{"rc", "0"}});
        });
}

void PmiSession::name_unpublish(const PmiCommand& command) {
    ask(Op::erase, command.value("name"), {},
        [this, head = head_of(command)](const StoreReply& reply) {
            PackReader in(reply.results);
            in.array();
            if (reply.status != Status::ok || !in.boolean())
                return answer_error(head, "no such name is published");
            answer(head, {{"rc", "0"}});
        });
}

/// MPICH's client looks for the port under "port", Slurm's under "value".
void PmiSession::name_lookup(const PmiCommand& command) {
    ask(Op::get, command.value("name"), {},
        [this, head = head_of(command)](const StoreReply& reply) {
            PackReader in(reply.results);
            in.array();
            if (reply.status != Status::ok)
                return answer(
                    head,
                    {{"found", "FALSE"}, {"rc", "1"}, {"errmsg", "no such name is published"}});
            const std::string port(in.bytes());
            answer(head, {{"found", "TRUE"}, {"value", port}, {"port", port}, {"rc", "0"}});
        });
}

void PmiSession::spawn_two(const PmiCommand& command) {
    host_.spawn_refused(rank_);
    answer_error(command, "dtrun starts no further ranks");
}

}  // namespace dtrun::mpi
