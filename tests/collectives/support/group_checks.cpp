#include "tests/collectives/support/group_checks.h"

#include "tests/collectives/support/check_buffer.h"
#include "tests/collectives/support/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>

namespace dtrun::collectives {
namespace {

/// Of data that are only moved: what `from` has for `to`, repeated.
Bytes moved_period(std::uint32_t from, std::uint32_t to) {
    Bytes bytes(kPeriod);
    for (std::size_t i = 0; i < kPeriod; ++i) bytes[i] = std::byte(mix(from, to, i) >> 56);
    return bytes;
}

void append(Bytes& to, const Bytes& more) {
    to.insert(to.end(), more.begin(), more.end());
}

class Checks {
public:
    Checks(Group& group, const GroupSpec& spec, const CheckOptions& options)
        : group_(group), rank_(spec.rank), size_(spec.size), options_(options) {}

    Result<void> run();

private:
    struct Reduction {
        DType type;
        Reduce reduce;
        std::size_t count;
        Data data;
        bool in_place;
        std::uint32_t root;
    };
    struct Expected {
        Bytes mine;     ///< period of this rank's data
        Bytes reduced;  ///< and of the result
    };

    Result<void> reductions();
    Result<void> reductions(DType type, Reduce reduce, std::size_t count, Data data);
    Result<void> allreduce(const Reduction& what);
    Result<void> reduce(const Reduction& what);
    Result<void> reduce_scatter(const Reduction& what);
    Result<void> nans(DType type, Reduce reduce, std::size_t count);
    Result<void> nans();
    Result<void> same_bits();

    Result<void> moves(std::size_t bytes);
    Result<void> broadcast(std::size_t bytes, std::uint32_t root);
    Result<void> allgather(std::size_t bytes, bool in_place);
    Result<void> allgatherv(const std::string& name, const std::vector<std::size_t>& bytes,
                            bool in_place);
    Result<void> gather(std::size_t bytes, std::uint32_t root, bool in_place);
    Result<void> scatter(std::size_t bytes, std::uint32_t root, bool in_place);
    Result<void> alltoall(std::size_t bytes);

    Result<void> many_messages(std::size_t bytes);
    Result<void> messages_under_way(std::size_t bytes);
    Result<void> one_way_messages();

    std::string name(std::string_view operation, const Reduction& what, bool rooted) const;
    std::string name(std::string_view operation, std::size_t bytes, bool in_place,
                     std::optional<std::uint32_t> root = std::nullopt) const;
    const Expected& expected(const Reduction& what);
    /// An error of the group ends everything, here and at the others.
    Result<void> done(const Result<void>& result, const std::string& what);
    void wrong(const std::string& what, const std::string& how);
    void compare_elements(const std::string& what, const CheckBuffer& got, std::size_t first,
                          const Reduction& reduction);
    void compare_bytes(const std::string& what, const CheckBuffer& got, const Bytes& expected);
    /// Goes through in place and not, and through roots, over many calls.
    template <class F>
    Result<void> variants(bool rooted, const F& check);

    Group& group_;
    std::uint32_t rank_;
    std::uint32_t size_;
    const CheckOptions& options_;
    std::uint64_t calls_ = 0;
    std::uint64_t turn_ = 0;
    std::map<std::tuple<DType, Reduce, Data>, Expected> expected_;
    std::vector<std::pair<std::string, std::uint64_t>> hashes_;  ///< of results of allreduce
    Result<void> first_wrong_;
};

std::string Checks::name(std::string_view operation, const Reduction& what, bool rooted) const {
    std::string text = fmt::format("{} {} {} of {}", operation, name_of(what.type),
                                   name_of(what.reduce), what.count);
    if (rooted) text += fmt::format(" to root {}", what.root);
    if (what.data == Data::inexact) text += " between -1 and 1";
    if (what.in_place) text += ", in place";
    return text;
}

std::string Checks::name(std::string_view operation, std::size_t bytes, bool in_place,
                         std::optional<std::uint32_t> root) const {
    std::string text = fmt::format("{} of {} B", operation, bytes);
    if (root) text += fmt::format(", root {}", *root);
    if (in_place) text += ", in place";
    return text;
}

Result<void> Checks::done(const Result<void>& result, const std::string& what) {
    ++calls_;
    if (result) return {};
    group_.abort();
    return fail(result.error(), "rank {} of {}: {}", rank_, size_, what);
}

void Checks::wrong(const std::string& what, const std::string& how) {
    if (first_wrong_)
        first_wrong_ = fail(Errc::internal, "rank {} of {}: {}: {}", rank_, size_, what, how);
}

const Checks::Expected& Checks::expected(const Reduction& what) {
    auto& one = expected_[{what.type, what.reduce, what.data}];
    if (one.mine.empty()) {
        one.mine = rank_period(what.type, what.reduce, what.data, rank_, size_);
        one.reduced = reduced_period(what.type, what.reduce, what.data, size_);
    }
    return one;
}

void Checks::compare_elements(const std::string& what, const CheckBuffer& got, std::size_t first,
                              const Reduction& reduction) {
    const std::size_t width = bytes_of(reduction.type);
    const Bytes is = got.content();
    const Bytes should = repeat(expected(reduction).reduced, is.size(), first * width);
    if (!got.guards_untouched()) return wrong(what, "bytes outside of the data were written");
    if (is == should) return;
    const long double bound = tolerance(reduction.type, reduction.reduce, reduction.data, size_);
    for (std::size_t at = 0; at < is.size(); at += width) {
        const long double a = load_element(&is[at], reduction.type);
        const long double b = load_element(&should[at], reduction.type);
        if (std::fabs(a - b) <= bound) continue;
        return wrong(what, fmt::format("element {} is {}, not {}", at / width,
                                       static_cast<double>(a), static_cast<double>(b)));
    }
}

void Checks::compare_bytes(const std::string& what, const CheckBuffer& got, const Bytes& expected) {
    if (!got.guards_untouched()) return wrong(what, "bytes outside of the data were written");
    const Bytes is = got.content();
    const auto [a, b] = std::mismatch(is.begin(), is.end(), expected.begin(), expected.end());
    if (a == is.end() && b == expected.end()) return;
    wrong(what, fmt::format("byte {} is {:#04x}, not {:#04x}", a - is.begin(),
                            std::to_integer<unsigned>(*a), std::to_integer<unsigned>(*b)));
}

template <class F>
Result<void> Checks::variants(bool rooted, const F& check) {
    if (!options_.thorough) {
        ++turn_;
        return check(turn_ % 2 != 0, static_cast<std::uint32_t>(turn_ / 2 % size_));
    }
    for (std::uint32_t root = 0; root < (rooted ? size_ : 1); ++root)
        for (const bool in_place : {false, true})
            if (auto ok = check(in_place, root); !ok) return ok;
    return {};
}

// ---- reductions ---------------------------------------------------------------------------------

Result<void> Checks::allreduce(const Reduction& what) {
    const std::string text = name("allreduce", what, false);
    const Bytes mine = repeat(expected(what).mine, what.count * bytes_of(what.type));
    const CheckBuffer in(options_, mine);
    const CheckBuffer apart(options_, mine.size());
    const CheckBuffer& out = what.in_place ? in : apart;
    group_.expect(calls_);
    auto ok = group_.run(op::allreduce(in.data(), out.data(), what.count, what.type, what.reduce));
    if (ok = done(ok, text); !ok) return ok;
    compare_elements(text, out, 0, what);
    if (!what.in_place) compare_bytes(text + ": input", in, mine);
    hashes_.emplace_back(text, hash_of(out.content()));
    return {};
}

Result<void> Checks::reduce(const Reduction& what) {
    const std::string text = name("reduce", what, true);
    const bool root = rank_ == what.root;
    const Bytes mine = repeat(expected(what).mine, what.count * bytes_of(what.type));
    const CheckBuffer in(options_, mine);
    const CheckBuffer apart(options_, mine.size());
    const CheckBuffer& out = what.in_place ? in : apart;
    group_.expect(calls_);
    auto ok = group_.run(op::reduce(in.data(), root ? out.data() : nullptr, what.count, what.type,
                                    what.reduce, what.root));
    if (ok = done(ok, text); !ok) return ok;
    if (root) compare_elements(text, out, 0, what);
    if (!root || !what.in_place) compare_bytes(text + ": input", in, mine);
    return {};
}

Result<void> Checks::reduce_scatter(const Reduction& what) {
    const std::string text = name("reduce_scatter", what, false);
    const std::size_t part = what.count * bytes_of(what.type);
    const Bytes mine = repeat(expected(what).mine, part * size_);
    const CheckBuffer in(options_, mine);
    const CheckBuffer out(options_, part);
    group_.expect(calls_);
    auto ok =
        group_.run(op::reduce_scatter(in.data(), what.in_place ? in.at(part * rank_) : out.data(),
                                      what.count, what.type, what.reduce));
    if (ok = done(ok, text); !ok) return ok;
    if (!what.in_place) {
        compare_elements(text, out, what.count * rank_, what);
        compare_bytes(text + ": input", in, mine);
        return {};
    }
    if (!in.guards_untouched()) wrong(text, "bytes outside of the data were written");
    const Bytes all = in.content();
    const auto begin = all.begin() + static_cast<long>(part * rank_);
    compare_elements(text, CheckBuffer(options_, Bytes(begin, begin + static_cast<long>(part))),
                     what.count * rank_, what);
    return {};
}

Result<void> Checks::reductions(DType type, Reduce reduce_by, std::size_t count, Data data) {
    const auto with = [&](bool in_place, std::uint32_t root) {
        return Reduction{type, reduce_by, count, data, in_place, root};
    };
    auto ok = variants(
        false, [&](bool in_place, std::uint32_t root) { return allreduce(with(in_place, root)); });
    if (!ok) return ok;
    ok = variants(true,
                  [&](bool in_place, std::uint32_t root) { return reduce(with(in_place, root)); });
    if (!ok) return ok;
    return variants(false, [&](bool in_place, std::uint32_t root) {
        return reduce_scatter(with(in_place, root));
    });
}

Result<void> Checks::reductions() {
    for (const DType type : options_.types) {
        for (const Reduce reduce_by : options_.reduces) {
            for (const std::size_t count : options_.counts)
                if (auto ok = reductions(type, reduce_by, count, Data::exact); !ok) return ok;
            const bool adds = reduce_by == Reduce::sum || reduce_by == Reduce::average;
            if (!is_float(type) || !adds || options_.counts.empty()) continue;
            auto ok = reductions(type, reduce_by, options_.counts.back(), Data::inexact);
            if (!ok) return ok;
        }
        ++turn_;  // so that types do not always meet the same variant
    }
    if (options_.large_bytes == 0 || options_.types.empty() || options_.reduces.empty()) return {};
    const DType type = options_.types.front();
    const std::size_t count = options_.large_bytes / bytes_of(type);
    const Reduce reduce_by = options_.reduces.front();
    for (const bool in_place : {false, true}) {
        const Reduction large{type, reduce_by, count, Data::inexact, in_place, size_ - 1};
        if (auto ok = allreduce(large); !ok) return ok;
    }
    const Reduction large{type, reduce_by, count, Data::exact, false, size_ - 1};
    if (auto ok = reduce(large); !ok) return ok;
    Reduction part = large;
    part.count = count / size_;
    return reduce_scatter(part);
}

/// Each rank has its number, and one of them, or none, has NaN instead: element by element another.
Result<void> Checks::nans(DType type, Reduce reduce, std::size_t count) {
    const std::string text =
        fmt::format("{} {} of {} with NaN", name_of(type), name_of(reduce), count);
    const std::size_t width = bytes_of(type);
    const long double best = reduce == Reduce::min ? 1 : size_;
    Bytes period((size_ + 1) * width), reduced(period.size());
    for (std::uint32_t i = 0; i <= size_; ++i) {
        store_element(&period[i * width], type, i == rank_ ? NAN : rank_ + 1.0L);
        store_element(&reduced[i * width], type, i < size_ ? NAN : best);
    }
    const Bytes mine = repeat(period, count * width * size_);
    const auto compare = [&](const char* what, const CheckBuffer& got, std::size_t first) {
        const Bytes is = got.content();
        const Bytes should = repeat(reduced, is.size(), first * width);
        if (is == should) return;
        for (std::size_t at = 0; at < is.size(); at += width) {
            const long double a = load_element(&is[at], type);
            const long double b = load_element(&should[at], type);
            if (a == b || (std::isnan(a) && std::isnan(b))) continue;
            return wrong(fmt::format("{} {}", what, text),
                         fmt::format("element {} is {}, not {}", at / width, static_cast<double>(a),
                                     static_cast<double>(b)));
        }
    };
    const CheckBuffer in(options_, mine), all(options_, mine.size()), part(options_, count * width);
    group_.expect(calls_);
    auto ok = done(group_.run(op::allreduce(in.data(), all.data(), count * size_, type, reduce)),
                   "allreduce " + text);
    if (!ok) return ok;
    compare("allreduce", all, 0);
    ok = done(group_.run(op::reduce_scatter(in.data(), part.data(), count, type, reduce)),
              "reduce_scatter " + text);
    if (!ok) return ok;
    compare("reduce_scatter", part, count * rank_);
    const bool root = rank_ == size_ - 1;
    ok = done(group_.run(op::reduce(in.data(), root ? all.data() : nullptr, count * size_, type,
                                    reduce, size_ - 1)),
              "reduce " + text);
    if (ok && root) compare("reduce", all, 0);
    return ok;
}

Result<void> Checks::nans() {
    for (const DType type : options_.types)
        for (const Reduce reduce : options_.reduces) {
            if (!is_float(type) || (reduce != Reduce::min && reduce != Reduce::max)) continue;
            // What one rank adds up alone, and what goes around.
            for (const std::size_t count : {std::size_t{3}, std::size_t{9'001}})
                if (auto ok = nans(type, reduce, count); !ok) return ok;
        }
    return {};
}

/// All ranks must have got the same from allreduce, to the bit.
Result<void> Checks::same_bits() {
    const std::string text = "allgather of hashes";
    Bytes mine;
    for (const auto& [what, value] : hashes_) {
        mine.resize(mine.size() + sizeof value);
        std::memcpy(&mine[mine.size() - sizeof value], &value, sizeof value);
    }
    const CheckBuffer in(options_, mine);
    const CheckBuffer out(options_, mine.size() * size_);
    auto ok = done(group_.run(op::allgather(in.data(), out.data(), mine.size())), text);
    if (!ok) return ok;
    const Bytes all = out.content();
    for (std::size_t i = 0; i < hashes_.size(); ++i)
        for (std::uint32_t other = 0; other < size_; ++other) {
            const std::size_t at = (other * hashes_.size() + i) * sizeof(std::uint64_t);
            if (std::memcmp(&all[at], &mine[i * sizeof(std::uint64_t)], sizeof(std::uint64_t)) == 0)
                continue;
            wrong(hashes_[i].first, fmt::format("rank {} got other bits", other));
            return {};
        }
    return {};
}

// ---- data that are only moved -------------------------------------------------------------------

Result<void> Checks::broadcast(std::size_t bytes, std::uint32_t root) {
    const std::string text = name("broadcast", bytes, false, root);
    const Bytes content = repeat(moved_period(root, root), bytes);
    const CheckBuffer data(options_, rank_ == root ? content : Bytes(bytes));
    group_.expect(calls_);
    if (auto ok = done(group_.run(op::broadcast(data.data(), bytes, root)), text); !ok) return ok;
    compare_bytes(text, data, content);
    return {};
}

Result<void> Checks::allgather(std::size_t bytes, bool in_place) {
    const std::string text = name("allgather", bytes, in_place);
    Bytes content;
    for (std::uint32_t from = 0; from < size_; ++from)
        append(content, repeat(moved_period(from, 0), bytes));
    const Bytes mine = repeat(moved_period(rank_, 0), bytes);
    Bytes start(content.size());
    std::copy(mine.begin(), mine.end(), start.begin() + static_cast<long>(bytes * rank_));
    const CheckBuffer in(options_, mine);
    const CheckBuffer out(options_, in_place ? start : Bytes(content.size()));
    group_.expect(calls_);
    const void* from = in_place ? out.at(bytes * rank_) : in.data();
    if (auto ok = done(group_.run(op::allgather(from, out.data(), bytes)), text); !ok) return ok;
    compare_bytes(text, out, content);
    compare_bytes(text + ": input", in, mine);
    return {};
}

Result<void> Checks::allgatherv(const std::string& parts, const std::vector<std::size_t>& bytes,
                                bool in_place) {
    const std::string text =
        fmt::format("allgatherv of {} parts{}", parts, in_place ? ", in place" : "");
    Bytes content;
    std::size_t before = 0;
    for (std::uint32_t from = 0; from < size_; ++from) {
        if (from == rank_) before = content.size();
        append(content, repeat(moved_period(from, 1), bytes[from]));
    }
    const Bytes mine = repeat(moved_period(rank_, 1), bytes[rank_]);
    Bytes start(content.size());
    std::copy(mine.begin(), mine.end(), start.begin() + static_cast<long>(before));
    const CheckBuffer in(options_, mine);
    const CheckBuffer out(options_, in_place ? start : Bytes(content.size()));
    group_.expect(calls_);
    const void* from = in_place ? out.at(before) : in.data();
    if (auto ok = done(group_.run(op::allgatherv(from, out.data(), bytes)), text); !ok) return ok;
    compare_bytes(text, out, content);
    return {};
}

Result<void> Checks::gather(std::size_t bytes, std::uint32_t root, bool in_place) {
    const std::string text = name("gather", bytes, in_place, root);
    const Bytes mine = repeat(moved_period(rank_, 2), bytes);
    Bytes content;
    if (rank_ == root)
        for (std::uint32_t from = 0; from < size_; ++from)
            append(content, repeat(moved_period(from, 2), bytes));
    Bytes start(content.size());
    const bool inside = in_place && rank_ == root;
    if (inside)
        std::copy(mine.begin(), mine.end(), start.begin() + static_cast<long>(bytes * root));
    const CheckBuffer in(options_, mine);
    const CheckBuffer out(options_, start);
    group_.expect(calls_);
    const void* from = inside ? out.at(bytes * root) : in.data();
    void* to = rank_ == root ? out.data() : nullptr;
    if (auto ok = done(group_.run(op::gather(from, to, bytes, root)), text); !ok) return ok;
    compare_bytes(text, out, content);
    compare_bytes(text + ": input", in, mine);
    return {};
}

Result<void> Checks::scatter(std::size_t bytes, std::uint32_t root, bool in_place) {
    const std::string text = name("scatter", bytes, in_place, root);
    Bytes all;
    if (rank_ == root)
        for (std::uint32_t to = 0; to < size_; ++to)
            append(all, repeat(moved_period(root, to), bytes));
    const bool inside = in_place && rank_ == root;
    const CheckBuffer in(options_, all);
    const CheckBuffer out(options_, bytes);
    group_.expect(calls_);
    const void* from = rank_ == root ? in.data() : nullptr;
    void* to = inside ? in.at(bytes * root) : out.data();
    if (auto ok = done(group_.run(op::scatter(from, to, bytes, root)), text); !ok) return ok;
    compare_bytes(text + ": input", in, all);
    if (!inside) compare_bytes(text, out, repeat(moved_period(root, rank_), bytes));
    return {};
}

Result<void> Checks::alltoall(std::size_t bytes) {
    const std::string text = name("alltoall", bytes, false);
    Bytes mine;
    Bytes content;
    for (std::uint32_t peer = 0; peer < size_; ++peer) {
        append(mine, repeat(moved_period(rank_, peer), bytes));
        append(content, repeat(moved_period(peer, rank_), bytes));
    }
    const CheckBuffer in(options_, mine);
    const CheckBuffer out(options_, content.size());
    group_.expect(calls_);
    if (auto ok = done(group_.run(op::alltoall(in.data(), out.data(), bytes)), text); !ok)
        return ok;
    compare_bytes(text, out, content);
    compare_bytes(text + ": input", in, mine);
    return {};
}

Result<void> Checks::moves(std::size_t bytes) {
    std::vector<std::size_t> unequal;
    std::vector<std::size_t> last_only(size_, 0);
    for (std::uint32_t rank = 0; rank < size_; ++rank)
        unequal.push_back(rank % 3 == 1 ? 0 : bytes / (rank + 1) + rank);
    last_only.back() = bytes;
    for (std::uint32_t root = 0; root < size_; ++root)
        if (auto ok = broadcast(bytes, root); !ok) return ok;
    for (const bool in_place : {false, true}) {
        if (auto ok = allgather(bytes, in_place); !ok) return ok;
        if (auto ok = allgatherv("unequal", unequal, in_place); !ok) return ok;
        if (auto ok = allgatherv("empty but for the last", last_only, in_place); !ok) return ok;
        for (std::uint32_t root = 0; root < size_; ++root) {
            if (auto ok = gather(bytes, root, in_place); !ok) return ok;
            if (auto ok = scatter(bytes, root, in_place); !ok) return ok;
        }
    }
    return alltoall(bytes);
}

// ---- messages -----------------------------------------------------------------------------------

/// Several messages of different sizes between all pairs, in both directions, at once.
Result<void> Checks::many_messages(std::size_t bytes) {
    const std::string text = fmt::format("messages of up to {} B between all", bytes);
    const std::vector<std::size_t> sizes{bytes, 0, 1, bytes / 3, 17};
    std::vector<std::unique_ptr<CheckBuffer>> buffers;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    const auto content = [&](std::uint32_t from, std::uint32_t to, std::size_t i) {
        return repeat(moved_period(from * size_ + to, static_cast<std::uint32_t>(i) + 10),
                      sizes[i]);
    };
    for (std::size_t i = 0; i < sizes.size(); ++i)
        for (std::uint32_t step = 1; step < size_; ++step) {
            const std::uint32_t to = (rank_ + step) % size_;
            buffers.push_back(std::make_unique<CheckBuffer>(options_, content(rank_, to, i)));
            sends.push_back({to, buffers.back()->data(), sizes[i]});
        }
    const std::size_t first_received = buffers.size();
    for (std::size_t i = 0; i < sizes.size(); ++i)
        for (std::uint32_t step = 1; step < size_; ++step) {
            buffers.push_back(std::make_unique<CheckBuffer>(options_, sizes[i]));
            receives.push_back({(rank_ + step) % size_, buffers.back()->data(), sizes[i]});
        }
    group_.expect(calls_);
    auto pending = group_.start(sends, receives);
    if (!pending) return done(std::unexpected(pending.error()), text);
    (*pending)->poll();
    if (auto ok = done((*pending)->wait(), text); !ok) return ok;
    std::vector<std::size_t> number(size_, 0);
    for (std::size_t i = 0; i < receives.size(); ++i) {
        const std::uint32_t from = receives[i].peer;
        const std::size_t of_pair = number[from]++;
        compare_bytes(fmt::format("{}: message {} from rank {}", text, of_pair, from),
                      *buffers[first_received + i], content(from, rank_, of_pair));
    }
    return {};
}

/// Rounds of messages around the ring, three of which are under way at a time.
Result<void> Checks::messages_under_way(std::size_t bytes) {
    constexpr std::size_t kRounds = 7;
    constexpr std::size_t kUnderWay = 3;
    const std::uint32_t next = (rank_ + 1) % size_;
    const std::uint32_t previous = (rank_ + size_ - 1) % size_;
    const std::string text = fmt::format("messages of {} B around the ring", bytes);
    std::vector<std::unique_ptr<CheckBuffer>> out;
    std::vector<std::unique_ptr<CheckBuffer>> in;
    std::vector<std::unique_ptr<Pending>> pending;
    for (std::uint32_t round = 0; round < kRounds + kUnderWay; ++round) {
        if (round < kRounds) {
            const Bytes content = repeat(moved_period(rank_, 100 + round), bytes + round);
            out.push_back(std::make_unique<CheckBuffer>(options_, content));
            in.push_back(std::make_unique<CheckBuffer>(options_, content.size()));
            const Send send{next, out.back()->data(), content.size()};
            const Receive receive{previous, in.back()->data(), content.size()};
            auto started = group_.start({&send, 1}, {&receive, 1});
            if (!started) return done(std::unexpected(started.error()), text);
            pending.push_back(std::move(*started));
        }
        for (const auto& one : pending)
            if (one) one->poll();
        if (round < kUnderWay) continue;
        const std::uint32_t waited = round - kUnderWay;
        if (auto ok = done(pending[waited]->wait(), text); !ok) return ok;
        pending[waited].reset();
        compare_bytes(fmt::format("{}: round {}", text, waited), *in[waited],
                      repeat(moved_period(previous, 100 + waited), bytes + waited));
    }
    return {};
}

/// Along the line of ranks: each one only receives, and then only sends.
Result<void> Checks::one_way_messages() {
    const std::string text = "message along the line of ranks";
    const Bytes content = repeat(moved_period(0, 200), 777);
    const CheckBuffer data(options_, rank_ == 0 ? content : Bytes(content.size()));
    if (rank_ > 0) {
        const Receive receive{rank_ - 1, data.data(), content.size()};
        auto pending = group_.start({}, {&receive, 1});
        if (!pending) return done(std::unexpected(pending.error()), text);
        if (auto ok = done((*pending)->wait(), text); !ok) return ok;
    }
    if (rank_ + 1 < size_) {
        const Send send{rank_ + 1, data.data(), content.size()};
        auto pending = group_.start({&send, 1}, {});
        if (!pending) return done(std::unexpected(pending.error()), text);
        if (auto ok = done((*pending)->wait(), text); !ok) return ok;
    }
    compare_bytes(text, data, content);
    auto nothing = group_.start({}, {});
    if (!nothing) return done(std::unexpected(nothing.error()), "no messages at all");
    return done((*nothing)->wait(), "no messages at all");
}

Result<void> Checks::run() {
    if (group_.facts().version.empty()) wrong("facts()", "no version");
    if (auto ok = done(group_.run(op::barrier()), "barrier"); !ok) return ok;
    if (auto ok = reductions(); !ok) return ok;
    if (auto ok = same_bits(); !ok) return ok;
    if (options_.nans)
        if (auto ok = nans(); !ok) return ok;
    std::vector<std::size_t> sizes = options_.counts;
    if (options_.large_bytes != 0) sizes.push_back(options_.large_bytes / size_);
    for (const std::size_t bytes : sizes)
        if (auto ok = moves(bytes); !ok) return ok;
    if (options_.messages && size_ > 1) {
        for (const std::size_t bytes : sizes) {
            if (auto ok = many_messages(bytes); !ok) return ok;
            if (auto ok = messages_under_way(bytes); !ok) return ok;
        }
        if (auto ok = one_way_messages(); !ok) return ok;
    }
    if (auto ok = done(group_.run(op::barrier()), "barrier at the end"); !ok) return ok;
    return first_wrong_;
}

}  // namespace

Result<void> check_group(Group& group, const GroupSpec& spec, const CheckOptions& options) {
    return Checks(group, spec, options).run();
}

}  // namespace dtrun::collectives
