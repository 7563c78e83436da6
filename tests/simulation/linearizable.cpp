#include "tests/simulation/linearizable.h"

#include <fmt/format.h>
#include <algorithm>
#include <deque>
#include <unordered_set>

namespace dtrun::simulation {
namespace {

using Kind = Operation::Kind;

/// What a key holds: a value, or a queue.
struct KeyState {
    std::optional<std::string> value;
    std::deque<std::string> queue;
};

/// Does an operation. \return whether its answer is what was answered
bool apply(const Operation& operation, KeyState& state) {
    const auto& [value, queue] = state;
    const bool known = operation.returned.has_value();
    std::optional<std::string> result;
    bool was_set = false;
    switch (operation.kind) {
        case Kind::set:
            state.value = operation.argument;
            return true;
        case Kind::get:
            result = value;
            break;
        case Kind::add:
            state.value =
                std::to_string(std::stoll(value.value_or("0")) + std::stoll(operation.argument));
            result = value;
            break;
        case Kind::compare_set:
            was_set = value == operation.expected;
            if (was_set) state.value = operation.argument;
            result = value;
            break;
        case Kind::append:
            state.value = value.value_or("") + operation.argument;
            result = std::to_string(value->size());
            break;
        case Kind::erase:
            was_set = value.has_value() || !queue.empty();
            state = KeyState{};
            break;
        case Kind::push:
            state.queue.push_back(operation.argument);
            result = std::to_string(queue.size());
            break;
        case Kind::pop:
            if (queue.empty()) break;
            result = queue.front();
            state.queue.pop_front();
            break;
    }
    return !known || (result == operation.result && was_set == operation.was_set);
}

class Search {
public:
    explicit Search(std::vector<Operation> operations) : operations_(std::move(operations)) {
        std::ranges::sort(operations_, {}, &Operation::invoked);
        done_.assign(operations_.size(), '0');
        left_ = static_cast<std::size_t>(std::ranges::count_if(
            operations_,
            [](const Operation& operation) { return operation.returned.has_value(); }));
    }

    bool run(const KeyState& state) {
        if (left_ == 0) return true;
        if (!been_.insert(here(state)).second) return false;
        Deadline first_answer = Deadline::max();
        for (std::size_t i = 0; i < operations_.size(); ++i)
            if (done_[i] == '0' && operations_[i].returned)
                first_answer = std::min(first_answer, *operations_[i].returned);
        // Those that are answered are tried before those of which nobody knows.
        for (const bool answered : {true, false})
            for (std::size_t i = 0; i < operations_.size(); ++i) {
                const Operation& next = operations_[i];
                if (next.invoked > first_answer) break;
                if (done_[i] == '1' || next.returned.has_value() != answered) continue;
                KeyState after = state;
                if (!apply(next, after)) continue;
                done_[i] = '1';
                left_ -= answered ? 1 : 0;
                if (run(after)) return true;
                done_[i] = '0';
                left_ += answered ? 1 : 0;
            }
        return false;
    }

private:
    std::string here(const KeyState& state) const {
        std::string text = done_;
        text += state.value ? "=" + *state.value : "-";
        for (const std::string& item : state.queue) text += "," + item;
        return text;
    }

    std::vector<Operation> operations_;
    std::string done_;  ///< '1' for each that has been done
    std::size_t left_;  ///< answered ones that have not
    std::unordered_set<std::string> been_;
};

}  // namespace

std::string describe(const Operation& operation) {
    static constexpr const char* kNames[] = {"set",    "get",   "add",  "compare_set",
                                             "append", "erase", "push", "pop"};
    const auto time = [](Deadline when) {
        return std::chrono::duration<double>(when.time_since_epoch()).count() - 3.6e6;
    };
    return fmt::format("{:.6f}..{} {}: {}({}{}) = {}{}", time(operation.invoked),
                       operation.returned ? fmt::format("{:.6f}", time(*operation.returned)) : "?",
                       operation.who, kNames[static_cast<int>(operation.kind)], operation.argument,
                       operation.expected ? ", if " + *operation.expected : "",
                       operation.result.value_or("nothing"), operation.was_set ? ", done" : "");
}

bool is_linearizable(std::vector<Operation> operations) {
    // What changes nothing and has no answer says nothing.
    std::erase_if(operations, [](const Operation& operation) {
        return operation.kind == Kind::get && !operation.returned;
    });
    return Search(std::move(operations)).run({});
}

}  // namespace dtrun::simulation
