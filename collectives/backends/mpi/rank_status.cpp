#include "collectives/backends/mpi/rank_status.h"

#include <fmt/format.h>
#include <vector>

namespace dtrun::collectives {
namespace {

constexpr char kGoOn = '+';
constexpr char kStop = '-';
constexpr char kLate = '!';

/// What is wrong with these statuses, or "".
std::string fault(const GroupSpec& spec, const std::vector<RankStatus>& statuses) {
    const auto rank = [&](std::size_t member) {
        return fmt::format("rank {}", spec.members[member]);
    };
    const RankStatus& first = statuses.front();
    for (std::size_t i = 0; i < statuses.size(); ++i)
        if (!statuses[i].problem.empty())
            return fmt::format("{}: {}", rank(i), statuses[i].problem);
    for (std::size_t i = 0; i < statuses.size(); ++i) {
        const RankStatus& other = statuses[i];
        if (other.library != first.library)
            return fmt::format(
                "{} uses {} and {} {}: all need the same MPI library (DTRUN_MPI_LIBRARY)", rank(0),
                first.library, rank(i), other.library);
        if (other.begun != first.begun)
            return fmt::format(
                "MPI has begun in {} but not in {}, and cannot begin twice in one process: after a "
                "change of the membership use the backend gloo",
                rank(first.begun ? 0 : i), rank(first.begun ? i : 0));
    }
    return {};
}

/// The member that the others waited for in vain.
std::string absent(const GroupSpec& spec, std::span<const std::string> keys) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto found = spec.store->find(keys[i]);
        if (found && !*found) return fmt::format("rank {}", spec.members[i]);
    }
    return "a rank";
}

/// On the first member: reads all statuses and returns the answer, instead of all reading from
/// all.
Result<std::string> judge(const GroupSpec& spec, std::span<const std::string> keys) {
    const auto texts = spec.store->get(keys, spec.timeout);
    if (!texts) {
        if (texts.error().code != Errc::timed_out) return std::unexpected(texts.error());
        return fmt::format("{}{} has not come to make a group over MPI within {} ms", kLate,
                           absent(spec, keys), spec.timeout.count());
    }
    std::vector<RankStatus> statuses;
    for (const std::string& text : *texts) {
        auto status = RankStatus::decode(text);
        if (!status) return kStop + status.error().message;
        statuses.push_back(std::move(*status));
    }
    const std::string wrong = fault(spec, statuses);
    return wrong.empty() ? std::string(1, kGoOn) : kStop + wrong;
}

}  // namespace

std::string RankStatus::encode() const {
    return fmt::format("{}\n{}\n{}", begun ? "begun" : "new", library, problem);
}

Result<RankStatus> RankStatus::decode(std::string_view text) {
    const std::size_t first = text.find('\n');
    const std::size_t second = first == text.npos ? first : text.find('\n', first + 1);
    const std::string_view begun = text.substr(0, first);
    if (second == text.npos || (begun != "begun" && begun != "new"))
        return fail(Errc::invalid_input, "a rank has another version of dtrun's backend");
    return RankStatus{std::string(text.substr(first + 1, second - first - 1)), begun == "begun",
                      std::string(text.substr(second + 1))};
}

Result<void> meet(const GroupSpec& spec, std::string_view step, const RankStatus& mine) {
    const auto key = [&](std::string_view what) {
        return fmt::format("{}/mpi/{}/{}", spec.prefix, step, what);
    };
    std::vector<std::string> keys;
    for (const std::uint32_t member : spec.members) keys.push_back(key(fmt::to_string(member)));
    const KeyStore::Pair status{keys[spec.rank], mine.encode()};
    if (auto set = spec.store->set({&status, 1}); !set) return set;
    const std::string answer_key = key("answer");
    std::string answer;
    if (spec.rank == 0) {
        auto judged = judge(spec, keys);
        if (!judged) return std::unexpected(judged.error());
        answer = std::move(*judged);
        const KeyStore::Pair pair{answer_key, answer};
        if (auto set = spec.store->set({&pair, 1}); !set) return set;
    } else {
        auto got = spec.store->get({&answer_key, 1}, spec.timeout);
        if (!got) return fail(got.error(), "ranks that make a group over MPI");
        answer = std::move(got->front());
    }
    if (answer.starts_with(kGoOn)) return {};
    const Errc code = answer.starts_with(kLate) ? Errc::timed_out : Errc::invalid_input;
    return fail(code, "{}", answer.substr(1));
}

}  // namespace dtrun::collectives
